"""Every operator measurement of a study in one file, each row checked; and reading such a file."""

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost import statistics
from opcost.databases.unchanged import RowsByNumber, begun_at, unchanged
from opcost.devices.device_file import Sample
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.rows.overhead import overhead_columns, read_samples
from opcost.tuples.operator_tuple import id_of

REFERENCE = Path(__file__).parents[1] / "reference"
"""Databases that come with opcost: in a clone a link to data/reference/, whose README says more."""

_REMEDY = "name a database that this version of opcost made; {path} is another file"
_TIMES = ("target", "tuple_id", "time_s")


def write_database(
    paths: Sequence[Path],
    output: Path,
    again: Sequence[Path] = (),
    overheads: Sequence[Path] = (),
) -> None:
    """Write the rows of all measurement files, in their order, into one, in bounded memory.

    Where `output` exists, rows of files that have not changed since come from it. Each row learns
    what is known of its target: from `again`, second measurements of some tuples, the `spread`;
    and from `overheads`, `TARGET/*.json`, what calls cost there. Raises OpcostError, with the file
    to delete, for a measurement that cannot be read, has no row, or has a row that is not of the
    tuple that it names; and for two rows of one tuple on one target.
    """
    schema = begun_at(schemas.DATABASE, time.time_ns())
    known = _known_of_targets(paths, again, overheads)
    records.write_batches(
        output, schema, (_with_columns(batch, known) for batch in _rows(paths, output))
    )


def _rows(paths: Sequence[Path], earlier: Path) -> Iterator[pa.RecordBatch]:
    numbers = unchanged(earlier, paths)
    known = RowsByNumber(earlier, schemas.OPERATOR) if numbers else None
    seen: dict[tuple[str, str], Path] = {}
    for is_known, group in itertools.groupby(paths, key=numbers.__contains__):
        if is_known and known is not None:
            same = list(group)
            seen |= {(path.parent.parent.name, path.stem): path for path in same}
            yield from known.take([numbers[path] for path in same])
        else:
            yield from _checked(group, seen)


def read_database(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a database, merged or not, or some of their columns.

    Only of merged ones there are `conditions_id` and `sources`. Raises OpcostError for a file that
    is no database of this schema version.
    """
    schema = _schema_of(path)
    chosen = None if columns is None else [name for name in columns if name in schema.names]
    return records.read_all([path], schema, chosen, _REMEDY)


def stream_database(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a database, merged or not, and its rows in batches of some hundred.

    Raises OpcostError as `read_database` does, for damaged rows when they are come to.
    """
    schema = _schema_of(path)
    return schema, records.stream(path, schema, remedy=_REMEDY)


def _schema_of(path: Path) -> pa.Schema:
    if not path.is_file():
        raise OpcostError(
            f"there is no database {path}: name another, or run a study (snakemake --cores 1)"
        )
    merged = records.metadata(path).get("opcost.record") == "merged"
    return schemas.MERGED if merged else schemas.DATABASE


def default_databases() -> list[Path]:
    """The databases to answer from if none is named.

    That of the study in the current folder, if it was run, then those that come with opcost.
    """
    own = Path("results/database.parquet")
    return [path for path in [own] if path.is_file()] + sorted(REFERENCE.glob("*.parquet"))


def _known_of_targets(
    paths: Sequence[Path], again: Sequence[Path], overheads: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    """Columns that are the same in all rows of a target, by targets."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for path in overheads:
        samples[path.parent.name] += read_samples(path)
    known = {target: overhead_columns(found) for target, found in samples.items()}
    for target, spread in _spreads(paths, again).items():
        known.setdefault(target, {})["spread"] = spread
    return known


def _spreads(paths: Sequence[Path], again: Sequence[Path]) -> dict[str, float | None]:
    """How well measurements reproduce on each target: files are named by their tuples."""
    names = {path.stem for path in again}
    first = {
        (row["target"], row["tuple_id"]): row["time_s"]
        for row in _times([path for path in paths if path.stem in names])
    }
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in _times(again):
        time_s = first.get((row["target"], row["tuple_id"]))
        if time_s is not None and row["time_s"] is not None:
            pairs[row["target"]].append((time_s, row["time_s"]))
    return {target: statistics.spread_of_pairs(values) for target, values in pairs.items()}


def _times(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return records.read_all(paths, schemas.OPERATOR, _TIMES).to_pylist()


def _with_columns(batch: pa.RecordBatch, known: dict[str, dict[str, Any]]) -> pa.RecordBatch:
    """The rows of a measurement as those of a database."""
    targets = batch["target"].to_pylist()
    for name in schemas.DATABASE.names[len(schemas.OPERATOR.names) :]:
        values = [known.get(target, {}).get(name) for target in targets]
        batch = batch.append_column(name, pa.array(values, schemas.DATABASE.field(name).type))
    return batch.cast(schemas.DATABASE)


def _checked(paths: Iterable[Path], seen: dict[tuple[str, str], Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        empty = True
        for batch in records.stream(path, schemas.OPERATOR):
            for key in _keys(batch, path):
                if key in seen:
                    raise OpcostError(
                        f"{path} and {seen[key]} both hold tuple {key[1]} on target {key[0]}: "
                        "delete both and run again"
                    )
                seen[key] = path
                empty = False
            yield batch
        if empty:
            raise OpcostError(f"{path} holds no row: delete it and run again")


def _keys(batch: pa.RecordBatch, path: Path) -> Iterator[tuple[str, str]]:
    """The target and tuple id of each row."""
    names = ("target", "tuple_id", "canonical_json")
    for target, tuple_id, canonical_json in zip(
        *(batch[name].to_pylist() for name in names), strict=True
    ):
        if canonical_json is None or tuple_id != id_of(canonical_json):
            raise OpcostError(
                f"{path} has a row of tuple {tuple_id} that describes another ({canonical_json}): "
                f"delete {path} and run again to make it anew"
            )
        yield target, tuple_id
