"""Select rows and columns of databases. Reads only the required columns.

Shapes and dtypes are those of the parsed tuple (`operator_tuple`), never of its description.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from opcost.databases.database import read_database
from opcost.errors import OpcostError, closest
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

_FILTERED = (
    *("tuple_id", "operator", "canonical_json", "description"),
    *("target", "status", "flags", "database"),
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


_COLUMNS = (*schemas.MERGED.names, "database")


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
    wanted = wanted or Filter()
    chosen = [column_named(name) for name in columns]
    order = column_named(sort) if sort else None
    needed = dict.fromkeys([*_FILTERED, *chosen, *([order] if order else [])])
    table = _read(databases, list(needed))
    table = table.filter(_matching(table, wanted))
    if order is not None:
        table = table.take(_order(table[order], ascending))
    return table[:limit].select(list(dict.fromkeys(chosen)))


def elsewhere(databases: Sequence[Path], wanted: Filter) -> list[str]:
    """The names of the wanted targets under other conditions that have rows that match."""
    begins = tuple(f"{target}/" for target in wanted.targets)
    names = [name for name in values_of(databases, "target") if name.startswith(begins)]
    if not names:
        return []
    found = query(databases, replace(wanted, targets=names), columns=["target"])
    return sorted(pc.unique(found["target"]).to_pylist())


def column_named(name: str) -> str:
    """The column with a name or short name. Raises OpcostError with the closest names."""
    column = ALIASES.get(name, name)
    if column not in _COLUMNS:
        alike = closest(name, [*_COLUMNS, *ALIASES])
        remedy = alike or "Name one of docs/reference/columns.md, such as time_s"
        raise OpcostError(f"there is no column {name!r}. {remedy}")
    return column


def values_of(databases: Sequence[Path], column: str) -> list[str]:
    """The distinct texts in a column of databases, sorted."""
    values = _read(databases, [column])[column]
    return sorted(value for value in pc.unique(values).to_pylist() if value is not None)


def _read(databases: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    tables = []
    for path in databases:
        table = read_database(path, [name for name in columns if name != "database"])
        names = pa.array([str(path)] * len(table), pa.string())
        for name in columns:  # missing in a database that is not merged
            if name not in table.column_names and name != "database":
                kind = schemas.MERGED.field(name).type
                table = table.append_column(name, pa.nulls(len(table), kind))
        tables.append(table.append_column("database", names).replace_schema_metadata(None))
    return pa.concat_tables(tables, promote_options="default").select([*columns])


def _order(column: pa.ChunkedArray, ascending: bool) -> pa.Array:
    direction = "ascending" if ascending else "descending"
    if pa.types.is_nested(column.type):
        raise OpcostError("rows cannot be sorted by a column of lists: name another column")
    return pc.array_sort_indices(column.combine_chunks(), order=direction, null_placement="at_end")


def _matching(table: pa.Table, wanted: Filter) -> pa.ChunkedArray:
    """Whether each row matches. The table must have the columns _FILTERED.

    Raises OpcostError for an operator, target, status, flag, dtype or shape that does not exist.
    """
    fits = pa.chunked_array([pa.repeat(True, len(table))])
    for each in _tests(table, wanted):
        fits = pc.and_(fits, pc.fill_null(each, False))
    return fits


def _tests(table: pa.Table, wanted: Filter) -> Iterator[pa.Array]:
    """Whether each row passes, for each field of the filter."""
    if wanted.targets:
        _check("target", wanted.targets, _values(table["target"]))
        yield _is_one_of(table["target"], wanted.targets)
    if wanted.statuses:
        _check("status", wanted.statuses, {*STATUSES, *_values(table["status"])})
        yield _is_one_of(table["status"], wanted.statuses)
    if wanted.operators:
        names = _operators(wanted.operators, _values(table["operator"]))
        yield _is_one_of(table["operator"], names)
    if wanted.tuple_ids:
        begins = "|".join(map(re.escape, wanted.tuple_ids))
        yield pc.match_substring_regex(table["tuple_id"], f"^({begins})")
    if wanted.text is not None:
        yield pc.match_substring(table["description"], wanted.text, ignore_case=True)
    if wanted.shapes or wanted.dtypes:
        test = _tensor_test(table, wanted)
        found = filter(test, _values(table["canonical_json"]))
        yield _is_one_of(table["canonical_json"], found)
    if wanted.unflagged:
        yield pc.equal(pc.fill_null(pc.list_value_length(table["flags"]), 0), 0)
    if wanted.flags:
        flags = pc.list_flatten(table["flags"])
        _check("flag", wanted.flags, {*FLAGS, *_values(flags)})
        rows = pc.list_parent_indices(table["flags"]).filter(_is_one_of(flags, wanted.flags))
        yield pc.is_in(pa.array(range(len(table)), pa.int64()), rows.combine_chunks())


def _is_one_of(texts: pa.ChunkedArray, wanted: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(texts, pa.array(wanted, pa.string()))


def _values(column: pa.ChunkedArray) -> set[str]:
    return set(pc.unique(column).drop_null().to_pylist())


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


def _tensor_test(table: pa.Table, wanted: Filter) -> Callable[[str], bool]:
    """A test for tuples: one tensor has one of the shapes, and one has one of the dtypes."""
    _check("dtype", wanted.dtypes, set(ELEMENT_BYTES))
    shapes = [_shape_pattern(shape) for shape in wanted.shapes]

    def fits(canonical_json: str) -> bool:
        try:
            tensors = [spec for _, spec in OperatorTuple.from_json(canonical_json).tensors]
        except OpcostError as error:
            held = table.filter(pc.equal(table["canonical_json"], canonical_json))["database"][0]
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
