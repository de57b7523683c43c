"""What a sweep found: the cost of each point of axes of models and targets, and the most frugal.

Points of a series differ in the batch size and in the axes of their targets alone. In each series,
the cost of a sample is compared with the least one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opcost import statistics
from opcost.costs.headline import ESTIMATED, headline
from opcost.costs.terms import Row, by_target
from opcost.models.axes import Point, Sweep, label, text
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import counted, difference, table, with_interval, wrapped
from opcost.tuples.model_tuples import ModelTuples

_NOTHING = "-"


def above_least(quantity: Quantity) -> Quantity:
    """How much more a sample costs than at the most frugal point of the series, as a share."""
    return quantity.relative("above_least")


def sample(quantity: Quantity) -> Quantity:
    """The cost of a sample."""
    return quantity.of("sample")


def sweep_rows(
    sweeps: Iterable[Sweep],
    target_sweeps: Iterable[Sweep],
    comparison: Iterable[Row],
    models: Iterable[ModelTuples],
) -> list[dict[str, Any]]:
    """A row for each point of a sweep that was measured, in the order of the axes: those of the
    model, then those of the target. A model without axes has points where targets have axes.

    A tuple is new on a target at the first point that has it.
    """
    on_targets, by_name = by_target(comparison), {model.model: model for model in models}
    with_axes = list(sweeps)
    swept = {name for sweep in with_axes for name in sweep.points}
    alone = [Sweep(name, {name: {}}) for name in by_name if name not in swept]
    points = {name: point for sweep in target_sweeps for name, point in sweep.points.items()}
    groups: dict[str, list[str]] = defaultdict(list)
    for target in on_targets:
        groups[base_target(target)].append(target)
    found = []
    for sweep in [*with_axes, *alone]:
        for targets in groups.values():
            on = {name: points.get(name, {}) for name in targets}
            if sweep in with_axes or any(on.values()):
                found += _rows(sweep, on, on_targets, by_name)
    return found


def base_target(target: str) -> str:
    """The target whose axes a target is a point of, or that itself."""
    return target.partition("[")[0]


def sweep_lines(rows: Sequence[Row]) -> list[str]:
    """Sweeps as text: the points of each, and the most frugal ones. Empty without rows."""
    sweeps: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        sweeps[row["sweep"], base_target(row["target"])].append(row)
    several = len({target for _, target in sweeps}) > 1
    lines: list[str] = []
    for (name, target), points in sweeps.items():
        on = f" on {target}" if several else ""
        lines += ["", f"Sweep {name}{on}: {_tuples(points)}", "", *_table(points)]
        lines += ["", *wrapped(found)] if (found := _most_frugal(points)) else []
    return lines[1:]


def _rows(
    sweep: Sweep,
    targets: Mapping[str, Point],
    on_targets: Mapping[str, Mapping[str, Row]],
    models: Mapping[str, ModelTuples],
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    known: dict[str, set[str]] = defaultdict(set)
    for name, point in sweep.points.items():
        for target, of_target in targets.items():
            if name not in on_targets[target]:
                continue
            found = headline(on_targets[target][name])
            tuples = models[name].by_id.keys()
            row: dict[str, Any] = {
                "sweep": sweep.name,
                "model": name,
                "target": target,
                "point": json.dumps(point),
                "target_point": json.dumps(of_target),
                "batch_size": found.batch_size,
                "tuples": len(tuples),
                "new_tuples": len(tuples - known[target]),
            }
            known[target] |= tuples
            for quantity, estimated in (
                (TIME, found.time_is_estimate),
                (ENERGY, found.energy_is_estimate),
            ):
                cost = found.cost(quantity)
                row |= quantity.columns(cost)
                row[f"{quantity}_is_estimate"] = estimated if cost is not None else None
                row |= sample(quantity).columns(_each(cost, found.batch_size))
            rows.append(row)
    for series in _series(rows):
        for quantity in COMPARED:
            for row, more in zip(series, _above_least(series, quantity), strict=True):
                row |= above_least(quantity).columns(more)
    return rows


def _each(cost: Estimate | None, samples: int | None) -> Estimate | None:
    if cost is None or not samples:
        return None
    return statistics.weighted_sum([(1 / samples, cost)])


def _series(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows that have all axes of the model in common but those that follow the batch size."""
    listed = list(rows)
    axes = {axis for row in listed for axis in _point(row)}
    batch = {axis for axis in axes if _follows_batch(listed, axis)}
    series: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in listed:
        point = {axis: value for axis, value in _point(row).items() if axis not in batch}
        series[json.dumps(point)].append(row)
    return list(series.values())


def _follows_batch(rows: Sequence[Row], axis: str) -> bool:
    """Whether an axis is the batch size."""
    return all(_point(row)[axis] == row["batch_size"] for row in rows)


def _above_least(series: Sequence[Row], quantity: Quantity) -> list[Estimate | None]:
    """The extra cost of each point; None where it is unknown, and in a series of one."""
    costs = [sample(quantity).read(row) for row in series]
    known = [cost for cost in costs if cost is not None]
    if len(known) < 2 or not min(cost.value for cost in known):
        return [None] * len(costs)
    least = min(known, key=lambda cost: cost.value)
    return [
        None
        if cost is None
        else Estimate(0.0, 0.0, 0.0)
        if cost is least
        else statistics.ratio(cost, least).plus(-1)
        for cost in costs
    ]


def _point(row: Row, whose: str = "point") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row[whose])
    return found


def _on_target(row: Row) -> dict[str, Any]:
    return _point(row, "target_point")


def _tuples(points: Sequence[Row]) -> str:
    models = {row["model"]: row["tuples"] for row in points}
    first = points[0]["target"]
    distinct = sum(row["new_tuples"] for row in points if row["target"] == first)
    every = sum(models.values())
    on = {row["target"] for row in points}
    return (
        f"{counted(len(models), 'model')} of {every:,} operator tuples, {distinct:,} of them "
        f"distinct{f', on {len(on)} targets' if len(on) > 1 else ''}"
    )


def _table(points: Sequence[Row]) -> list[str]:
    cells = [
        {
            **{label(axis): text(value) for axis, value in _axes(row).items()},
            "time": _cost(row, TIME),
            "time/sample": with_interval(sample(TIME).read(row), TIME.show),
            "above least": _above(row, TIME),
            "energy": _cost(row, ENERGY),
            "energy/sample": with_interval(sample(ENERGY).read(row), ENERGY.show),
            "energy above least": _above(row, ENERGY),
            "new tuples": str(row["new_tuples"]),
        }
        for row in points
    ]
    shown = [title for title in cells[0] if any(row[title] != _NOTHING for row in cells)]
    rows = [[row[title] for title in shown] for row in cells]
    return table(shown, rows, left=len(_axes(points[0])))


def _axes(row: Row) -> dict[str, Any]:
    return {**_point(row), **_on_target(row)}


def _cost(row: Row, quantity: Quantity) -> str:
    shown = with_interval(quantity.read(row), quantity.show)
    return shown + (ESTIMATED if row[f"{quantity}_is_estimate"] else "")


def _above(row: Row, quantity: Quantity) -> str:
    more = above_least(quantity).read(row)
    return "least" if more is not None and not more.value else difference(more)


def _most_frugal(points: Sequence[Row]) -> list[str]:
    """The points at which a sample costs least, in each series and of each quantity."""
    found = []
    axis_of_batch = len({row["batch_size"] for row in points}) > 1
    for series in _series([dict(row) for row in points]):
        for quantity in COMPARED:
            more = [(row, above_least(quantity).read(row)) for row in series]
            least = next((row for row, each in more if each is not None and not each.value), None)
            if least is None:
                continue
            as_good = [
                _free(row, axis_of_batch)
                for row, each in more
                if row is not least and each is not None and (each.low is None or each.low <= 0)
            ]
            where = [
                f"{label(axis)}={text(value)}"
                for axis, value in _point(least).items()
                if not _follows_batch(points, axis)
            ]
            cost = with_interval(sample(quantity).read(least), quantity.show)
            found.append(
                f"Least {quantity} per sample{' at ' + ', '.join(where) if where else ''}: "
                f"{_free(least, axis_of_batch)}, {cost}"
                + (f"; not told apart from it: {', '.join(as_good)}." if as_good else ".")
            )
    return found


def _free(row: Row, axis_of_batch: bool) -> str:
    """What a point is called among others of its series."""
    batch = [f"batch size {row['batch_size']}"] if axis_of_batch else []
    return " with ".join(
        [*batch, *(f"{label(axis)}={text(value)}" for axis, value in _on_target(row).items())]
    )
