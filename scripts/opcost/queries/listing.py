"""Rows of a database as people and programs read them: a table, lines of JSON, CSV."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from opcost.rows.comma_separated import csv_parts
from opcost.rows.nested import as_json, plain_rows
from opcost.text import joules, seconds, shortened, table, with_interval

_INTERVALS = {"time_s": ("time", "s", seconds), "energy_j": ("energy", "j", joules)}
_OVERVIEW = ("tuple_id", "description", "target", "time_s", "energy_j", "status", "flags")


def overview(rows: pa.Table) -> list[str]:
    """What most people want to know of rows, as an aligned table.

    `rows` has query.DEFAULT_COLUMNS, and `database` if that is of interest. Energy, status and
    flags are left out where they say nothing, and long descriptions are cut.
    """
    data = rows.to_pylist()
    silent = {
        "energy_j": all(row["energy_j"] is None for row in data),
        "status": all(row["status"] == "ok" for row in data),
        "flags": not any(row["flags"] for row in data),
    }
    columns = [name for name in _OVERVIEW if not silent.get(name)]
    if "database" in rows.column_names:
        columns.append("database")
    short = [row | {"description": shortened(row["description"])} for row in data]
    return _aligned(columns, short)


def aligned(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    """Columns of rows as an aligned table: time and energy with intervals if these are there."""
    return _aligned(columns, rows.to_pylist())


def with_limits(columns: Sequence[str]) -> list[str]:
    """The columns, and those of the intervals that `aligned` shows with them."""
    limits = [
        f"{name}_ci_{limit}_{unit}"
        for column in columns
        if column in _INTERVALS
        for name, unit, _ in [_INTERVALS[column]]
        for limit in ("low", "high")
    ]
    return list(dict.fromkeys([*columns, *limits]))


def json_lines(rows: pa.Table) -> Iterator[str]:
    """Each row as a line of JSON: lists are lists, and what is not known is null."""
    for batch in rows.to_batches():
        yield from map(as_json, plain_rows(batch))


def csv_text(rows: pa.Table) -> str:
    """The rows as CSV with a header; lists are JSON text, and what is not known is empty."""
    return b"".join(csv_parts(rows.column_names, rows.to_batches())).decode()


def _aligned(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    header = [_INTERVALS[name][0] if name in _INTERVALS else name for name in columns]
    cells = [[_cell(row, name) for name in columns] for row in rows]
    texts = next((place for place, name in enumerate(columns) if name in _INTERVALS), 1)
    return table(header, cells, left=max(texts, 1))


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return "-"
    if name in _INTERVALS and f"{_INTERVALS[name][0]}_ci_low_{_INTERVALS[name][1]}" in row:
        return with_interval(row, *_INTERVALS[name])
    if isinstance(value, float):
        if name.endswith("_s"):
            return seconds(value)
        return joules(value) if name.endswith("_j") else f"{value:.4g}"
    return as_json(value) if isinstance(value, dict) else _text(value)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
