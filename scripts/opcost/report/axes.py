"""Sweeps on the page: what a sample costs along each axis of numbers, and its energy against time,
as charts; the points as a table; and what they say.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from opcost.costs.sweep_text import findings, point_cells
from opcost.costs.sweeps import axes_of, sample, series_of, titled
from opcost.models.axes import described, label, number
from opcost.report.colours import PALETTE
from opcost.report.results import Results, Row
from opcost.report.theme import INK, SHAPES, Figure, figure
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.text import counted

_HEIGHT = 240
_MOST_SERIES = len(PALETTE)
_WIDE = 4
"""An axis whose last value is this many times the first is logarithmic."""

Record = dict[str, Any]


class Swept(NamedTuple):
    """A sweep on the page; charts are along axes of numbers."""

    title: str
    figures: list[Figure]
    cells: list[dict[str, str]]
    findings: list[str]


def sweeps(results: Results) -> list[Swept]:
    """Each sweep: its charts, its points as a table, and what they say."""
    flops = {row["model"]: row["flops"] for row in results.models}
    return [
        Swept(
            title,
            [*_along_axes(rows, flops), *_energy_against_time(rows)],
            point_cells(rows),
            findings(rows),
        )
        for title, rows in titled(results.sweeps).items()
    ]


def _along_axes(rows: Sequence[Row], flops: Mapping[str, int | None]) -> Iterator[Figure]:
    for axis in dict.fromkeys(axis for row in rows for axis in axes_of(row)):
        for what, unit in (("time", "s"), ("energy", "J"), ("power", "W"), ("rate", "FLOP/s")):
            points = _points(rows, axis, what, flops)
            if any(len(of_series) > 1 for of_series in _by_series(points).values()):
                yield _curve(points, label(axis), what, unit, _each(rows))


def _each(rows: Sequence[Row]) -> str:
    """What costs are of."""
    return "sample" if rows[0]["tuple_id"] is None else "call"


def _points(
    rows: Sequence[Row], axis: str, what: str, flops: Mapping[str, int | None]
) -> list[Record]:
    """`series`, `x`, `y`, and its interval `low` and `high` of rows that have both."""
    found = []
    for row in rows:
        point = axes_of(row)
        x = point.get(axis)
        y = _figures(row, what, row["flops"] or flops.get(row["model"]))
        if number(x) is not None and y is not None:
            others = described({a: value for a, value in point.items() if a != axis})
            series = {"series": others or row["sweep"], "model": row["model"], "x": x}
            found.append(series | dict(zip(("y", "low", "high"), y, strict=True)))
    named = list(_by_series(found))[:_MOST_SERIES]
    return sorted(
        (each for each in found if each["series"] in named),
        key=lambda each: (named.index(each["series"]), each["x"]),
    )


def _figures(
    row: Row, what: str, flops: int | None
) -> tuple[float, float | None, float | None] | None:
    """A number of a row with the limits of its interval, which power and rate do not have."""
    time, energy = (sample(quantity).read(row) for quantity in COMPARED)
    cost = {"time": time, "energy": energy}.get(what)
    if cost is not None:
        return cost.value, cost.low, cost.high
    if what == "power" and time and energy:
        return energy.value / time.value, None, None
    whole = TIME.read(row)
    if what == "rate" and whole and flops:
        return flops / whole.value, None, None
    return None


def _by_series(points: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for point in points:
        found[point["series"]].append(point)
    return found


def _curve(points: list[Record], axis: str, what: str, unit: str, each: str) -> Figure:
    titles = {
        "time": f"Time of a {each}",
        "energy": f"Energy of a {each}",
        "power": "Mean power",
        "rate": "FLOPs per second",
    }
    values = sorted({point["x"] for point in points})
    scale = alt.Scale(zero=False, nice=False, padding=20)
    if values[0] > 0 and values[-1] >= _WIDE * values[0]:
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("x:Q", scale=scale, axis=alt.Axis(title=axis, values=values, format=".12~g")),
        color=alt.Color("series:N", scale=_scale(points, PALETTE), legend=_LEGEND),
    )
    y = alt.Y("y:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(format="~s"))
    tooltip: list[Any] = ["model:N", alt.Tooltip("y:Q", title=unit, format=".3~s")]
    chart = alt.layer(
        base.mark_line().encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=y,
            shape=alt.Shape("series:N", scale=_scale(points, SHAPES), legend=_LEGEND),
            tooltip=tooltip,
        ),
    )
    title = f"{titles[what]} by {axis}"
    return figure(chart, _HEIGHT, title, f"{title}, in {unit}.", {"points": points})


_LEGEND = alt.Legend(title=None)


def _scale(points: Sequence[Record], values: Sequence[str]) -> alt.Scale:
    names = list(_by_series(points))
    return alt.Scale(domain=names, range=list(values[: len(names)]))


def _energy_against_time(rows: Sequence[Row]) -> Iterator[Figure]:
    """The points of a sweep by time and energy of a sample, and a line through the Pareto front."""
    points = [
        {
            "model": row["model"] + ("" if row["target_point"] == "{}" else f" on {row['target']}"),
            "x": time.value,
            "y": energy.value,
            "front": row["is_on_front"],
            "series": index,
        }
        for index, series in enumerate(series_of([dict(row) for row in rows]))
        for row in series
        if (time := sample(TIME).read(row)) and (energy := sample(ENERGY).read(row))
    ]
    if len(points) < 3:
        return
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("x:Q", title="s", scale=alt.Scale(zero=False), axis=alt.Axis(format="~s")),
        y=alt.Y("y:Q", title="J", scale=alt.Scale(zero=False), axis=alt.Axis(format="~s")),
    )
    front = base.transform_filter("datum.front").encode(detail="series:N")
    chart = alt.layer(
        front.mark_line(color=INK, strokeDash=[4, 3]),
        base.mark_point(size=70, opacity=1, color=PALETTE[0]).encode(
            fillOpacity=alt.condition("datum.front", alt.value(1), alt.value(0)),
            fill=alt.value(PALETTE[0]),
            tooltip=[
                "model:N",
                alt.Tooltip("x:Q", title="s", format=".3~s"),
                alt.Tooltip("y:Q", title="J", format=".3~s"),
            ],
        ),
    )
    on_front = counted(sum(bool(point["front"]) for point in points), "point")
    title = f"Energy against time of a {_each(rows)}{_correlation(points)}"
    yield figure(
        chart,
        _HEIGHT,
        title,
        f"{title}. {on_front} on the Pareto front, filled.",
        {"points": points},
    )


def _correlation(points: Sequence[Record]) -> str:
    """Pearson's correlation of both, with its interval by Fisher's transformation."""
    from scipy import stats

    if len(points) < 4 or any(len({point[key] for point in points}) < 2 for key in "xy"):
        return ""
    found = stats.pearsonr([point["x"] for point in points], [point["y"] for point in points])
    low, high = found.confidence_interval(0.95)
    return f"; correlation {found.statistic:.2f} [{low:.2f}, {high:.2f}]"
