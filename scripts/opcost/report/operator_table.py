"""Section: what does each operator cost? The rows of the searchable table."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from opcost.report.results import Results


@dataclass(frozen=True)
class Column:
    """A column of the table: a number is `value` x `scale`; of a few words, one can be chosen."""

    title: str
    value: str
    kind: str = "number"
    scale: float = 1.0
    digits: int = 4


_COLUMNS = (
    Column("operator", "name", "choice"),
    Column("target", "target", "choice"),
    Column("operator tuple", "description", "text"),
    Column("time (µs)", "time_s", scale=1e6),
    Column("± (%)", "time_half_width", scale=100, digits=2),
    Column("GFLOP/s", "flops_per_s", scale=1e-9),
    Column("GB/s", "bytes_per_s", scale=1e-9),
    Column("power (W)", "power_w"),
    Column("energy (mJ)", "energy_j", scale=1e3),
    Column("flags", "flags", "choice"),
    Column("status", "status", "choice"),
)
_ONLY_WITH_ENERGY = ("power_w", "energy_j")


def operator_table(results: Results) -> dict[str, Any]:
    """`columns` (title and kind), `order` (the column of time), and `rows` in the database's order.

    Numbers are rounded; what was not measured is null. Without any energy there are no
    columns for it.
    """
    frame = results.operators
    energy = bool(frame["energy_j"].notna().any())
    columns = [column for column in _COLUMNS if energy or column.value not in _ONLY_WITH_ENERGY]
    values = [_values(frame[column.value], column) for column in columns]
    return {
        "columns": [{"title": column.title, "kind": column.kind} for column in columns],
        "order": [column.value for column in columns].index("time_s"),
        "rows": [list(row) for row in zip(*values, strict=True)],
    }


def _values(series: pd.Series, column: Column) -> list[Any]:
    if column.value == "flags":
        return [", ".join(flags) if flags is not None else "" for flags in series]
    if column.kind != "number":
        return series.tolist()
    return [significant(value * column.scale, column.digits) for value in series.tolist()]


def significant(value: float, digits: int) -> float | None:
    """The number to so many significant digits; None for NaN."""
    return None if value != value else float(f"{value:.{digits}g}")
