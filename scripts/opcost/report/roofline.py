"""Section: what limits the operators: memory, arithmetic, or launches?

The roofline of Williams, Waterman and Patterson (Communications of the ACM 52(4), 2009), under
ceilings that were observed: the highest FLOP/s and bytes/s that any operator reached on the target.
"""

import math
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from opcost.report.colours import Colours
from opcost.report.results import Results
from opcost.report.scatter import layer, scatter
from opcost.report.theme import INK, Figure, decades, figure, si_axis
from opcost.rows.flags import LAUNCH_BOUND
from opcost.text import scaled


@dataclass(frozen=True)
class Roofline:
    """Observed ceilings of a target, who reached them, and how many operators lie where.

    Arithmetic has a ceiling for each type of numbers; memory has one. `without_flops` operators
    have none, or none that are known: they are in no chart, and can be nothing but bound by memory
    or launching.
    """

    flops_per_s: float
    bytes_per_s: float
    fastest: str
    widest: str
    left: int
    right: int
    launch_bound: int
    without_flops: int

    @property
    def ridge(self) -> float:
        """FLOP per byte at which the ceilings meet."""
        return self.flops_per_s / self.bytes_per_s

    @property
    def sentences(self) -> str:
        """The content of the chart in words."""
        ridge = f"{self.ridge:.3g} FLOP per byte"
        text = (
            f"Observed maxima are {scaled(self.flops_per_s, 'FLOP/s')} ({self.fastest}) and "
            f"{scaled(self.bytes_per_s, 'B/s')} ({self.widest}); the ceilings meet at {ridge}. "
            f"{self.left:,} operators are left of this point, under the memory ceiling, and "
            f"{self.right:,} right of it, under the arithmetic ceiling."
        )
        if self.launch_bound:
            text += f" {self.launch_bound:,} are launch-bound."
        if self.without_flops:
            text += (
                f" {self.without_flops:,} without counted FLOPs (such as activations and "
                "normalisations) are not in the chart."
            )
        return text


def dtypes(frame: pd.DataFrame) -> list[str]:
    """What the measured operators of a target that have FLOPs and bytes compute in."""
    return sorted(frame.loc[frame["flops_per_byte"].notna(), "dtype"].unique())


def roofline(frame: pd.DataFrame, dtype: str) -> Roofline:
    """Of the measured operators of one target, those that compute in one of its `dtypes`."""
    widest = frame.nlargest(1, "bytes_per_s").iloc[0]
    frame = frame[frame["dtype"] == dtype]
    placed = frame[frame["flops_per_byte"].notna()]
    fastest = frame.nlargest(1, "flops_per_s").iloc[0]
    ridge = fastest["flops_per_s"] / widest["bytes_per_s"]
    launched = launch_bound(placed)
    return Roofline(
        float(fastest["flops_per_s"]),
        float(widest["bytes_per_s"]),
        fastest["description"],
        widest["description"],
        int((placed["flops_per_byte"] < ridge).sum()),
        int((placed["flops_per_byte"] >= ridge).sum()),
        int(launched.sum()),
        len(frame) - len(placed),
    )


def launch_bound(frame: pd.DataFrame) -> pd.Series:
    """Which rows are flagged `launch_bound`."""
    return frame["flags"].map(lambda flags: flags is not None and LAUNCH_BOUND in flags)


def drawn(results: Results, target: str, named: Colours) -> list[tuple[Roofline, Figure, str]]:
    """For each type of numbers, the ceilings, the chart, and what its marks are."""
    frame = results.measured(target)
    found = dtypes(frame)
    return [
        _drawn(frame, dtype, f"{target}, {dtype}" if len(found) > 1 else target, named)
        for dtype in found
    ]


def _drawn(
    frame: pd.DataFrame, dtype: str, name: str, named: Colours
) -> tuple[Roofline, Figure, str]:
    roof = roofline(frame, dtype)
    frame = frame[frame["dtype"] == dtype]
    data = scatter(frame, "flops_per_byte", "flops_per_s", launch_bound(frame), named)
    line = _ceiling(roof, [mark["x"] for mark in data.marks])
    across, across_ticks = decades([point["x"] for point in line])
    up, up_ticks = decades([*(mark["y"] for mark in data.marks), roof.flops_per_s * 1.6])
    x = alt.X(
        "x:Q", scale=across, axis=alt.Axis(title="FLOP per byte", format="~g", values=across_ticks)
    )
    y = alt.Y("y:Q", scale=up, axis=si_axis("", "FLOP/s", values=up_ticks))
    tooltip = [
        alt.Tooltip("x:Q", title="FLOP per byte", format=".3~s"),
        alt.Tooltip("y:Q", title="FLOP/s", format=".3~s"),
    ]
    points = layer(data, x, y, tooltip, named)
    chart = alt.layer(*_drawn_ceiling(), points)
    label = f"Roofline of {name}: FLOP/s of operators against FLOP per byte, logarithmic."
    datasets = {"marks": data.marks, "ceiling": line, "names": _names(roof, line)}
    return roof, figure(chart, 320, f"{name}: roofline", label, datasets), data.note


def _ceiling(roof: Roofline, intensities: list[float]) -> list[dict[str, float]]:
    """The corners of both ceilings, somewhat wider than the operators under them."""
    left, right = min([roof.ridge, *intensities]) / 4, max([roof.ridge, *intensities]) * 2
    return [
        {"x": left, "y": left * roof.bytes_per_s},
        {"x": roof.ridge, "y": roof.flops_per_s},
        {"x": right, "y": roof.flops_per_s},
    ]


def _names(roof: Roofline, line: list[dict[str, float]]) -> list[dict[str, Any]]:
    """What is written above the line, where no operator can be, and where."""
    middle = math.sqrt(line[0]["x"] * roof.ridge)
    bytes_per_s = {"x": middle, "y": middle * roof.bytes_per_s}
    return [
        {**bytes_per_s, "text": f"observed: {scaled(roof.bytes_per_s, 'B/s')}"},
        {**line[2], "text": f"observed: {scaled(roof.flops_per_s, 'FLOP/s')}"},
    ]


def _drawn_ceiling() -> list[alt.Chart]:
    lines = alt.Chart(alt.NamedData("ceiling")).mark_line(
        color=INK, strokeWidth=1.5, strokeDash=[5, 3], clip=True
    )
    names = alt.Chart(alt.NamedData("names")).mark_text(align="right", dx=-6, dy=-8, fontSize=11)
    return [lines.encode(x="x:Q", y="y:Q"), names.encode(x="x:Q", y="y:Q", text="text:N")]
