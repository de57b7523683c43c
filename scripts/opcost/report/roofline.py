"""Section: what limits the operators: memory, arithmetic, or launches?

The roofline of Williams, Waterman and Patterson (Communications of the ACM 52(4), 2009), under
ceilings that were observed: the highest FLOP/s that any operator reached on the target, and the
highest bytes/s of operators whose data come from memory or from the last-level cache.
"""

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

MEMORY, CACHE, ANYWHERE = "memory", "cache", "memory or cache"

_WEIGHTS = 0.5  # of the bytes, from which weights decide where an operator's data are
_EVICTED = 2.0  # last-level caches: data that rotate through more come from memory


@dataclass(frozen=True)
class Ceiling:
    """The highest bytes/s of operators whose data come from `source`, and the FLOP per byte at
    which it meets the arithmetic ceiling.
    """

    source: str
    bytes_per_s: float
    ridge: float


@dataclass(frozen=True)
class Roofline:
    """Observed ceilings of a target: arithmetic has one for each dtype, memory and the cache have
    one each, the higher first.

    `without_flops` operators have none, or none that are known, and are in no chart.
    """

    flops_per_s: float
    ceilings: tuple[Ceiling, ...]
    without_flops: int


def dtypes(frame: pd.DataFrame) -> list[str]:
    """What the measured operators of a target that have FLOPs and bytes compute in."""
    return sorted(frame.loc[frame["flops_per_byte"].notna(), "dtype"].unique())


def roofline(frame: pd.DataFrame, dtype: str) -> Roofline:
    """Of the measured operators of one target, those that compute in one of its `dtypes`."""
    rows = frame[frame["dtype"] == dtype]
    flops_per_s = float(rows["flops_per_s"].max())
    without_flops = int(rows["flops_per_byte"].isna().sum())
    return Roofline(flops_per_s, _ceilings(frame, flops_per_s), without_flops)


def sources(frame: pd.DataFrame) -> pd.Series:
    """Where each operator's data come from: `MEMORY`, `CACHE`, or, if it is not known, neither.

    Data that rotate through twice the last-level cache come from memory, and those that fit it from
    the cache. Of an operator with weights, the footprint is that of the weights.
    """
    weights = frame["weight_bytes"] / frame["bytes"].where(frame["bytes"] > 0)
    footprint = frame["footprint_bytes"] / frame["last_level_cache_bytes"]
    found = pd.Series("", index=frame.index)
    decided = (weights == 0) | (weights >= _WEIGHTS)
    found[decided & (footprint >= _EVICTED)] = MEMORY
    found[(weights == 0) & (footprint <= 1)] = CACHE
    return found


def _ceilings(frame: pd.DataFrame, flops_per_s: float) -> tuple[Ceiling, ...]:
    """Of the cache, if higher than memory's, and of memory; or one of either, if unknown."""
    highest = frame["bytes_per_s"].groupby(sources(frame)).max().dropna().to_dict()
    found = {source: highest[source] for source in (CACHE, MEMORY) if source in highest}
    if len(found) == 2 and found[CACHE] <= found[MEMORY]:
        del found[CACHE]
    if MEMORY not in found:
        found = {ANYWHERE: frame["bytes_per_s"].max()}
    return tuple(
        Ceiling(source, float(bytes_per_s), flops_per_s / float(bytes_per_s))
        for source, bytes_per_s in found.items()
    )


def launch_bound(frame: pd.DataFrame) -> pd.Series:
    """Which rows are flagged `launch_bound`."""
    return frame["flags"].map(lambda flags: flags is not None and LAUNCH_BOUND in flags)


def drawn(results: Results, target: str, named: Colours) -> list[tuple[Figure, str]]:
    """For each dtype, the chart, and what its marks are."""
    frame = results.measured(target)
    found = dtypes(frame)
    return [
        _drawn(frame, dtype, f"{target}, {dtype}" if len(found) > 1 else target, named)
        for dtype in found
    ]


def _drawn(frame: pd.DataFrame, dtype: str, name: str, named: Colours) -> tuple[Figure, str]:
    roof = roofline(frame, dtype)
    frame = frame[frame["dtype"] == dtype]
    data = scatter(frame, "flops_per_byte", "flops_per_s", launch_bound(frame), named)
    lines = _lines(roof, [mark["x"] for mark in data.marks])
    across, across_ticks = decades([point["x"] for point in lines])
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
    chart = alt.layer(*_drawn_ceilings(), points)
    label = f"Roofline of {name}: FLOP/s of operators against FLOP per byte, logarithmic."
    datasets = {"marks": data.marks, "ceilings": lines}
    columns = {"x": "flops_per_byte", "y": "flops_per_s", "hollow": LAUNCH_BOUND}
    note = data.note
    if roof.without_flops:
        note += f" {roof.without_flops:,} without counted FLOPs (such as activations) have none."
    return figure(chart, 320, f"{name}: roofline", label, datasets, columns), note


def _lines(roof: Roofline, intensities: list[float]) -> list[dict[str, Any]]:
    """The points of each ceiling, somewhat wider than the operators under it; its name, `text`, is
    at one of them.
    """
    ridges = [each.ridge for each in roof.ceilings]
    left, right = min([*ridges, *intensities]) / 4, max([*ridges, *intensities]) * 2
    flat = {"line": "arithmetic", "y": roof.flops_per_s}
    text = scaled(roof.flops_per_s, "FLOP/s")
    lines = [{**flat, "x": min(ridges)}, {**flat, "x": right, "text": text}]
    for each in roof.ceilings:
        along = 0.3 if each.source == CACHE else 0.8
        xs = (left, left ** (1 - along) * each.ridge**along, each.ridge)
        ends = [{"line": each.source, "x": x, "y": x * each.bytes_per_s} for x in xs]
        ends[1]["text"] = f"{each.source}: {scaled(each.bytes_per_s, 'B/s')}"
        lines += ends
    return lines


def _drawn_ceilings() -> list[alt.Chart]:
    base = alt.Chart(alt.NamedData("ceilings")).encode(x="x:Q", y="y:Q")
    lines = base.mark_line(color=INK, strokeWidth=1.5, strokeDash=[5, 3], clip=True)
    right = f"datum.line === '{CACHE}'"  # between the lines, where a phone has room
    named = base.transform_filter("datum.text").encode(text="text:N")
    return [
        lines.encode(detail="line:N"),
        named.mark_text(align="right", dx=-6, dy=-8, fontSize=11).transform_filter(f"!({right})"),
        named.mark_text(align="left", dx=8, dy=8, fontSize=11).transform_filter(right),
    ]
