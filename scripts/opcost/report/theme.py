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
    "triangle-left",
)
"""A shape for each colour, and for what has none: no information is encoded in colour alone."""
INK, MUTED, EDGE = "var(--ink)", "var(--muted)", "var(--paper)"

_FEW_TICKS = 4
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
        "columns": {"expr": "max(2, floor(width / 120))"},
        "labelFontSize": 12,
        "labelLimit": 130,
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
    tall: bool = False,
) -> Figure:
    """The chart as Vega-Lite, so many pixels high, as wide as its place, in the page's colours.

    `datasets` are the rows of the data that the chart names. A `tall` one scrolls in its place.
    """
    spec = chart.properties(width="container", height=height, description=label).to_dict()
    spec["config"] = CONFIG
    spec["datasets"] = datasets
    return Figure(spec, title, label, tall)


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


def targets_scale(targets: list[str]) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of each target, the same in all charts."""
    count = len(targets)
    legend = alt.Legend(title=None) if count > 1 else None
    colours = [PALETTE[index % len(PALETTE)] for index in range(count)]
    shapes = [SHAPES[index % len(SHAPES)] for index in range(count)]
    return (
        alt.Color("target:N", scale=alt.Scale(domain=targets, range=colours), legend=legend),
        alt.Shape("target:N", scale=alt.Scale(domain=targets, range=shapes), legend=legend),
    )
