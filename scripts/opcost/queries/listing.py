"""Format rows of a database as a table, lines of JSON, or CSV."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost.costs.caveats import INTERVAL
from opcost.rows.comma_separated import csv_parts
from opcost.rows.nested import as_json, plain_rows
from opcost.rows.quantities import ENERGY, MEASURED, POWER, TIME, Quantity
from opcost.text import joules, seconds, shortened, table, wrapped

_QUANTITIES = {quantity.value: quantity for quantity in (TIME, POWER, ENERGY)}
TELL_APART = ("device_name", "conditions_id")
"""Columns that an overview shows if they differ: equally named targets may be on two machines."""

_SHOWN = 3
"""The number of list elements shown."""

_OVERVIEW = ("tuple_id", "description", "target", *TELL_APART, *_QUANTITIES, "status", "flags")


def overview(rows: pa.Table) -> list[str]:
    """The main columns of rows, as an aligned table.

    `rows` has query.DEFAULT_COLUMNS and TELL_APART, and optionally `database`. Power, energy,
    status, flags and those of TELL_APART are omitted if they contain no information, and long
    descriptions are shortened.
    """
    measured = (POWER.value, ENERGY.value)
    silent = {name for name in measured if rows[name].null_count == len(rows)}
    silent |= {name for name in TELL_APART if len(pc.unique(rows[name])) < 2}
    if pc.unique(rows["status"]).to_pylist() == ["ok"]:
        silent.add("status")
    if not pc.sum(pc.list_value_length(rows["flags"])).as_py():
        silent.add("flags")
    columns = [name for name in _OVERVIEW if name not in silent]
    if "database" in rows.column_names:
        columns.append("database")
    descriptions = rows["description"].to_pylist()
    short = pa.array([text and shortened(text) for text in descriptions], pa.string())
    index = rows.column_names.index("description")
    return aligned(rows.set_column(index, "description", short), columns)


def aligned(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    """Columns of rows as an aligned table; time, power and energy with intervals, if present."""
    header = [_QUANTITIES[name].name if name in _QUANTITIES else name for name in columns]
    cells = [_texts(rows, name) for name in columns]
    texts = next((index for index, name in enumerate(columns) if name in _QUANTITIES), 1)
    return table(header, list(zip(*cells, strict=True)), left=max(texts, 1))


def notes(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    """The meaning of the intervals that `aligned` shows."""
    limits = [quantity.low for name, quantity in _QUANTITIES.items() if name in columns]
    known = any(rows[name].null_count < len(rows) for name in limits)
    return wrapped([f"{INTERVAL}, from the row's own runs."]) if known else []


def with_limits(columns: Sequence[str]) -> list[str]:
    """The columns, with the interval columns that `aligned` shows."""
    shown = [_shown_with(_QUANTITIES[name]) for name in columns if name in _QUANTITIES]
    return list(dict.fromkeys([*columns, *itertools.chain(*shown)]))


def _shown_with(quantity: Quantity) -> list[str]:
    """The columns that show a quantity: its interval, and the value of each run."""
    return [*quantity.names, *([quantity.runs] if quantity in MEASURED else [])]


def json_lines(rows: pa.Table) -> Iterator[str]:
    """Each row as a line of JSON, with lists as lists and unknown values as null."""
    for batch in rows.to_batches():
        yield from map(as_json, plain_rows(batch))


def csv_text(rows: pa.Table) -> str:
    """The rows as CSV with a header; lists are JSON text, and unknown values are empty."""
    return b"".join(csv_parts(rows.column_names, rows.to_batches())).decode()


def _texts(rows: pa.Table, name: str) -> list[str]:
    """A column as texts; time, power and energy with intervals, if present."""
    column = rows[name]
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        column = pc.binary_join(column, " ")
    values = column.to_pylist()
    if pa.types.is_string(column.type):
        return ["-" if value is None else value for value in values]
    if name in _QUANTITIES and _QUANTITIES[name].low in rows.column_names:
        quantity = _QUANTITIES[name]
        names = [name for name in _shown_with(quantity) if name in rows.column_names]
        return [quantity.shown(row) for row in rows.select(names).to_pylist()]
    return ["-" if value is None else _text(value, name) for value in values]


def _text(value: Any, name: str) -> str:
    if isinstance(value, float):
        if name.endswith("_s"):
            return seconds(value)
        return joules(value) if name.endswith("_j") else f"{value:.4g}"
    if isinstance(value, list):
        shown = " ".join("-" if each is None else _text(each, name) for each in value[:_SHOWN])
        return f"{shown} ... ({len(value)})" if len(value) > _SHOWN else shown
    return str(value)
