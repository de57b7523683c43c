"""One model at several batch sizes, without axes: samples per second and per joule as curves."""

import json
from collections import defaultdict
from typing import Any

import altair as alt

from opcost.costs.headline import headline
from opcost.report.colours import PALETTE
from opcost.report.results import Results, Row
from opcost.report.theme import SHAPES, Figure, figure
from opcost.rows.quantities import COMPARED, Quantity

_HEIGHT = 240


def sweeps(results: Results, quantity: Quantity) -> list[dict[str, Any]]:
    """`series`, `batch`, `rate` with `low` and `high`, of models that differ in the batch alone.

    A rate is in samples for each second or joule. Models at one batch size have no point.
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    swept = {row["model"] for row in results.sweeps if row["point"] != "{}"}
    names = {
        row["model"]: _but_for_the_batch(row) for row in results.models if row["model"] not in swept
    }
    for row in results.comparison:
        costs = headline(row)
        cost = costs.cost(quantity)
        name = names.get(row["model"])
        if name is None or cost is None or not cost.value or costs.batch_size is None:
            continue
        batch = costs.batch_size
        high, low = (batch / limit if limit else None for limit in (cost.low, cost.high))
        target = f" on {row['target']}" if len(results.targets) > 1 else ""
        facts = {"model": row["model"], "batch": batch, "rate": batch / cost.value}
        found[f"{name}{target}"].append({**facts, "low": low, "high": high})
    several = {
        key: points
        for key, points in found.items()
        if len({point["batch"] for point in points}) > 1
    }
    series = _series(list(several))
    return [
        {"series": series[key], **point}
        for key, points in several.items()
        for point in sorted(points, key=lambda point: point["batch"])
    ]


def by_batch(results: Results) -> list[Figure]:
    """A chart of time, and of energy if there is any."""
    return [
        _figure(points, quantity) for quantity in COMPARED if (points := sweeps(results, quantity))
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


def _series(keys: list[str]) -> dict[str, str]:
    """A short name of each: what it is and its target, numbered if they are not enough."""
    found: dict[str, str] = {}
    for key in keys:
        what, target = key.partition(" {")[0], key.rpartition("}")[2]
        name = f"{what}{target}"
        same = sum(other.partition(" (")[0] == name for other in found.values())
        found[key] = f"{name} ({same + 1})" if same else name
    return found


def _figure(points: list[dict[str, Any]], quantity: Quantity) -> Figure:
    unit = f"samples/{quantity.symbol}"
    names = list(dict.fromkeys(point["series"] for point in points))
    batches = sorted({point["batch"] for point in points})
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(names))]
    shapes = [SHAPES[index % len(SHAPES)] for index in range(len(names))]
    legend = alt.Legend(title=None)
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X(
            "batch:Q",
            scale=alt.Scale(type="log", base=2, nice=False, padding=20),
            axis=alt.Axis(title="batch size", values=batches, format="d"),
        ),
        color=alt.Color("series:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
    )
    rate = alt.Y("rate:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(format="~s"))
    tooltip: list[Any] = ["model:N", "batch:Q", alt.Tooltip("rate:Q", title=unit, format=".3~s")]
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
    chart = alt.layer(
        base.mark_line().encode(y=rate),
        base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            y=rate, shape=shape, tooltip=tooltip
        ),
    )
    title = f"S{unit[1:]} by batch size"
    label = f"{unit} of each model against its batch size."
    return figure(chart, _HEIGHT, title, label, {"points": points})
