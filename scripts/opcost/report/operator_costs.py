"""Section: where does the time go? Costs of each model by operator."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import altair as alt

from opcost.costs.breakdown import BEYOND, NOT_MEASURED, OTHERS, breakdown
from opcost.report.colours import WHOLE, Colours
from opcost.report.results import Results, Row
from opcost.report.theme import EDGE, INK, Figure, figure, si_axis
from opcost.rows.quantities import Quantity

_WHOLE = "whole model"
_ABSOLUTE = 12  # more models than these do not share an axis of seconds
_WIDE_ENOUGH = 0.13  # as a share of the axis, for a name to be written into a bar
_HEIGHT = 40


@dataclass(frozen=True)
class Stacks:
    """Bars from `start` to `end` (`what`, `value`), and the 95 % interval of each whole bar.

    A model has two bars, `part` "sum" and "whole". In seconds or joules, or, if `relative`, in
    shares of the whole. `notes` stand at the end of a stack that is not complete.
    """

    bars: list[dict[str, Any]]
    intervals: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    relative: bool


def stacks(results: Results, target: str, quantity: Quantity, named: Colours) -> Stacks:
    """The models of a target; in shares if there are many, those without a whole left out."""
    compared = results.compared(target)
    found = Stacks([], [], [], len(compared) > _ABSOLUTE)
    for row in compared:
        whole = row[quantity.of("reference").value]
        if found.relative and not whole:
            continue
        scale = 1 / whole if found.relative else 1.0
        amounts = _amounts(results, row, quantity, named)
        known = [(name, amount * scale) for name, amount in amounts.items() if amount]
        _add(found, row, "sum", known)
        if whole:
            _add(found, row, "whole", [(_WHOLE, whole * scale)])
        for part, column in (("sum", "estimate"), ("whole", "reference")):
            _, *limits = quantity.of(column).names
            if None not in (row[limit] for limit in limits):
                low, high = (row[limit] * scale for limit in limits)
                keys = {"model": row["model"], "part": part}
                found.intervals.append({**keys, "low": low, "high": high})
        if known and row["measured_tuples"] < row["tuples"]:
            note = f"{row['measured_tuples']} of {row['tuples']} tuples"
            found.notes.append({**found.bars[-2 if whole else -1], "note": note})
    return found


def _add(found: Stacks, row: Row, part: str, amounts: Sequence[tuple[str, float]]) -> None:
    ends = list(accumulate(amount for _, amount in amounts))
    for (what, value), end in zip(amounts, ends, strict=True):
        keys = {"model": row["model"], "part": part, "what": what, "value": value}
        found.bars.append({**keys, "start": end - value, "end": end})


def _amounts(results: Results, row: Row, quantity: Quantity, named: Colours) -> Mapping[str, float]:
    """What each operator with a colour, the others and other parts take in a model, stacked so."""
    amounts: dict[str, float] = defaultdict(float)
    for part in breakdown(row, results.shares_of(row), quantity):
        others = part.calls is not None and part.name not in named.names
        amounts[OTHERS if others else part.name] += part.amount or 0.0
    return {name: amounts[name] for name in _order(named) if name in amounts}


def _order(named: Colours) -> list[str]:
    return [*named.names, OTHERS, *BEYOND, NOT_MEASURED]


def by_operator(results: Results, target: str, quantity: Quantity, named: Colours) -> Figure | None:
    """Operators and what is beyond them, stacked, above the measured whole of each model."""
    found = stacks(results, target, quantity, named)
    if not found.bars:
        return None
    widest = max(bar["end"] for bar in found.bars)
    datasets = {
        "bars": [_labelled(bar, widest, named) for bar in found.bars],
        "intervals": found.intervals,
        "notes": found.notes,
    }
    axis = (
        alt.Axis(format="%", title=f"share of the whole model's {quantity}", orient="top")
        if found.relative
        else si_axis(f"{quantity} of an iteration", quantity.symbol, orient="top", tickCount=5)
    )
    domain = [0, widest * (1.4 if found.notes else 1.04)]
    x = alt.X("start:Q", axis=axis, scale=alt.Scale(domain=domain, nice=False))
    tooltip = alt.Tooltip(
        "value:Q", format=".1%" if found.relative else ".3~s", title=quantity.name
    )
    height = _HEIGHT * len({bar["model"] for bar in found.bars})
    title = f"{target}: {quantity} by operator"
    label = f"{quantity} of each model on {target} by operator, beside that of the whole model."
    layers = _layers(x, _colours(found, named), tooltip, bool(found.notes))
    return figure(alt.layer(*layers), height, title, label, datasets, tall=found.relative)


def _layers(x: alt.X, colour: alt.Color, tooltip: alt.Tooltip, notes: bool) -> list[alt.Chart]:
    """Bars, names in those that are wide enough, intervals, and notes if there are any."""

    def of(name: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name)).encode(
            y=alt.Y("model:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
            yOffset=alt.YOffset("part:N", sort=["sum", "whole"]),
        )

    what = alt.Tooltip("what:N", title="part")
    bars = of("bars").mark_bar(stroke=EDGE, strokeWidth=0.7)
    bars = bars.encode(x=x, x2="end:Q", color=colour, tooltip=["model:N", what, tooltip])
    names = of("bars").mark_text(align="left", dx=5, fontSize=10.5)
    names = names.encode(x=x, text="name:N", color=alt.Color("ink:N", scale=None))
    intervals = of("intervals").mark_rule(color=INK, strokeWidth=1.5).encode(x="low:Q", x2="high:Q")
    layers = [bars, names, intervals]
    if notes:
        said = of("notes").mark_text(align="left", dx=5, fontSize=11)
        layers.append(said.encode(x="end:Q", text="note:N"))
    return layers


def _colours(found: Stacks, named: Colours) -> alt.Color:
    """Of the parts that there are, in the order in which they are stacked."""
    shown = {bar["what"] for bar in found.bars}
    names = [name for name in [*_order(named), _WHOLE] if name in shown]
    colours = [WHOLE if name == _WHOLE else named.of(name) for name in names]
    scale = alt.Scale(domain=names, range=colours)
    return alt.Color("what:N", scale=scale, legend=alt.Legend(title=None))


def _labelled(bar: Mapping[str, Any], widest: float, named: Colours) -> dict[str, Any]:
    """The bar with its name if that fits into it, in an ink that can be read on its colour."""
    fits = bar["what"] in named.names and bar["value"] >= _WIDE_ENOUGH * widest
    return {**bar, "name": bar["what"] if fits else "", "ink": named.ink(bar["what"])}
