"""Select rows and columns of databases. Reads only the required columns."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from opcost.databases.database import read_database
from opcost.errors import OpcostError, closest
from opcost.queries.row_filter import FILTERED, Filter, matching
from opcost.rows import schemas
from opcost.rows.quantities import ENERGY, POWER, TIME

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
    needed = dict.fromkeys([*FILTERED, *chosen, *([order] if order else [])])
    table = _read(databases, list(needed))
    table = table.filter(matching(table, wanted))
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
