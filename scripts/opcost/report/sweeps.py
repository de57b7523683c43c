"""Section: sweeps. What a sample costs along each axis of numbers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt

from opcost.costs.sweep_text import point_cells, sweep_notes
from opcost.costs.sweeps import axes_of, by_sweep, sample_cost
from opcost.models.axes import described, label, number
from opcost.report.colours import PALETTE
from opcost.report.results import Results
from opcost.report.theme import SHAPES, Figure, figure, series_scale, si_axis
from opcost.rows.quantities import COMPARED, Quantity

_HEIGHT = 240
_MOST_SERIES = 7
_WIDE = 4
"""An axis whose last value is this many times the first is logarithmic."""


class Swept(NamedTuple):
    """A sweep on the page."""

    title: str
    figures: list[Figure]
    cells: list[dict[str, str]]
    notes: list[str]


def sweeps(results: Results) -> list[Swept]:
    """Each sweep: its charts, its points as a table, and notes."""
    return [
        Swept(title, list(_figures(points)), point_cells(points), sweep_notes(points))
        for title, points in by_sweep(map(dict, results.sweeps)).items()
    ]


def _figures(rows: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    for axis in axes_of(rows[0]):
        for quantity in COMPARED:
            points = _points(rows, axis, quantity)
            if len({point["x"] for point in points}) > 1:
                each = "sample" if rows[0]["tuple_id"] is None else "call"
                yield _curve(points, label(axis), f"{quantity} of a {each}".capitalize(), quantity)


def _points(rows: Sequence[dict[str, Any]], axis: str, quantity: Quantity) -> list[dict[str, Any]]:
    """`series`, `x`, `y`, and its interval `low` and `high`, of the rows that have both, of the
    first series by value on the axis.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        cost, place = sample_cost(row, quantity), number(axes_of(row)[axis])
        if cost is not None and place is not None:
            others = {name: value for name, value in axes_of(row).items() if name != axis}
            series = described(others) or row["sweep"]
            limits = {"low": cost.low, "high": cost.high}
            point = {"series": series, "model": row["model"], "x": place, "y": cost.value}
            found.setdefault(series, []).append(point | limits)
    chosen = list(found.values())[:_MOST_SERIES]
    return [point for each in chosen for point in sorted(each, key=lambda point: point["x"])]


def _curve(points: list[dict[str, Any]], axis: str, what: str, quantity: Quantity) -> Figure:
    """Lines through the points of each series, with intervals."""
    values = sorted({point["x"] for point in points})
    names = list(dict.fromkeys(point["series"] for point in points))
    scale = alt.Scale(zero=False, nice=False, padding=20)
    if values[0] > 0 and values[-1] >= _WIDE * values[0]:
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
    legend = alt.Legend(title=None) if len(names) > 1 else None
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("x:Q", scale=scale, axis=alt.Axis(title=axis, values=values, format=".12~g")),
        color=alt.Color("series:N", scale=series_scale(names, PALETTE), legend=legend),
    )
    unit = quantity.symbol
    y = alt.Y("y:Q", scale=alt.Scale(zero=True), axis=si_axis("", unit))
    tooltip: list[Any] = ["model:N", alt.Tooltip("y:Q", title=unit, format=".3~s")]
    shape = alt.Shape("series:N", scale=series_scale(names, SHAPES), legend=legend)
    chart = alt.layer(
        base.mark_line().encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tooltip),
    )
    title, columns = f"{what} by {axis}", {"x": axis, "y": f"{what} ({unit})"}
    return figure(chart, _HEIGHT, title, f"{title}, in {unit}.", {"points": points}, columns)
