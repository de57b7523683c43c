"""Write all measurements into one database, after checking each row.

The database holds every measurement, of this study and others. A row joins the runs of a tuple, one
in each round, and keeps the value of each run (`run_...`), so that it can be combined with the
run-to-run variation of its target. How runs are joined in other columns is stated with each column.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.addresses import definition_address
from opcost.databases import model_ratios
from opcost.databases.measured import Damages, Measured
from opcost.devices.device_file import Sample, changes_between, read_device
from opcost.errors import OpcostError
from opcost.files import read_json, version_of
from opcost.models.definition import ModelDefinition
from opcost.noise import block_error
from opcost.results_folder import device_file, folder_of, series_of, settings_file
from opcost.rows import records, schemas
from opcost.rows.column import Joining
from opcost.rows.columns import MEASUREMENT
from opcost.rows.comparability import conflict, meaning
from opcost.rows.overhead_samples import overhead_columns, read_samples
from opcost.rows.quantities import MEASURED, POWER
from opcost.rows.runs import ModelRatio, result_of, undisturbed
from opcost.study import Conditions

Row = dict[str, Any]

Ratios = Callable[
    [Measured, Damages, Mapping[str, Mapping[str, Row]]], Mapping[str, Sequence[ModelRatio]]
]
"""Target -> its models' ratios of estimate and end-to-end, from its rows by tuple id."""

_BATCH = 500
_RAW = {"block_time_s", "block_undisturbed", "power_sample_w", "power_sample_time_s"}


def write_database(
    measured: Measured,
    output: Path,
    asked: Collection[Path] | None = None,
    ratios: Ratios | None = None,
) -> list[str]:
    """Write the rows of all measured operators into one file, in the order of targets and tuples.

    Each row joins the runs of a tuple, and states the call overhead of its target. The
    `ratios` of models, the source of the model error, are the file's metadata (`model_ratios`).

    Raises OpcostError with a remedy for a file among `asked` (default: all) that is damaged or does
    not match its path. Other such files are skipped, and named in the returned messages.
    """
    damages = Damages(asked)
    overheads = _overheads(measured, damages)
    seen: dict[str, dict[str, Row]] = defaultdict(dict)

    def batches() -> Iterator[pa.RecordBatch]:
        held: list[Row] = []
        for row in _rows(measured, damages):
            held.append(row | overheads.get(row["target"], {}))
            if ratios is not None:
                seen[row["target"]][row["tuple_id"]] = {
                    name: held[-1].get(name) for name in schemas.DATABASE.names if name not in _RAW
                }
            if len(held) == _BATCH:
                yield pa.RecordBatch.from_pylist(held, schema=schemas.DATABASE)
                held = []
        if held:
            yield pa.RecordBatch.from_pylist(held, schema=schemas.DATABASE)

    def metadata() -> Mapping[str, str]:
        known = ratios(measured, damages, seen) if ratios else {}
        damages.left_out()  # raises before the database is replaced
        return model_ratios.metadata(known)

    records.write_batches(output, schemas.DATABASE, batches(), metadata)
    return damages.left_out()


def _rows(measured: Measured, damages: Damages) -> Iterator[Row]:
    for paths in measured.operators:
        target = measured.target_in(folder_of(paths[0]))
        readable = {}
        for path in paths:
            with damages.tolerated(path):
                readable[path] = {**_checked(path, damages.remedy(path)), "target": target}
        found = damages.once(readable)
        if found:
            yield joined(list(found.values()), [series_of(path).round for path in found])


def _overheads(measured: Measured, damages: Damages) -> dict[str, dict[str, Any]]:
    samples: dict[str, list[Sample]] = defaultdict(list)
    for path in measured.overheads:
        with damages.tolerated(path):
            found = read_samples(path)
            known = samples[measured.target_in(path.parent)]
            if found and found[0] in known:  # no two processes agree to the last digit
                damages.copies.append(path)
            else:
                known += found
    return {target: overhead_columns(found) for target, found in samples.items()}


def _checked(path: Path, remedy: str) -> dict[str, Any]:
    """The row of a file, after checking that it matches its path."""
    rows = records.read(path, schemas.OPERATOR, remedy=remedy).to_pylist()
    if len(rows) != 1:
        count = f"{len(rows)} rows" if rows else "no row"
        raise OpcostError(f"{path} holds {count} where one is expected: {remedy}")
    [row] = rows
    if row["canonical_json"] is None:  # its id is checked where it is read
        raise OpcostError(
            f"{path} has a row of tuple {row['tuple_id']} that describes another (None): {remedy}"
        )
    if row["tuple_id"] != path.stem:
        raise OpcostError(f"{path} holds the row of another tuple, {row['tuple_id']}: {remedy}")
    _check_conditions(path, row, remedy)
    return row


def end_to_end_rows(path: Path, remedy: str) -> list[dict[str, Any]]:
    """The rows of a model's file, after checking that they match its path."""
    rows = records.read(path, schemas.MODEL, remedy=remedy).to_pylist()
    for row in rows:
        stated = row["definition_json"]
        if stated and definition_address(ModelDefinition.from_json(stated)) != path.stem:
            raise OpcostError(f"{path} holds the row of another model, {row['model']}: {remedy}")
        _check_conditions(path, row, remedy)
    return rows


def _check_conditions(path: Path, row: Mapping[str, Any], remedy: str) -> None:
    """Raise OpcostError unless a row has the settings and the environment of its folder."""
    settings, environment, any_of_kind = _known_of(folder_of(path))
    differing = [
        "other settings" if settings not in (None, meaning(row["conditions_json"])) else None,
        *map(str, changes_between(environment, row, any_of_kind)),
    ]
    if found := "; ".join(filter(None, differing)):
        raise OpcostError(
            f"{path} was measured under other conditions than {folder_of(path)} ({found}): move it "
            f"to the folder of its conditions, or {remedy}"
        )


def _known_of(folder: Path) -> tuple[str | None, Mapping[str, Any], bool]:
    return _conditions(folder, version_of(settings_file(folder)), version_of(device_file(folder)))


@lru_cache(maxsize=1)
def _conditions(folder: Path, *_: tuple[int, ...]) -> tuple[str | None, Mapping[str, Any], bool]:
    """A folder's settings and environment, as far as known, and whether any device of the kind will
    do.
    """
    path, environment = settings_file(folder), dict[str, Any]()
    if device_file(folder).is_file():
        environment = asdict(read_device(device_file(folder)))
    if not path.is_file():
        return None, environment, environment.get("lock_key") is None
    remedy = f"delete {path} and run again"
    document = read_json(path, remedy)
    try:
        conditions = Conditions.from_json(json.dumps(document))
    except (TypeError, KeyError, ValueError) as error:
        raise OpcostError(f"{path} is damaged ({error}): {remedy}") from None
    return meaning(conditions.to_json()), environment, conditions.target.any_of_kind


def joined(rows: Sequence[Row], rounds: Sequence[int]) -> Row:
    """One row for the runs of a tuple, with their combined result. Runs under other conditions, and
    failed ones, are left out; so are disturbed ones where others are not.

    Conditions are taken from the first round, which is measured again before the others.
    """
    wanted = meaning(rows[0]["conditions_json"])
    measured = [
        (row, number)
        for row, number in zip(rows, rounds, strict=True)
        if row["status"] == "ok" and meaning(row["conditions_json"]) == wanted
    ]
    base = measured[0][0] if measured else rows[0]
    pairs = [pair for pair in measured if conflict([base, pair[0]]) is None]
    if not pairs:
        return base
    found = undisturbed([row for row, _ in pairs])
    numbers = [number for row, number in pairs if row in found]
    columns: Row = {
        column.name: _JOINED[column.joining]([row[column.name] for row in found])
        for column in MEASUREMENT
    }
    columns["device_time_s"] = _total([row["device_time_s"] for row in rows])
    columns["disturbed_runs"] = len(pairs) - len(found)
    columns["run_round"] = numbers
    if columns["block_time_s"] is not None:
        columns["run_blocks"] = [len(row["block_time_s"]) for row in found]
    temperatures_c = [row["temperature_end_c"] for row in found]
    if temperatures_c != [None] * len(found):
        columns["run_temperature_c"] = temperatures_c
    for quantity in MEASURED:
        estimates = [quantity.read(row) for row in found]
        if any(estimates):
            columns[quantity.runs] = [each and each.value for each in estimates]
            columns[quantity.run_errors] = [each and block_error(each) for each in estimates]
    if columns.get(POWER.runs):
        columns["energy_reason"] = None
    row = base | columns
    return row | result_of(row)


def _of_most(flags: Sequence[Sequence[str] | None]) -> list[str]:
    known = [found or [] for found in flags]
    names = dict.fromkeys(name for found in known for name in found)
    return [name for name in names if 2 * sum(name in found for found in known) >= len(known)]


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _in_order(values: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    known = [each for each in values if each is not None]
    return list(itertools.chain.from_iterable(known)) if len(known) == len(values) else None


_JOINED: Mapping[Joining, Callable[[Sequence[Any]], Any]] = {
    Joining.FIRST: lambda values: values[0],
    Joining.LAST: lambda values: values[-1],
    Joining.TOTAL: _total,
    Joining.ALL: all,
    Joining.MOST: _of_most,
    Joining.IN_ORDER: _in_order,
}
