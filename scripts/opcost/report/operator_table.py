"""Section: what does each operator cost? The rows of the searchable table."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from opcost.report.results import Results
from opcost.report.uses import uses


@dataclass(frozen=True)
class Column:
    """A column of the table: a number is `value` x `scale`; of a few words, one can be chosen.

    A column of kind `use` is of the model that calls the operator, or of the one chosen.
    """

    title: str
    value: str
    kind: str = "number"
    scale: float = 1.0
    digits: int = 4


_COLUMNS = (
    Column("operator", "name", "choice"),
    Column("target", "target", "choice"),
    Column("operator tuple", "description", "text"),
    Column("of the model (%)", "share", "use"),
    Column("calls x time (µs)", "total", "use"),
    Column("calls", "calls", "use"),
    Column("model", "model", "use"),
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
_SHARE_DIGITS = 3


def operator_table(results: Results) -> dict[str, Any]:
    """`columns`, `models`, and `rows` in the database's order, each followed by its uses.

    Numbers are rounded; what was not measured is null. A use is the number of a model, calls, and
    their share of the model's time in per cent. Columns that would be the same in all rows, or
    empty, are left out.
    """
    frame = results.operators
    columns = [column for column in _COLUMNS if _tells(results, column)]
    values = [_values(frame[each.value], each) for each in columns if each.kind != "use"]
    models = {row["model"]: number for number, row in enumerate(results.models)}
    found = uses(results)
    used = [
        [
            [models[use.model], use.calls, _percent(use.share)]
            for use in found.get(key, ())
            if use.model in models
        ]
        for key in zip(frame["target"], frame["tuple_id"], strict=True)
    ]
    return {
        "columns": [
            {"title": each.title, "kind": each.kind, "value": each.value} for each in columns
        ],
        "models": list(models),
        "rows": [list(row) for row in zip(*values, used, strict=True)],
    }


def _tells(results: Results, column: Column) -> bool:
    frame = results.operators
    if column.value in _ONLY_WITH_ENERGY:
        return bool(frame["energy_j"].notna().any())
    if column.value == "target":
        return len(results.targets) > 1
    if column.value == "status":
        return bool((frame["status"] != "ok").any())
    return True


def _percent(share: float | None) -> float | None:
    return None if share is None else significant(100 * share, _SHARE_DIGITS)


def _values(series: pd.Series, column: Column) -> list[Any]:
    if column.value == "flags":
        return [", ".join(flags) if flags is not None else "" for flags in series]
    if column.kind != "number":
        return series.tolist()
    return [significant(value * column.scale, column.digits) for value in series.tolist()]


def significant(value: float, digits: int) -> float | None:
    """The number to so many significant digits; None for NaN."""
    return None if value != value else float(f"{value:.{digits}g}")
