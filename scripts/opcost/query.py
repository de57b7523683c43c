"""Choosing rows of databases by what their operators are, and by how they were measured.

What an operator is, is asked of the tuple itself (`operator_tuple`), never of its text. Only the
columns that are asked for are read.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost import schemas
from opcost.database import read_database
from opcost.errors import OpcostError, closest
from opcost.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, short_name

DEFAULT_COLUMNS = (
    "tuple_id",
    "operator",
    "description",
    "target",
    "status",
    *("time_s", "time_ci_low_s", "time_ci_high_s"),
    *("energy_j", "energy_ci_low_j", "energy_ci_high_j"),
    "flops",
    "bytes",
    "flags",
)
"""What a query gives where nothing else is asked for."""

ALIASES = {
    "time": "time_s",
    "energy": "energy_j",
    "power": "power_w",
    "clock": "sm_clock_mhz",
}
"""Short names of columns."""

_COLUMNS = (*schemas.MERGED.names, "database")
_MATCHED = ("tuple_id", "operator", "canonical_json", "description", "target", "status", "flags")


@dataclass(frozen=True)
class Filter:
    """Which rows are wanted. Of each field, one of the given values must fit; none given: all do.

    operators: `conv2d`, `aten.conv2d.default`, or with wildcards, `*norm*`.
    shapes: of any tensor argument, lists of tensors included: `1x64x56x56`, with `*` for any size
    of one dimension: `*x64x56x56`; `scalar` for a tensor without dimensions.
    dtypes: of any tensor argument: `float32`.
    targets, statuses, tuple_ids: as in the columns; a tuple id may be shortened.
    flags: the row has one of them. unflagged: it has none at all.
    text: a part of the description, in capitals or not.
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


def query(
    databases: Sequence[Path],
    wanted: Filter | None = None,
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    sort: str | None = None,
    ascending: bool = False,
    limit: int | None = None,
) -> pa.Table:
    """The rows of databases, merged or not, that a filter wants, as a pyarrow Table.

    `columns` are those of the database (schemas.DATABASE, of merged ones schemas.MERGED), short
    names (ALIASES), and `database`, the file that a row is from. `sort` is one of them: largest
    first unless `ascending`, null always last; without it rows keep their order. `.to_pandas()`
    makes a data frame of the result. Raises OpcostError for an operator, target, column, dtype or
    shape that does not exist, and for what is no database.

        query([Path("results/database.parquet")], Filter(operators=["conv2d"]), sort="time")
    """
    wanted = wanted or Filter()
    chosen = [column_named(name) for name in columns]
    order = column_named(sort) if sort else None
    needed = dict.fromkeys([*_MATCHED, *chosen, *([order] if order else [])])
    table = _read(databases, list(needed))
    table = table.filter(pa.array(_matching(table, wanted), pa.bool_()))
    if order is not None:
        table = table.take(_order(table[order], ascending))
    return table.slice(0, limit).select(list(dict.fromkeys(chosen)))


def column_named(name: str) -> str:
    """The column that a name or a short name means. Raises OpcostError, with the closest names."""
    column = ALIASES.get(name, name)
    if column not in _COLUMNS:
        raise OpcostError(
            f"there is no column {name!r}. {closest(name, [*_COLUMNS, *ALIASES])}".rstrip()
        )
    return column


def values_of(databases: Sequence[Path], column: str) -> list[str]:
    """The different texts in a column of databases, sorted."""
    values = _read(databases, [column])[column]
    return sorted(value for value in pc.unique(values).to_pylist() if value is not None)


def _read(databases: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    tables = []
    for path in databases:
        table = read_database(path, [name for name in columns if name != "database"])
        names = pa.array([str(path)] * len(table), pa.string())
        for name in columns:  # of a database that is not merged
            if name not in table.column_names and name != "database":
                kind = schemas.MERGED.field(name).type
                table = table.append_column(name, pa.nulls(len(table), kind))
        tables.append(table.append_column("database", names).replace_schema_metadata(None))
    return pa.concat_tables(tables, promote_options="default").select([*columns])


def _matching(table: pa.Table, wanted: Filter) -> list[bool]:
    """For each row, whether it is wanted."""
    tests = list(_tests(table, wanted))
    rows = table.select(_MATCHED).to_pylist()
    return [all(test(row) for test in tests) for row in rows]


def _tests(table: pa.Table, wanted: Filter) -> Iterable[Callable[[Mapping[str, Any]], bool]]:
    if wanted.targets:
        _check("target", wanted.targets, set(table["target"].to_pylist()))
        yield lambda row: row["target"] in wanted.targets
    if wanted.statuses:
        yield lambda row: row["status"] in wanted.statuses
    if wanted.operators:
        operators = _operators(wanted.operators, set(table["operator"].to_pylist()))
        yield lambda row: row["operator"] in operators
    if wanted.tuple_ids:
        yield lambda row: row["tuple_id"].startswith(tuple(wanted.tuple_ids))
    if wanted.text is not None:
        text = wanted.text.lower()
        yield lambda row: text in row["description"].lower()
    if wanted.unflagged:
        yield lambda row: not row["flags"]
    if wanted.flags:
        flags = set(wanted.flags)
        yield lambda row: bool(flags & set(row["flags"] or ()))
    if wanted.shapes or wanted.dtypes:
        fits = _tensor_test(wanted)
        known: dict[str, bool] = {}
        yield lambda row: _remembered(known, row["canonical_json"], fits)


def _remembered(known: dict[str, bool], text: str, fits: Callable[[str], bool]) -> bool:
    if text not in known:
        known[text] = fits(text)
    return known[text]


def _operators(names: Sequence[str], found: set[str]) -> set[str]:
    """The full names that names, short names and wildcards mean."""
    result = set()
    for name in names:
        matches = {
            full
            for full in found
            if any(fnmatch.fnmatchcase(each, name) for each in _names_of(full))
        }
        if not matches:
            _check("operator", [name], {short_name(full) for full in found})
        result |= matches
    return result


def _names_of(operator: str) -> tuple[str, str, str]:
    return operator, operator.rpartition(".")[0], short_name(operator)


def _tensor_test(wanted: Filter) -> Callable[[str], bool]:
    """Whether one tensor of a tuple has one of the shapes, and one has one of the dtypes."""
    _check("dtype", wanted.dtypes, set(ELEMENT_BYTES))
    shapes = [_shape_pattern(shape) for shape in wanted.shapes]

    def fits(canonical_json: str) -> bool:
        tensors = [spec for _, spec in OperatorTuple.from_json(canonical_json).tensors]
        of_shape = not shapes or any(_has(spec, shape) for spec in tensors for shape in shapes)
        return of_shape and (
            not wanted.dtypes or any(spec.dtype in wanted.dtypes for spec in tensors)
        )

    return fits


def _shape_pattern(text: str) -> list[int | None]:
    """Sizes; None is any."""
    if text == "scalar":
        return []
    if not re.fullmatch(r"(\d+|\*)(x(\d+|\*))*", text):
        raise OpcostError(
            f"{text!r} is not a shape: sizes with x between them, * for any size of a dimension "
            "(1x64x*x*), or scalar"
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


def _order(column: pa.ChunkedArray, ascending: bool) -> pa.Array:
    direction = "ascending" if ascending else "descending"
    if pa.types.is_nested(column.type):
        raise OpcostError("rows cannot be sorted by a column of lists: name another one")
    return pc.array_sort_indices(column.combine_chunks(), order=direction, null_placement="at_end")
