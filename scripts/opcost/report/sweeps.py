"""Section: sweeps. What a sample costs along each axis of numbers, its energy against its time, and
models that differ in their batch size alone.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from opcost.costs.headline import headline
from opcost.costs.sweep_text import findings, point_cells
from opcost.costs.sweeps import axes_of, sample, series_of, titled
from opcost.models.axes import described, label, number
from opcost.report.colours import PALETTE
from opcost.report.results import Results, Row
from opcost.report.theme import INK, SHAPES, Figure, figure, series_scale, si_axis
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.text import counted

_HEIGHT = 240
_MOST_SERIES = 7
_WIDE = 4
"""An axis whose last value is this many times the first is logarithmic."""
_COSTS = {
    "time": ("Time of a {}", "s"),
    "energy": ("Energy of a {}", "J"),
    "power": ("Mean power", "W"),
    "rate": ("FLOPs per second", "FLOP/s"),
}

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


def by_batch(results: Results) -> list[Figure]:
    """A chart of samples per second, and of samples per joule if there is any energy."""
    return [
        _curve(points, "batch size", f"Samples/{quantity.symbol}", f"samples/{quantity.symbol}")
        for quantity in COMPARED
        if (points := batches(results, quantity))
    ]


def batches(results: Results, quantity: Quantity) -> list[Record]:
    """`series`, batch size `x`, and rate `y` of models that differ in the batch size alone.

    A rate is in samples for each second or joule. Models at one batch size have no point.
    """
    swept = {row["model"] for row in results.sweeps if row["point"] != "{}"}
    names = {
        row["model"]: _but_for_the_batch(row) for row in results.models if row["model"] not in swept
    }
    found: dict[str, list[Record]] = defaultdict(list)
    for row in results.comparison:
        costs, name = headline(row), names.get(row["model"])
        cost, batch = costs.cost(quantity), costs.batch_size
        if name is None or cost is None or not cost.value or batch is None:
            continue
        high, low = (batch / limit if limit else None for limit in (cost.low, cost.high))
        target = f" on {row['target']}" if len(results.targets) > 1 else ""
        point = {"model": row["model"], "x": batch, "y": batch / cost.value}
        found[f"{name}{target}"].append({**point, "low": low, "high": high})
    several = {
        key: points for key, points in found.items() if len({point["x"] for point in points}) > 1
    }
    series = _short_names(list(several))
    return [
        {"series": series[key], **point}
        for key, points in several.items()
        for point in sorted(points, key=lambda point: point["x"])
    ]


def _but_for_the_batch(row: Row) -> str | None:
    """A model's definition without its name and the first size of its inputs, behind what it is."""
    if row["definition_json"] is None:
        return None
    definition = json.loads(row["definition_json"])
    inputs = [{**each, "shape": each["shape"][1:]} for each in definition["inputs"]]
    kept = {key: value for key, value in definition.items() if key != "name"}
    what = definition.get("model") or definition.get("factory")
    return f"{what} {json.dumps({**kept, 'inputs': inputs}, sort_keys=True)}"


def _short_names(keys: list[str]) -> dict[str, str]:
    """What each is, without folders, and its target; numbered if they are not enough."""
    found: dict[str, str] = {}
    for key in keys:
        what, target = key.partition(" {")[0].rpartition("/")[2], key.rpartition("}")[2]
        name = f"{what}{target}"
        same = sum(other.partition(" (")[0] == name for other in found.values())
        found[key] = f"{name} ({same + 1})" if same else name
    return found


def _along_axes(rows: Sequence[Row], flops: Mapping[str, int | None]) -> Iterator[Figure]:
    each = _each(rows)
    for axis in dict.fromkeys(axis for row in rows for axis in axes_of(row)):
        for what, (title, unit) in _COSTS.items():
            points = _points(rows, axis, what, flops)
            if any(len(of_series) > 1 for of_series in _by_series(points).values()):
                yield _curve(points, label(axis), title.format(each), unit)


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
        y = _cost(row, what, row["flops"] or flops.get(row["model"]))
        if number(x) is not None and y is not None:
            others = described({a: value for a, value in point.items() if a != axis})
            series = {"series": others or row["sweep"], "model": row["model"], "x": x}
            found.append(series | dict(zip(("y", "low", "high"), y, strict=True)))
    named = list(_by_series(found))[:_MOST_SERIES]
    return sorted(
        (each for each in found if each["series"] in named),
        key=lambda each: (named.index(each["series"]), each["x"]),
    )


def _cost(
    row: Row, what: str, flops: int | None
) -> tuple[float, float | None, float | None] | None:
    """A number of a row with the limits of its interval, which power and rate do not have."""
    time, energy = (sample(quantity).read(row) for quantity in COMPARED)
    cost = {"time": time, "energy": energy}.get(what)
    if cost is not None:
        return cost.value, cost.low, cost.high
    if what == "power" and time and energy:
        return energy.value / time.value, None, None
    iteration = TIME.read(row)
    if what == "rate" and iteration and flops:
        return flops / iteration.value, None, None
    return None


def _by_series(points: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for point in points:
        found[point["series"]].append(point)
    return found


def _curve(points: list[Record], axis: str, what: str, unit: str) -> Figure:
    """Lines through the points of each series, with intervals."""
    values, names = sorted({point["x"] for point in points}), list(_by_series(points))
    scale = alt.Scale(zero=False, nice=False, padding=20)
    if values[0] > 0 and values[-1] >= _WIDE * values[0]:
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
    legend = alt.Legend(title=None)
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("x:Q", scale=scale, axis=alt.Axis(title=axis, values=values, format=".12~g")),
        color=alt.Color("series:N", scale=series_scale(names, PALETTE), legend=legend),
    )
    of_samples = alt.Axis(title=unit, format="~s")
    scaled = of_samples if unit.startswith("samples") else si_axis("", unit)
    y = alt.Y("y:Q", scale=alt.Scale(zero=True), axis=scaled)
    tooltip: list[Any] = ["model:N", alt.Tooltip("y:Q", title=unit, format=".3~s")]
    shape = alt.Shape("series:N", scale=series_scale(names, SHAPES), legend=legend)
    layers = [
        base.mark_line().encode(y=y),
        base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tooltip),
    ]
    if any(point["low"] is not None for point in points):
        layers.insert(1, base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"))
    title, columns = f"{what} by {axis}", {"x": axis, "y": f"{what} ({unit})"}
    return figure(
        alt.layer(*layers), _HEIGHT, title, f"{title}, in {unit}.", {"points": points}, columns
    )


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
        x=alt.X("x:Q", scale=alt.Scale(zero=False), axis=si_axis("time", "s", tickCount=5)),
        y=alt.Y("y:Q", scale=alt.Scale(zero=False), axis=si_axis("energy", "J")),
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
    title = f"Energy against time of a {_each(rows)}"
    label = f"{title}. {on_front} on the Pareto front, filled."
    columns = {"x": sample(TIME).value, "y": sample(ENERGY).value}
    yield figure(chart, _HEIGHT, title, label, {"points": points}, columns)
