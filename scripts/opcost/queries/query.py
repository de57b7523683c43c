"""Select rows and columns of databases. Reads only the required columns.

Shapes and dtypes are those of the parsed tuple (`operator_tuple`), never of its description.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from opcost.errors import OpcostError, closest
from opcost.queries.connection import connect
from opcost.rows import schemas
from opcost.rows.checks import STATUSES
from opcost.rows.flags import FLAGS
from opcost.rows.quantities import ENERGY, POWER, TIME
from opcost.tuples.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, short_name

DEFAULT_COLUMNS = (
    "tuple_id",
    "operator",
    "description",
    "target",
    "status",
    *TIME.names,
    *POWER.names,
    *ENERGY.names,
    "flops",
    "bytes",
    "flags",
)
"""The default columns of a query."""

ALIASES = {
    "time": "time_s",
    "energy": "energy_j",
    "power": "power_w",
    "clock": "sm_clock_mhz",
}
"""Short names of columns."""

_MOST_ROWS = 2**62  # a limit of SQL

_FILTERED = (
    *("tuple_id", "operator", "canonical_json", "description"),
    *("target", "status", "flags"),
)
"""The columns that a filter needs."""


@dataclass(frozen=True)
class Filter:
    """A filter of rows. A row must match one value of every field; an empty field matches all rows.

    operators: `conv2d`, `aten.conv2d.default`, or with wildcards, `*norm*`.
    shapes: of any tensor argument, including lists of tensors: `1x64x56x56`, with `*` for any size
    of a dimension: `*x64x56x56`; `scalar` for a tensor without dimensions.
    dtypes: of any tensor argument: `float32`.
    targets, statuses, tuple_ids: as in the columns; a tuple id may be shortened.
    flags: the row has one of these flags. unflagged: it has no flags.
    text: part of the description, case-insensitive.
    """

    operators: Sequence[str] = ()
    shapes: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    targets: Sequence[str] = ()
    statuses: Sequence[str] = ()
    flags: Sequence[str] = ()
    unflagged: bool = False
    tuple_ids: Sequence[str] = ()
    text: str | None = None


_TYPES = {field.name: field.type for field in schemas.MERGED} | {"database": pa.string()}


def query(
    databases: Sequence[Path],
    wanted: Filter | None = None,
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    sort: str | None = None,
    ascending: bool = False,
    limit: int | None = None,
) -> pa.Table:
    """The rows of databases, merged or not, that match a filter, as a pyarrow Table.

    `columns` are columns of the database (schemas.DATABASE, or schemas.MERGED), short names
    (ALIASES), and `database`, the file of a row. `sort` is one of these: largest first unless
    `ascending`, null always last; without it, rows keep their order. `.to_pandas()` converts the
    result to a data frame. Raises OpcostError for an operator, target, status, flag, column, dtype
    or shape that does not exist, and for a file that is not a database.

        query([Path("results/database.parquet")], Filter(operators=["conv2d"]), sort="time")
    """
    chosen = list(dict.fromkeys(map(column_named, columns)))
    order = column_named(sort) if sort else None
    if order is not None and pa.types.is_nested(_TYPES[order]):
        raise OpcostError("rows cannot be sorted by a column of lists: name another column")
    needed = [*_FILTERED, *chosen, *([order] if order else [])]
    wanted_columns = dict.fromkeys(name for name in needed if name != "database")
    with connect(databases, [*wanted_columns]) as connection:
        tests = dict(_tests(connection, wanted or Filter()))
        text = f"SELECT {', '.join(chosen)} FROM operators"
        if tests:
            text += f" WHERE {' AND '.join(tests)}"
        if order is not None:
            text += f" ORDER BY {order} {'ASC' if ascending else 'DESC'} NULLS LAST"
        if limit is not None:
            text += f" LIMIT {min(limit, _MOST_ROWS)}"
        values = [value for value in tests.values() if value is not None]
        found = connection.sql(text, params=values).to_arrow_table()
    return found.cast(pa.schema([(name, _TYPES[name]) for name in chosen]))


def elsewhere(databases: Sequence[Path], wanted: Filter) -> list[str]:
    """The names of the wanted targets under other conditions that have rows that match."""
    begins = tuple(f"{target}/" for target in wanted.targets)
    names = [name for name in values_of(databases, "target") if name.startswith(begins)]
    if not names:
        return []
    found = query(databases, replace(wanted, targets=names), columns=["target"])
    return sorted({*found["target"].to_pylist()})


def column_named(name: str) -> str:
    """The column with a name or short name. Raises OpcostError with the closest names."""
    column = ALIASES.get(name, name)
    if column not in _TYPES:
        alike = closest(name, [*_TYPES, *ALIASES])
        remedy = alike or "Name one of docs/reference/columns.md, such as time_s"
        raise OpcostError(f"there is no column {name!r}. {remedy}")
    return column


def values_of(databases: Sequence[Path], column: str) -> list[str]:
    """The distinct texts in a column of databases, sorted."""
    with connect(databases, [column]) as connection:
        return sorted(_values(connection, column))


def _tests(connection: DuckDBPyConnection, wanted: Filter) -> Iterator[tuple[str, Any]]:
    """The conditions of a filter as SQL, each with its parameter.

    Raises OpcostError for an operator, target, status, flag, dtype or shape that does not exist.
    """
    if wanted.targets:
        _check("target", wanted.targets, _values(connection, "target"))
        yield "target IN ?", wanted.targets
    if wanted.statuses:
        _check("status", wanted.statuses, {*STATUSES, *_values(connection, "status")})
        yield "status IN ?", wanted.statuses
    if wanted.operators:
        names = _operators(wanted.operators, _values(connection, "operator"))
        yield "operator IN ?", [*names]
    if wanted.tuple_ids:
        begins = "|".join(map(re.escape, wanted.tuple_ids))
        yield "regexp_matches(tuple_id, ?)", f"^({begins})"
    if wanted.text is not None:
        yield "contains(lower(description), lower(?))", wanted.text
    if wanted.shapes or wanted.dtypes:
        test = _tensor_test(connection, wanted)
        yield "canonical_json IN ?", [*filter(test, _values(connection, "canonical_json"))]
    if wanted.unflagged:
        yield "coalesce(len(flags), 0) = 0", None
    if wanted.flags:
        _check("flag", wanted.flags, {*FLAGS, *_values(connection, "unnest(flags)")})
        yield "list_has_any(flags, ?)", wanted.flags


def _values(connection: DuckDBPyConnection, column: str) -> set[str]:
    found = connection.execute(f"SELECT DISTINCT {column} FROM operators").fetchall()
    return {value for (value,) in found if value is not None}


def _operators(names: Sequence[str], found: set[str]) -> set[str]:
    """The full names that match names, short names and wildcards."""
    result = set()
    for name in names:
        matches = {
            full
            for full in found
            if any(
                fnmatch.fnmatchcase(each, name)
                for each in (full, full.rpartition(".")[0], short_name(full))
            )
        }
        if not matches:
            _check("operator", [name], {short_name(full) for full in found})
        result |= matches
    return result


def _tensor_test(connection: DuckDBPyConnection, wanted: Filter) -> Callable[[str], bool]:
    """A test for tuples: one tensor has one of the shapes, and one has one of the dtypes."""
    _check("dtype", wanted.dtypes, set(ELEMENT_BYTES))
    shapes = [_shape_pattern(shape) for shape in wanted.shapes]

    def fits(canonical_json: str) -> bool:
        try:
            tensors = [spec for _, spec in OperatorTuple.from_json(canonical_json).tensors]
        except OpcostError as error:
            where = "SELECT database FROM operators WHERE canonical_json = ?"
            [held, *_] = connection.execute(where, [canonical_json]).fetchone() or [None]
            raise OpcostError(
                f"{held}: {error}, so another program wrote it: name a database that opcost made"
            ) from error
        of_shape = not shapes or any(_has(spec, shape) for spec in tensors for shape in shapes)
        return of_shape and (
            not wanted.dtypes or any(spec.dtype in wanted.dtypes for spec in tensors)
        )

    return fits


def _shape_pattern(text: str) -> list[int | None]:
    """The sizes; None matches any size."""
    if text == "scalar":
        return []
    if not re.fullmatch(r"(\d+|\*)(x(\d+|\*))*", text):
        raise OpcostError(
            f"{text!r} is not a shape: write sizes separated by x, with * for any size of a "
            "dimension (1x64x*x*), or scalar"
        )
    return [None if size == "*" else int(size) for size in text.split("x")]


def _has(spec: TensorSpec, shape: Sequence[int | None]) -> bool:
    return len(spec.shape) == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, spec.shape, strict=True)
    )


def _check(kind: str, names: Iterable[str], allowed: set[str]) -> None:
    for name in names:
        if name not in allowed:
            raise OpcostError(f"there is no {kind} {name!r}. {closest(name, allowed)}".rstrip())
