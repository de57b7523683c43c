"""Where the time goes: each model's operators, stacked, above the end-to-end measurement."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import altair as alt

from opcost.costs.breakdown import BEYOND, OTHERS, RESTS, breakdown
from opcost.costs.terms import Row
from opcost.groups import grouped
from opcost.report.colours import END_TO_END, Colours
from opcost.report.theme import EDGE, Figure, figure, si_axis
from opcost.rows.quantities import Quantity
from opcost.text import percent

AS_SHARES = "shares"
"""The signal that says whether bars are in shares of their model or in seconds or joules."""
ROW_HEIGHT = 40

PARTS = ("estimate", "end-to-end")
"""The two bars of a model."""
_LETTER = 7  # pixels, of a name that is written into a bar
_ROOM, _ROOM_FOR_NOTES = 1.04, 1.4


@dataclass(frozen=True)
class Stacks:
    """Bars from `start` to `end` (`what`, `value`), and the 95 % interval of each stack of them.

    A model has two stacks, whose `part` is one of `PARTS`. `total` is what its shares are of,
    `free` is where the stack's interval begins. `notes` stand at the end of incomplete stacks.
    """

    bars: list[dict[str, Any]] = field(default_factory=list)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """The parts that there are."""
        return {bar["what"] for bar in self.bars}

    @property
    def widest(self) -> tuple[float, float]:
        """The end of the longest bar or interval, and of the longest in shares."""
        ends = [(bar["end"], bar["total"]) for bar in self.bars]
        ends += [(interval["high"], interval["total"]) for interval in self.intervals]
        amounts, shares = zip(*((end, end / total) for end, total in ends), strict=True)
        return max(amounts), max(shares)


def stacks(
    comparison: Sequence[Row], shares: Sequence[Row], quantity: Quantity, named: Colours
) -> Stacks:
    """The models of one target."""
    by_model = grouped((row["model"], row) for row in shares)
    found = Stacks()
    estimated, measured = PARTS
    for row in comparison:
        amounts = _amounts(row, by_model.get(row["model"], ()), quantity, named)
        end_to_end = row[quantity.of("end_to_end").value]
        keys = {"model": row["model"], "total": sum(amounts.values()) or end_to_end}
        for part, column, parts in (
            (estimated, "estimate", amounts),
            (measured, "end_to_end", {measured: end_to_end} if end_to_end else {}),
        ):
            _, low, high = (row[name] for name in quantity.of(column).names)
            found.bars.extend(_stacked(keys | {"part": part, "free": low}, parts))
            if low is not None and high is not None:
                found.intervals.append({**keys, "part": part, "low": low, "high": high})
            if part == estimated and amounts and row["measured_tuples"] < row["tuples"]:
                note = f"{row['measured_tuples']} of {row['tuples']} operators"
                note = f"{percent(share)} predicted" if (share := row["predicted_share"]) else note
                found.notes.append({**found.bars[-1], "note": note})
    return found


def _stacked(keys: Mapping[str, Any], amounts: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    ends = accumulate(amounts.values())
    for (what, value), end in zip(amounts.items(), ends, strict=True):
        bar = {**keys, "what": what, "value": value, "start": end - value, "end": end}
        yield {**bar, "free": min(end, end if keys["free"] is None else keys["free"])}


def _amounts(
    row: Row, shares: Sequence[Row], quantity: Quantity, named: Colours
) -> Mapping[str, float]:
    """What each operator with a colour, the others and other parts take in a model, stacked so."""
    amounts: dict[str, float] = defaultdict(float)
    for part in breakdown(row, shares, quantity):
        others = part.calls is not None and part.name not in named.names
        amounts[OTHERS if others else part.name] += part.amount or 0.0
    return {name: amounts[name] for name in _order(named) if amounts.get(name)}


def _order(named: Colours) -> list[str]:
    return [*named.names, OTHERS, *BEYOND, *RESTS]


def by_operator(
    found: Stacks, target: str, quantity: Quantity, named: Colours, as_shares: bool
) -> Figure:
    """Operators and what is beyond them, stacked, above the measurement of each model."""
    chart = stacked(found, found.names, quantity, named)
    chart = chart.add_params(alt.param(name=AS_SHARES, value=as_shares))
    height = ROW_HEIGHT * len({bar["model"] for bar in found.bars})
    title = f"{target}: {quantity} by operator"
    label = (
        f"Estimated {quantity} of each model on {target} by operator, and end-to-end {quantity}."
    )
    hidden = {"ink": None, "free": None, "total": None, "note": None}
    columns = {**hidden, "part": "bar", "what": "part", "value": quantity.value}
    columns |= {name: f"{name}_{quantity.unit}" for name in ("start", "end", "low", "high")}
    return figure(chart, height, title, label, datasets(found, named), columns)


def datasets(found: Stacks, named: Colours, prefix: str = "") -> dict[str, list[dict[str, Any]]]:
    """The data that `stacked` names. Bars have the ink of a name in them, if they may have one."""
    bars = [
        {**bar, "ink": named.ink(bar["what"])} if bar["what"] in named.names else bar
        for bar in found.bars
    ]
    rows = {"bars": bars, "intervals": found.intervals, "notes": found.notes}
    return {prefix + name: values for name, values in rows.items()}


def stacked(
    found: Stacks,
    names: set[str],
    quantity: Quantity,
    named: Colours,
    prefix: str = "",
    drawn_legend: alt.Legend | None = None,
    width: str | int = "width",
) -> Any:
    """An Altair chart: bars, names of operators in wide ones, intervals, notes.

    `names` have a colour; `width` is in pixels, or the signal that says so.
    """
    amount, share = found.widest
    room = _ROOM_FOR_NOTES if found.notes else _ROOM
    limit = f"({AS_SHARES} ? {share * room} : {amount * room})"
    scale = alt.Scale(domain=[0, alt.ExprRef(limit)], nice=False)
    labels = si_axis(f"{quantity} of an iteration", quantity.symbol)
    axis = alt.Axis(
        title=None,
        orient="top",
        tickCount=5,
        labelExpr=f"{AS_SHARES} ? format(datum.value, '.0%') : {labels.labelExpr}",
    )
    x = alt.X("from:Q", axis=axis, scale=scale)
    cost = alt.Tooltip("value:Q", format=".3~s", title=f"{quantity.name} ({quantity.symbol})")
    tooltip: list[Any] = ["model:N", alt.Tooltip("what:N", title="part"), cost]
    tooltip.append(alt.Tooltip("share:Q", format=".1%", title="share"))

    def of(name: str, start: str, end: str) -> alt.Chart:
        scaled = {
            key: f"datum.{column} / ({AS_SHARES} ? datum.total : 1)"
            for key, column in (("from", start), ("to", end))
        }
        base = alt.Chart(alt.NamedData(prefix + name)).transform_calculate(**scaled)
        return base.encode(
            y=alt.Y("model:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
            yOffset=alt.YOffset("part:N", sort=list(PARTS)),
        )

    bars = of("bars", "start", "end").transform_calculate(share="datum.value / datum.total")
    bars = bars.mark_bar(stroke=EDGE, strokeWidth=0.7)
    bars = bars.encode(x=x, x2="to:Q", color=_colours(names, named, drawn_legend), tooltip=tooltip)
    written = of("bars", "start", "end").transform_filter(
        f"datum.ink && (datum.free / ({AS_SHARES} ? datum.total : 1) - datum.from) / {limit} * "
        f"{width} >= {_LETTER} * (length(datum.what) + 1)"
    )
    written = written.mark_text(align="left", dx=5, fontSize=10.5)
    written = written.encode(x=x, text="what:N", color=alt.Color("ink:N", scale=None))
    intervals = of("intervals", "low", "high").encode(x=x, x2="to:Q")
    edged = (intervals.mark_rule(color=EDGE, strokeWidth=4), intervals.mark_rule(strokeWidth=1.5))
    layers = [bars, written, *edged]
    if found.notes:
        said = of("notes", "end", "end").mark_text(align="left", dx=5, fontSize=11)
        layers.append(said.encode(x=x, text="note:N"))
    return alt.layer(*layers)


def legend(names: set[str], named: Colours) -> dict[str, str]:
    """The colours of the parts that there are, in the order in which they are stacked."""
    shown = [name for name in [*_order(named), PARTS[1]] if name in names]
    return {name: END_TO_END if name == PARTS[1] else named.of(name) for name in shown}


def _colours(names: set[str], named: Colours, drawn: alt.Legend | None) -> alt.Color:
    colours = legend(names, named)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("what:N", scale=scale, legend=drawn)
