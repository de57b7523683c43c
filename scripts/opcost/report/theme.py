"""The appearance of charts: colours, fonts and sizes.

Colours of text and lines are variables of the page's style sheet, so that charts are legible in
light mode, in dark mode and in print.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from opcost.report.colours import PALETTE

SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke"),
    *("triangle-right", "wedge", "arrow", "triangle-left"),
)
"""A shape for each colour, and for what has none: no information is encoded in colour alone."""
INK, MUTED, EDGE = "var(--ink)", "var(--muted)", "var(--paper)"

_FEW_TICKS = 4
_FAR_APART = 20
_LANE, _LEAST_ROW = 18, 26
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_TEXT = {"labelFont": _FONT, "titleFont": _FONT, "titleFontWeight": "normal"}
CONFIG = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": "var(--grid)",
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "labelLimit": 220,
    },
    "legend": {
        **_TEXT,
        "labelColor": INK,
        "titleColor": MUTED,
        "orient": "top",
        "columns": {"expr": "max(1, floor(width / 150))"},
        "labelFontSize": 12,
        "labelLimit": 160,
    },
    "text": {"color": INK, "font": _FONT},
    "rule": {"color": INK},
}


@dataclass(frozen=True)
class Figure:
    """A chart with its texts: `label` describes it for screen readers."""

    spec: dict[str, Any]
    title: str
    label: str
    tall: bool = False


def figure(
    chart: alt.TopLevelMixin,
    height: int,
    title: str,
    label: str,
    datasets: Mapping[str, Sequence[Mapping[str, Any]]],
    columns: Mapping[str, str | None] | None = None,
) -> Figure:
    """The chart as Vega-Lite, so many pixels high, as wide as its place, in the page's colours.

    `datasets` are the rows of the data that the chart names. `columns` are the names of fields in
    their CSV, where those differ; None leaves a field out. A high chart scrolls in its place.
    """
    spec = chart.properties(width="container", height=height, description=label).to_dict()
    spec |= {"config": CONFIG, "datasets": datasets, "usermeta": {"columns": columns or {}}}
    return Figure(spec, title, label, tall=height > 600)


def si_axis(title: str, unit: str, **options: Any) -> alt.Axis:
    """An axis whose labels carry the unit with its SI prefix: 20 µs, 3 TFLOP/s."""
    expression = f"format(datum.value, '~s') + '{unit}'"
    spaced = "replace(" + expression + r", /([0-9.])(?=[^0-9.])/, '$1 ')"
    return alt.Axis(title=title, labelExpr=spaced, **options)


def decades(values: Sequence[float]) -> tuple[alt.Scale, list[float]]:
    """A logarithmic scale around positive values, and where its labels are.

    Labels are at powers of ten, with 2 and 5 between them if there are few.
    """
    low, high = min(values) / 1.25, max(values) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _FEW_TICKS:
            break
    return alt.Scale(type="log", domain=[low, high], nice=False), ticks


def dots(
    values: Sequence[Mapping[str, Any]],
    targets: Sequence[str],
    x: alt.X,
    title: str,
    label: str,
    columns: Sequence[str],
) -> Figure:
    """Each model's `value` with its interval from `low` to `high`, targets side by side.

    `shown` is the value as text, `columns` are the names of value, low and high in the CSV.
    """
    shapes, colours = (series_scale(targets, values) for values in (SHAPES, PALETTE))
    legend = alt.Legend(title=None) if len(targets) > 1 else None
    colour = alt.Color("target:N", scale=colours, legend=legend)
    base = alt.Chart(alt.NamedData("models")).encode(
        y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(grid=True, labelLimit=160)),
        yOffset=alt.YOffset("target:N", sort=list(targets)),
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x,
        color=colour,
        shape=alt.Shape("target:N", scale=shapes, legend=legend),
        tooltip=["model:N", "target:N", alt.Tooltip("shown:N", title=title)],
    )
    intervals = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=colour)
    texts = base.mark_text(align="left", dx=8, fontSize=11).encode(x="high:Q", text="shown:N")
    height = len({row["model"] for row in values}) * max(_LEAST_ROW, _LANE * len(targets) + 8)
    named = dict(zip(("value", "low", "high"), columns, strict=True)) | {"shown": None}
    chart = alt.layer(intervals, points, texts)
    return figure(chart, height, title, label, {"models": values}, named)


def from_zero(values: Sequence[float]) -> tuple[alt.Scale, dict[str, Any]]:
    """A scale from zero with room for a text on the right, or a logarithmic one if values are far
    apart; and options of its axis.
    """
    if max(values) > _FAR_APART * min(values):
        scale, ticks = decades([min(values), max(values) * 6])
        return scale, {"values": ticks}
    return alt.Scale(domain=[0, max(values) * 1.4], nice=False), {"tickCount": 6}


def series_scale(names: Sequence[str], values: Sequence[str]) -> alt.Scale:
    """A scale of colours or shapes for series in the order of their names."""
    repeated = [values[index % len(values)] for index in range(len(names))]
    return alt.Scale(domain=list(names), range=repeated)
