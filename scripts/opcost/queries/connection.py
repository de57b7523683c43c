"""Databases as tables of DuckDB."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from opcost.databases import collection
from opcost.databases.database import read_database, schema_of
from opcost.errors import OpcostError
from opcost.results_folder import DATABASE
from opcost.rows import schemas

_READING = ("StatementType.SELECT", "StatementType.MULTI")
"""SELECT, FROM, DESCRIBE and others; and PIVOT."""

_PLAIN = re.compile(
    r"(U?(TINY|SMALL|BIG)?INT(EGER)?|DOUBLE|FLOAT|BOOLEAN|VARCHAR|TIMESTAMP WITH TIME ZONE)(\[\])?"
)
_INTERNAL = re.compile(r'\s*Did you mean "(no_rows|rows_\d+)"\?')
_EXACT = re.compile(r"DECIMAL\(.*\)|U?HUGEINT")


@contextmanager
def connect(databases: Sequence[Path], columns: Sequence[str]) -> Iterator[DuckDBPyConnection]:
    """A connection with the view `operators`: columns of all rows of databases, merged or not, and
    in `database` the path of each row's.

    Files are read and checked here, merged folders by each query. Raises OpcostError like
    `read_database`, and for errors of DuckDB.
    """
    try:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET python_enable_replacements = false")
            _create_view(connection, databases, columns)
            yield connection
    except duckdb.Error as error:
        names = ", ".join(map(str, databases))
        raise OpcostError(f"{names} cannot be read ({error}): {collection.REMEDY}") from error


def _create_view(
    connection: DuckDBPyConnection, databases: Sequence[Path], columns: Sequence[str]
) -> None:
    connection.register("no_rows", schemas.MERGED.empty_table().select(columns))
    parts = ["SELECT *, NULL::VARCHAR AS database FROM no_rows"]
    with_raw = not {*columns}.isdisjoint(schemas.RAW_BLOCKS)
    for number, path in enumerate(databases):
        names = [name for name in columns if name in schema_of(path).names]
        if collection.is_collection(path):
            rows = _scanned(path, with_raw)
        else:
            rows = f"rows_{number}"
            connection.register(rows, read_database(path, columns))
        parts.append(f"SELECT {', '.join(names)}, {_quoted(path)} AS database FROM {rows}")
    connection.execute(f"CREATE VIEW operators AS {' UNION ALL BY NAME '.join(parts)}")


@contextmanager
def answer(statement: str, databases: Sequence[Path]) -> Iterator[duckdb.DuckDBPyRelation]:
    """The result of a SELECT from `operators`, as from `connect`; with raw values if the statement
    names some. Beside the database of a study, its other tables are views named as their files.

    Raises OpcostError for other statements, for errors of SQL, and like `read_database`.
    """
    hidden = [name for name in schemas.RAW_BLOCKS if name not in statement]
    columns = [name for name in schemas.MERGED.names if name not in hidden]
    with connect(databases, columns) as connection:
        beside = _beside(databases)
        for path in beside:
            connection.execute(f'CREATE VIEW "{path.stem}" AS FROM {_files([path])}')
        try:
            kinds = [str(each.type) for each in connection.extract_statements(statement)]
            if len(kinds) != 1 or kinds[0] not in _READING:
                raise OpcostError(f"write one SELECT of SQL, not {statement!r}")
            yield connection.sql(statement)
        except duckdb.Error as error:
            tables = ", ".join(["operators", *(path.stem for path in beside)])
            text = _INTERNAL.sub("", str(error))
            raise OpcostError(f"SQL: {text}\nTables: {tables}") from error


def plain(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """The rows, with numbers, truth values and lists of them as they are, dates and all else as
    text, and null for what is no finite number. Raises OpcostError for two columns of one name.
    """
    if len({*relation.columns}) < len(relation.columns):
        raise OpcostError("two columns have one name: name them apart, SELECT ... AS NAME")
    types = zip(relation.columns, map(str, relation.types), strict=True)
    columns = ", ".join(_as_plain(name.replace('"', '""'), kind) for name, kind in types)
    return relation.project(columns).to_arrow_table()


def _as_plain(name: str, kind: str) -> str:
    value = f'"{name}"'
    if not _PLAIN.fullmatch(kind):
        value += "::DOUBLE" if _EXACT.fullmatch(kind) else "::VARCHAR"
    if value.endswith("DOUBLE") or kind in ("DOUBLE", "FLOAT"):
        value = f"CASE WHEN isfinite({value}) THEN {value} END"
    return f'{value} AS "{name}"'


def _beside(databases: Sequence[Path]) -> list[Path]:
    """The other tables of a study, if that is the only database."""
    is_study = len(databases) == 1 and databases[0].name == DATABASE.name
    return sorted(databases[0].parent.glob("*.parquet")) if is_study else []


def _scanned(folder: Path, with_raw: bool) -> str:
    """A merged folder as a table of SQL."""
    rows = collection.parts(folder)
    if not rows:
        return "no_rows"
    if not with_raw:
        return _files(rows)
    raw = _files(map(collection.raw_of, rows))
    return f"{_files(rows)} AS rows LEFT JOIN {raw} AS raw USING (conditions_id, tuple_id)"


def _files(paths: Iterable[Path]) -> str:
    """Files as a table of SQL, without what their names would mean to DuckDB."""
    names = ", ".join(re.sub(r"([*?[])", r"[\1]", _quoted(path)) for path in paths)
    return f"read_parquet([{names}], hive_partitioning = false)"


def _quoted(path: Path) -> str:
    """A path as a text of SQL."""
    return "'" + str(path).replace("'", "''") + "'"
