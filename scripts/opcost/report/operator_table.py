"""Section: what does each operator cost? The rows of the searchable table."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from opcost.costs.breakdown import breakdown, total_of
from opcost.report.results import Results


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
    Column("operator and shapes", "description", "text"),
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


class Use(NamedTuple):
    """The calls of an operator in a model. `share` is of the model's time; None if unknown."""

    model: str
    calls: int
    share: float | None


def uses(results: Results) -> Mapping[tuple[str, str], list[Use]]:
    """(target, tuple id) -> the models that call it, the one of which it takes most first."""
    frame = results.operators
    time_s: dict[tuple[str, str], Any] = dict(
        zip(zip(frame["target"], frame["tuple_id"], strict=True), frame["time_s"], strict=True)
    )
    found: dict[tuple[str, str], list[Use]] = defaultdict(list)
    for row in results.comparison:
        total_s: Any = total_of(breakdown(row, results.shares_of(row)))
        calls: dict[str, int] = defaultdict(int)
        for module in results.modules_of(row):
            ids, counts = module["tuple_ids"] or (), module["tuple_calls"] or ()
            for tuple_id, count in zip(ids, counts, strict=True):
                calls[tuple_id] += count
        for tuple_id, count in calls.items():
            key = row["target"], tuple_id
            own_s: Any = time_s.get(key)
            unknown = total_s is None or own_s is None or own_s != own_s
            share = None if unknown else count * own_s / total_s
            found[key].append(Use(row["model"], count, share))
    for each in found.values():
        each.sort(key=lambda use: -(use.share or 0.0))
    return found


def operator_table(results: Results) -> dict[str, Any]:
    """`columns`, `models`, and `rows` in the database's order, each followed by its uses.

    Numbers are rounded; what was not measured is null. A use is the number of a model, calls, and
    their share of the model's time in per cent. Columns that would be the same in all rows, or
    empty, are left out.
    """
    frame = results.operators
    columns = [column for column in _COLUMNS if _differs(results, column)]
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


def _differs(results: Results, column: Column) -> bool:
    frame = results.operators
    if column.kind == "use":
        return bool(results.models)
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
