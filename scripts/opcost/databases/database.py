"""Reading databases of operator measurements, and selecting rows of a study or a target."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost.databases import collection
from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.results_folder import DATABASE
from opcost.rows import records, schemas
from opcost.rows.comparability import meaning
from opcost.rows.quantities import MEASURED
from opcost.rows.runs import COLUMNS

REFERENCE = Path(__file__).parents[1] / "reference"
"""Databases that come with opcost; in a clone, a link to data/reference/ (see its README)."""

_REMEDY = "name a database that opcost made; {path} is another file"


def read_database(
    path: Path,
    columns: Sequence[str] | None = None,
    row_bytes: int = 2_000,
    conditions_id: str | None = None,
) -> pa.Table:
    """The rows of a database, merged or not, or some of their columns; only those of a
    conditions_id if one is given, and among the columns.

    Only merged databases have `conditions_id` and `sources`. Raises OpcostError for a file that is
    not a database or was written by a newer opcost, and if rows of `row_bytes` exceed free memory.
    """
    schema, free = schema_of(path), free_bytes()
    chosen = [name for name in columns or schema.names if name in schema.names]
    is_folder = collection.is_collection(path)
    files = collection.parts(path, conditions_id) if is_folder else [path]
    rows = sum(map(records.number_of_rows, files))
    if rows * row_bytes > free:
        raise OpcostError(
            f"{path} has {rows:,} rows, which would take about {gib(rows * row_bytes)} of memory, "
            f"and {gib(free)} are free: close other programs, or use a machine or a job with more "
            "memory, or merge it into a folder (opcost merge FILE --output FOLDER), of which "
            "query, sql, explain and export read only what they need"
        )
    if not is_folder:
        table = records.read_all([path], schema, chosen, _REMEDY)
        if conditions_id is None:
            return table
        is_merged = "conditions_id" in chosen
        return (
            table.filter(pc.equal(table["conditions_id"], conditions_id))
            if is_merged
            else table[:0]
        )
    tables = [collection.read_part(part, chosen) for part in files]
    empty = schema.empty_table().select(chosen).replace_schema_metadata(None)
    return pa.concat_tables([empty, *tables])


def stream_database(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a database, merged or not, and its rows in batches.

    Raises OpcostError like `read_database`; for damaged rows, when it reaches them.
    """
    schema = schema_of(path)
    if collection.is_collection(path):
        tables = (collection.read_part(part, schema.names) for part in collection.parts(path))
        return schema, chain.from_iterable(table.to_batches() for table in tables)
    return schema, records.stream(path, schema, remedy=_REMEDY)


def number_of_rows(path: Path) -> int:
    """As the files of a database, merged or not, state it."""
    files = collection.parts(path) if path.is_dir() else [path]
    return sum(map(records.number_of_rows, files))


def schema_of(path: Path) -> pa.Schema:
    """The schema of a database, merged or not. Raises OpcostError if there is none."""
    if path.is_dir() and not collection.is_collection(path):
        held = ", ".join(each.name for each in sorted(path.glob("*.parquet"))[:6])
        raise OpcostError(
            f"{path} is a folder: name a database in it{f', one of {held}' if held else ''}"
        )
    if not path.exists():
        raise OpcostError(
            f"there is no database {path}: run a study (snakemake --cores 1), or name another, "
            "such as the reference data: h100, h200 or xeon"
        )
    merged = collection.metadata_of(path).get("opcost.record") == "merged"
    return schemas.MERGED if merged else schemas.DATABASE


def default_databases() -> list[Path]:
    """The database of the study in the current folder, unless it has no row, then those that come
    with opcost.
    """
    own = [path for path in [DATABASE] if path.is_file()]
    if own and records.metadata(DATABASE) and not records.number_of_rows(DATABASE):
        own = []
    return own + sorted(REFERENCE.glob("*.parquet"))


def own_database() -> list[Path]:
    """The database of the study in the current folder, or if there is none, the reference data."""
    return default_databases()[: 1 if DATABASE.is_file() else None]


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
    """The rows of a target for its noise, in a merged database under these conditions: the first
    one, which shows the kind of device, and all with several runs.
    """
    wanted = pc.equal(database["target"], target)
    if conditions_id is not None:
        wanted = pc.and_(wanted, pc.equal(database["conditions_id"], conditions_id))
    rows = database.select(COLUMNS).filter(wanted)
    several = [pc.greater(pc.list_value_length(rows[each.runs]), 1) for each in MEASURED]
    chosen = reduce(pc.or_, [pc.fill_null(each, False) for each in several])
    repeated: list[dict[str, Any]] = rows[1:].filter(chosen[1:]).to_pylist()
    return rows[:1].to_pylist() + repeated
