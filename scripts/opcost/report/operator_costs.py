"""Where does each model's cost go, by operator?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from opcost.operator_tuple import short_name
from opcost.report.results import Results, Row
from opcost.report.theme import (
    EDGE,
    OTHERS,
    OVERHEAD,
    PALETTE,
    SYMBOLS,
    WHOLE,
    Figure,
    figure,
    si_axis,
)

_OTHERS, _OVERHEAD, _WHOLE = "other operators", "overhead of calls", "whole model"
_ABSOLUTE = 12  # more models than these do not share an axis of seconds
_MODEL_HEIGHT = 34
_UNITS = {"time": "s", "energy": "j"}


def stacks(results: Results, target: str, quantity: str) -> list[dict[str, Any]]:
    """The parts of the chart by operator: a stack of operators and a whole for each model.

    With more than a dozen models, in shares of the whole: those without one are left out.
    """
    unit = _UNITS[quantity]
    coloured = _costliest(results, quantity)
    relative = _relative(results, target)
    parts: list[dict[str, Any]] = []
    for row in results.compared(target):
        whole = row[f"reference_{quantity}_{unit}"]
        scale = (1 / whole if whole else None) if relative else 1.0
        if scale is None:
            continue
        amounts: dict[str, float] = defaultdict(float)
        for share in results.shares:
            if share["model"] == row["model"] and share["target"] == target:
                name = short_name(share["operator"])
                amounts[name if name in coloured else _OTHERS] += share[f"{quantity}_{unit}"] or 0
        if quantity == "time":
            amounts[_OVERHEAD] = row["overhead_time_s"] or 0
        order = [*coloured, _OTHERS, _OVERHEAD]
        place = {"model": row["model"], "part": "sum", "note": _incomplete(row)}
        parts += [
            {**place, "what": name, "order": order.index(name), "value": amounts[name] * scale}
            for name in order
            if amounts.get(name)
        ]
        if whole:
            part = {"model": row["model"], "part": "whole", "what": _WHOLE}
            parts.append({**part, "order": 0, "value": whole * scale})
    return parts


def by_operator(results: Results, target: str, quantity: str) -> Figure | None:
    """Operators and overhead, stacked, above the measured whole of each model."""
    values = stacks(results, target, quantity)
    if not values:
        return None
    coloured = _costliest(results, quantity)
    names = [*coloured, _OTHERS, _OVERHEAD, _WHOLE]
    colours = [*PALETTE[: len(coloured)], OTHERS, OVERHEAD, WHOLE]
    shown = {row["what"] for row in values}
    pairs = [pair for pair in zip(names, colours, strict=True) if pair[0] in shown]
    scale = alt.Scale(domain=[name for name, _ in pairs], range=[colour for _, colour in pairs])
    relative = _relative(results, target)
    axis = (
        alt.Axis(format="%", title=f"share of the whole model's {quantity}", orient="top")
        if relative
        else si_axis(f"{quantity} of an iteration", SYMBOLS[quantity], orient="top", tickCount=5)
    )
    tooltip = alt.Tooltip("value:Q", format=".1%" if relative else ".3~s", title=quantity)
    bars = (
        alt.Chart(alt.NamedData("parts"))
        .mark_bar(stroke=EDGE, strokeWidth=0.7)
        .encode(
            y=alt.Y("model:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
            yOffset=alt.YOffset("part:N", sort=["sum", "whole"]),
            x=alt.X("value:Q", axis=axis, stack="zero"),
            color=alt.Color("what:N", scale=scale, legend=alt.Legend(title=None)),
            order="order:Q",
            tooltip=["model:N", alt.Tooltip("what:N", title="part"), tooltip],
        )
    )
    notes = (
        alt.Chart(alt.NamedData("ends"))
        .mark_text(align="left", dx=4, fontSize=11)
        .encode(
            y=alt.Y("model:N", sort=None),
            yOffset=alt.YOffset("part:N", sort=["sum", "whole"]),
            x="value:Q",
            text="note:N",
        )
    )
    datasets = {"parts": values, "ends": _ends(values)}
    chart = alt.layer(bars, notes) if datasets["ends"] else bars
    height = _MODEL_HEIGHT * len({row["model"] for row in values})
    title = f"{target}: {quantity} by operator"
    label = f"{quantity} of each model on {target} by operator, beside that of the whole model."
    return figure(chart, height, title, label, datasets, tall=relative)


def _costliest(results: Results, quantity: str) -> list[str]:
    """The operators that have a colour, the same ones on every target."""
    totals: dict[str, float] = defaultdict(float)
    for row in results.shares:
        # Shares, so that a slow target has no more say than a fast one.
        value = row["share_of_reference_time"] if quantity == "time" else row["energy_j"]
        totals[short_name(row["operator"])] += value or 0.0
    ranked = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
    return ranked[: len(PALETTE)]


def _relative(results: Results, target: str) -> bool:
    return len(results.compared(target)) > _ABSOLUTE


def _incomplete(row: Row) -> str:
    if row["measured_tuples"] == row["tuples"]:
        return ""
    return f"{row['measured_tuples']} of {row['tuples']} tuples"


def _ends(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where each incomplete stack ends, and what is to be said of it."""
    ends: dict[str, dict[str, Any]] = {}
    for row in values:
        if row.get("note"):
            end = ends.setdefault(row["model"], {**row, "value": 0.0})
            end["value"] += row["value"]
    return list(ends.values())
