"""Databases as tables of DuckDB."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from opcost.databases import collection
from opcost.databases.database import read_database
from opcost.results_folder import DATABASE
from opcost.rows import schemas


def connect(databases: Sequence[Path], columns: Sequence[str] | None = None) -> DuckDBPyConnection:
    """A connection with the view `operators`: all rows of databases, merged or not, or some columns
    of them, and in `database` the path of each row's. Beside the database of a study, its other
    tables are views of the names of their files.

    Files are read and checked here; merged folders are scanned by each query, without raw values
    unless `columns` names some. Raises OpcostError like `read_database`.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    connection.register("no_rows", schemas.MERGED.empty_table())
    parts = ["SELECT *, NULL::VARCHAR AS database FROM no_rows"]
    for number, path in enumerate(databases):
        if collection.is_collection(path):
            rows = _scanned(path, not {*(columns or ())}.isdisjoint(schemas.RAW_BLOCKS))
        else:
            rows = f"rows_{number}"
            connection.register(rows, read_database(path, columns))
        parts.append(f"SELECT *, {_quoted(path)} AS database FROM {rows}")
        if path.name == DATABASE.name and columns is None and len(databases) == 1:
            for each in sorted(path.parent.glob("*.parquet")):
                view = f'CREATE VIEW "{each.stem}" AS FROM read_parquet({_quoted(each)})'
                connection.execute(view)
    connection.execute(f"CREATE VIEW operators AS {' UNION ALL BY NAME '.join(parts)}")
    return connection


def _scanned(folder: Path, with_raw: bool) -> str:
    """A merged folder as a table of SQL."""
    rows = collection.parts(folder)
    if not rows:
        return "no_rows"
    table = f"read_parquet([{', '.join(map(_quoted, rows))}])"
    if not with_raw:
        return table
    raw = f"read_parquet([{', '.join(map(_quoted, map(collection.raw_of, rows)))}])"
    return f"{table} AS rows LEFT JOIN {raw} AS raw USING (conditions_id, tuple_id)"


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
