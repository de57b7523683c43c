"""`python -m opcost.move_results`: move results of the former layout to their present places.

Files of schema version 14, the last before the first released one, become the present version. To
be deleted before that release. Nothing is measured again, and nothing is deleted except tables and
plans, which the next run makes again, and copies of existing files. If it is killed, it continues
when it is run again.
"""

import argparse
import json
import os
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from opcost.addresses import conditions_address, definition_address, extraction_address
from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError, reported
from opcost.files import content_of, opened, read_json, replacing, write_json
from opcost.models.definition import ModelDefinition
from opcost.results_folder import (
    CALLS,
    MODELS,
    RESULTS,
    ROUNDS,
    all_measurements,
    device_file,
    extraction,
    former_targets,
    overhead_files,
    recording,
    recordings,
    sensor_file,
    series_named,
    series_of,
    settings_file,
    target_folder,
)
from opcost.rows import records, schemas
from opcost.rows.seal import check_seal
from opcost.run_lock import RunLock
from opcost.study import Conditions
from opcost.tuples.model_tuples import ModelTuples, plain_data, read_model_tuples

_LAST_VERSION = "14"
_LAST_VERSION_OF_TUPLES = 5
_VALUES_OF_A_SAMPLE = 10
_PLAN = re.compile(r"\d+\.json")
_REMEDY = "move it to another folder, and run this again"


@dataclass
class _Moves:
    """The planned moves in order: place -> file. `copies` are files that exist there already."""

    planned: dict[Path, Path] = field(default_factory=dict)
    copies: list[Path] = field(default_factory=list)

    def add(self, path: Path, there: Path, alike: Callable[[Path, Path], bool]) -> None:
        """Plan a move. Raises OpcostError if another file is there, or will be."""
        other = self.planned.get(there) or there
        if not os.path.lexists(other):
            self.planned[there] = path
        elif _same_content(path, other) or alike(path, other):
            self.copies.append(path)
        else:
            raise OpcostError(
                f"{path} would become {there}, and {other} is there already and differs: nothing "
                "was moved; move one of the two to another folder, and run this again"
            )

    def make(self) -> None:
        for there, path in self.planned.items():
            there.parent.mkdir(parents=True, exist_ok=True)
            path.rename(there)
        for path in self.copies:
            path.unlink()


def move_results(results: Path = RESULTS) -> int:
    """Move all measurements of a folder. Returns their number.

    Raises OpcostError before it moves or deletes anything, if a file is damaged, or another is in
    its place.
    """
    moves, settings = _Moves(), dict[Path, str]()
    for path in sorted((results / "tuples").glob("[!.]*.pkl")):
        tuples = _read_tuples(path)
        if tuples.definition is not None and path.stem == tuples.model:
            moves.add(path, extraction(_extracted(tuples), results), _same_tuples)
    targets = former_targets(results)
    for folder in targets:
        settings |= _plan_target(folder, moves)
    _delete_plans([results / "operator_tuples.json", *(results / ".made").glob("*.json")])
    for folder in targets:
        plans = (folder / ROUNDS).glob("*.json")
        _delete_plans(path for path in plans if _PLAN.fullmatch(path.name))
    for there, text in settings.items():
        if not settings_file(there).exists():
            with replacing(settings_file(there)) as temporary:
                temporary.write_text(f"{text}\n")
    moves.make()
    for folder in targets:
        for emptied in folder.glob("*/"):
            if series_named(emptied.name) or emptied.name == CALLS:
                _delete_emptied(emptied)
    return sum(there.suffix == ".parquet" for there in moves.planned)


def _plan_target(folder: Path, moves: _Moves) -> dict[Path, str]:
    """Plan the moves of a target: each row to its conditions; device files to the most rows. The
    device file is the last: while it is there, a run refers to this command.

    Returns folder -> its settings.
    """
    of_device = [
        *(path for path in [sensor_file(folder)] if path.is_file()),
        *reversed(overhead_files(folder)),
    ]
    for path in of_device:
        _drop_procedure(path)
    has_file = device_file(folder).exists()
    device = asdict(read_device(device_file(folder))) if has_file else {}
    rows: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for path in all_measurements(folder):
        row = _read_row(path)
        with _legible(path):
            there = target_folder(folder.name, _address(row, device), folder.parent)
            name = path.name
            if series_of(path).kind == MODELS:
                definition = ModelDefinition.from_json(row["definition_json"])
                name = f"{definition_address(definition)}.parquet"
        moves.add(path, there / path.parent.name / name, _same_measurement)
        rows[there].append(row)
    newest = {
        there: max(found, key=lambda row: str(row["ended_at"])) for there, found in rows.items()
    }
    if of_device or recordings(folder):
        home = _home(folder, rows)
        for path in recordings(folder):
            tuples = _read_tuples(path)
            if tuples.definition is not None:
                moves.add(path, recording(home, _extracted(tuples)), _same_tuples)
        for path in of_device:
            moves.add(path, home / path.name, _same_content)
    return {there: row["conditions_json"] for there, row in newest.items()}


def _home(folder: Path, rows: dict[Path, list[dict[str, Any]]]) -> Path:
    """The folder for a target's device file: with the most rows, including rows that were moved
    before this command was killed.
    """
    counts = Counter({there: len(found) for there, found in rows.items()})
    for there in folder.glob("*/"):
        counts[there] += len(all_measurements(there))
    lacking = [there for there in counts if counts[there] and not device_file(there).exists()]
    if not (lacking or rows):
        raise OpcostError(
            f"{folder} has no measurements that say under which conditions its device is used: "
            f"nothing was moved; delete {device_file(folder)}, which the next run makes again, and "
            "run this again"
        )
    return max(sorted(lacking or rows), key=lambda there: counts[there])


def _delete_plans(paths: Iterable[Path]) -> None:
    """Delete tables and plans of the former layout, and their folders."""
    for path in [*paths]:
        path.unlink(missing_ok=True)
        if path.parent.name in (ROUNDS, ".made"):
            _delete_emptied(path.parent)


def _delete_emptied(folder: Path) -> None:
    with suppress(OSError):  # it contains something else, which stays
        folder.rmdir()


def _same_content(path: Path, other: Path) -> bool:
    return content_of(path) == content_of(other)


def _same_measurement(path: Path, other: Path) -> bool:
    row, there = _read_row(path), _read_row(other)
    return bool(row["started_at"]) and row["started_at"] == there["started_at"]


def _same_tuples(path: Path, other: Path) -> bool:
    found = (replace(_read_tuples(each), extraction_s=None) for each in (path, other))
    return next(found) == next(found)


@contextmanager
def _legible(path: Path) -> Iterator[None]:
    """Raise OpcostError for a damaged file."""
    try:
        yield
    except (OpcostError, MemoryError):
        raise
    except Exception as error:
        raise OpcostError(
            f"{path} is damaged ({type(error).__name__}: {error}): {_REMEDY}"
        ) from error


def _extracted(tuples: ModelTuples) -> str:
    assert tuples.definition is not None
    return extraction_address(tuples.definition, {"torch_version": tuples.torch_version})


def _address(row: dict[str, Any], device: dict[str, Any]) -> str:
    """The address at which the next run on the same device looks for a row."""
    conditions = Conditions.from_json(row["conditions_json"])
    known = device | {name: value for name, value in row.items() if value is not None}
    used = device.get("device") or known["device"]
    kind = kind_of(used)
    names = ["torch_version", "cuda_version", *(kind.recorded() if kind else ())]
    if kind is not None and not kind.is_processor and known.get("device_uuid_hash"):
        names += ["device_uuid_hash", "power_limit_w"]
    environment = {name: known.get(name) for name in names}
    requested = conditions.target.device
    on = requested if requested != "auto" else used.partition(":")[0]
    return conditions_address(conditions, on, environment)


def _read_row(path: Path) -> dict[str, Any]:
    if records.metadata(path).get("opcost.schema_version") == _LAST_VERSION:
        _renumber_row(path)
    schema = schemas.MEASUREMENTS[series_of(path).kind]
    rows: list[dict[str, Any]] = records.read(path, schema, remedy=_REMEDY).to_pylist()
    if len(rows) != 1:
        raise OpcostError(f"{path} holds {len(rows)} rows where one is expected: {_REMEDY}")
    return rows[0]


def _renumber_row(path: Path) -> None:
    """Number a file of the last unreleased version 1, which has the same columns."""
    with _legible(path):
        with opened(path) as file:
            check_seal(file)
            table = pq.read_table(file, page_checksum_verification=True)
        rows = table.to_pylist()
        for row in rows:
            row["schema_version"] = 1
            if row.get("definition_json"):
                row["definition_json"] = _renamed_dtype(row["definition_json"])
        metadata = {**table.schema.metadata, b"opcost.schema_version": b"1"}
    records.write(path, table.schema.with_metadata(metadata), rows)


def _read_tuples(path: Path) -> ModelTuples:
    with _legible(path):
        document = plain_data(content_of(path))
        if outdated := document["schema_version"] == _LAST_VERSION_OF_TUPLES:
            document["schema_version"] = 1
            if document["definition"]:
                document["definition"] = _renamed_dtype(document["definition"])
    if outdated:
        with replacing(path) as temporary:
            temporary.write_bytes(pickle.dumps(document, protocol=4))
    return read_model_tuples(path)


def _drop_procedure(path: Path) -> None:
    """Remove the former procedure number from samples of call overhead; all have the same."""
    document = read_json(path, _REMEDY)
    with _legible(path):
        samples = document.get("overhead") or []
        outdated = any(len(each) > _VALUES_OF_A_SAMPLE for each in samples)
    if outdated:
        write_json(path, document | {"overhead": [[*each[:4], *each[5:]] for each in samples]})


def _renamed_dtype(definition: str) -> str:
    """A definition without `float32` unless the model was converted."""
    document = json.loads(definition)
    if document["dtype"] == "float32" and not document.pop("converted", False):
        document["dtype"] = None
    return ModelDefinition.from_json(json.dumps(document)).to_json()


def main() -> None:
    """Move the results in the current folder, and print their number."""
    argparse.ArgumentParser(
        prog="python -m opcost.move_results",
        description=f"Move all of {RESULTS} that has the layout of before the first release to its "
        "present places. Nothing is measured again.",
    ).parse_args()
    if not any(RESULTS.glob("*/device.json")):
        print(f"Nothing to move: {RESULTS.resolve()} has no measurements of the former layout")
        return
    with reported(), closing(RunLock()) as lock:
        lock.hold("opcost.move_results")
        print(f"{move_results()} measurements moved: run the study again to make its tables")


if __name__ == "__main__":
    main()
