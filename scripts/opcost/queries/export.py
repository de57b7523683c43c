"""Export a database as CSV, SQLite or DuckDB.

CSV and SQLite have no lists: raw values and flags become JSON text. SQLite and DuckDB files have
two tables: `operators` with the rows, and `column_descriptions` with the meanings of the columns.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from opcost.databases.database import number_of_rows, stream_database
from opcost.errors import SPACE, OpcostError
from opcost.files import check_output, replacing
from opcost.rows import schemas
from opcost.rows.comma_separated import write_csv
from opcost.rows.nested import flat, plain_rows

_DESCRIBED = "CREATE TABLE column_descriptions (column_name TEXT, type TEXT, description TEXT)"


def export(database: Path, output: Path) -> int:
    """Write a database, merged or not, in the format of `output`'s suffix; return the row count.

    FORMATS lists the suffixes. The file is written atomically, and replaces an existing file; the
    database is read in batches. Raises OpcostError for other suffixes, and for a file that is not a
    database.
    """
    write = FORMATS.get(output.suffix)
    if write is None:
        raise OpcostError(
            f"{output} has suffix {output.suffix or 'none'!r}, which selects the format: use one "
            f"of {', '.join(FORMATS)}, or .json for a trace of a model"
        )
    schema, batches = stream_database(database)
    check_output(output, [database])
    with replacing(output) as temporary:
        write(temporary, schema, batches)
    return number_of_rows(database)


@contextmanager
def _reported(kind: type[Exception], path: Path) -> Iterator[None]:
    """Report errors of a database's library, usually caused by a full disk."""
    try:
        yield
    except kind as error:
        raise OpcostError(f"{path.parent}: {error}: {SPACE}") from error


def _write_sqlite(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    columns = ", ".join(f'"{field.name}" {_sqlite_type(field.type)}' for field in schema)
    with _reported(sqlite3.Error, path), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute(f"CREATE TABLE operators ({columns})")
        marks = ", ".join("?" * len(schema))
        for batch in batches:
            rows = (tuple(row.values()) for row in plain_rows(flat(batch)))
            connection.executemany(f"INSERT INTO operators VALUES ({marks})", rows)
        connection.execute(_DESCRIBED)
        connection.executemany(
            "INSERT INTO column_descriptions VALUES (?, ?, ?)", _meanings(schema)
        )
        connection.execute("CREATE INDEX operators_by_tuple ON operators (tuple_id, target)")
        connection.commit()


def _write_duckdb(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with _reported(duckdb.Error, path), duckdb.connect(str(path)) as connection:
        connection.register("rows", pa.RecordBatchReader.from_batches(schema, batches))
        connection.execute("CREATE TABLE operators AS FROM rows")
        connection.execute(_DESCRIBED)
        connection.executemany(
            "INSERT INTO column_descriptions VALUES (?, ?, ?)", _meanings(schema)
        )


FORMATS: Mapping[str, Callable[[Path, pa.Schema, Iterable[pa.RecordBatch]], None]] = {
    ".csv": write_csv,
    ".sqlite": _write_sqlite,
    ".db": _write_sqlite,
    ".duckdb": _write_duckdb,
}
"""Suffix -> writer; `.db` is SQLite."""


def _sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return "REAL"
    return "INTEGER" if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else "TEXT"


def _meanings(schema: pa.Schema) -> list[tuple[str, str, str]]:
    meanings = schemas.DESCRIPTIONS[schema.metadata[b"opcost.record"].decode()]
    return [(field.name, str(field.type), meanings[field.name]) for field in schema]
