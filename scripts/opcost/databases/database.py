"""Reading databases of operator measurements, and selecting rows of a study or a target."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.results_folder import DATABASE
from opcost.rows import records, schemas
from opcost.rows.comparability import meaning
from opcost.rows.runs import COLUMNS

REFERENCE = Path(__file__).parents[1] / "reference"
"""Databases that come with opcost; in a clone, a link to data/reference/ (see its README)."""

_REMEDY = "name a database that opcost made; {path} is another file"


def read_database(
    path: Path, columns: Sequence[str] | None = None, row_bytes: int = 2_000
) -> pa.Table:
    """The rows of a database, merged or not, or some of their columns.

    Only merged databases have `conditions_id` and `sources`. Raises OpcostError for a file that is
    not a database or was written by a newer opcost, and if rows of `row_bytes` exceed free memory.
    """
    schema = _schema_of(path)
    rows, free = records.number_of_rows(path), free_bytes()
    if rows * row_bytes > free:
        raise OpcostError(
            f"{path} has {rows:,} rows, which would take about {gib(rows * row_bytes)} of memory, "
            f"and {gib(free)} are free: close other programs, or use a machine or a job with more "
            "memory. opcost export and opcost merge need little"
        )
    chosen = None if columns is None else [name for name in columns if name in schema.names]
    return records.read_all([path], schema, chosen, _REMEDY)


def stream_database(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a database, merged or not, and its rows in batches of a few hundred.

    Raises OpcostError like `read_database`; for damaged rows, when it reaches them.
    """
    schema = _schema_of(path)
    return schema, records.stream(path, schema, remedy=_REMEDY)


def _schema_of(path: Path) -> pa.Schema:
    if path.is_dir():
        held = ", ".join(each.name for each in sorted(path.glob("*.parquet"))[:6])
        raise OpcostError(
            f"{path} is a folder: name a database in it{f', one of {held}' if held else ''}"
        )
    if not path.exists():
        raise OpcostError(
            f"there is no database {path}: run a study (snakemake --cores 1), or name another, "
            "such as the reference data: h100, h200 or xeon"
        )
    merged = records.metadata(path).get("opcost.record") == "merged"
    return schemas.MERGED if merged else schemas.DATABASE


def default_databases() -> list[Path]:
    """The database of the study in the current folder, unless it has no row, then those that come
    with opcost.
    """
    own = [path for path in [DATABASE] if path.is_file()]
    if own and records.metadata(DATABASE) and not records.number_of_rows(DATABASE):
        own = []
    return own + sorted(REFERENCE.glob("*.parquet"))


def asked_for(
    database: pa.Table, conditions: Mapping[str, str], tuple_ids: Sequence[str]
) -> pa.Table:
    """The rows of these tuples and targets whose conditions mean the same as each target's.

    `conditions` are JSON, by target. Rows are ordered by target, then by tuple.
    """
    names = ("target", "tuple_id", "conditions_json")
    rows = zip(*(database[name].to_pylist() for name in names), strict=True)
    numbers = {
        (target, tuple_id, meaning(settings)): number
        for number, (target, tuple_id, settings) in enumerate(rows)
    }
    wanted = (
        (target, tuple_id, meaning(settings))
        for target, settings in conditions.items()
        for tuple_id in tuple_ids
    )
    found = [numbers[key] for key in wanted if key in numbers]
    return database.take(pa.array(found, pa.int64()))


def rows_of(
    database: pa.Table, target: str, conditions_id: str | None = None
) -> list[dict[str, Any]]:
    """The rows of a target for its noise; in a merged database, under these conditions."""
    wanted = pc.equal(database["target"], target)
    if conditions_id is not None:
        wanted = pc.and_(wanted, pc.equal(database["conditions_id"], conditions_id))
    rows: list[dict[str, Any]] = database.select(COLUMNS).filter(wanted).to_pylist()
    return rows
