"""The cost of each point of a sweep over axes of models and targets, and the least one. A point of
an operator's axes is an operator without a model.

Points of a series differ only in the batch size and in the axes of their targets. In each series,
the cost of a sample is compared with the least one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opcost import statistics
from opcost.costs.growth import Growth, growth
from opcost.costs.headline import headline, of_each
from opcost.costs.terms import Row, by_target
from opcost.models.axes import Point, Sweep, Value, number
from opcost.optimum import Optimum, energy_delay, optimum
from opcost.rows.quantities import COMPARED, ED2P, EDP, ENERGY, TIME, Quantity
from opcost.rows.runs import Noise
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

OBJECTIVES = (TIME, ENERGY, EDP, ED2P)
_EXPONENTS = {EDP: 1, ED2P: 2}
_MEASURED = ("device_name", "flags", "runs")


@dataclass(frozen=True)
class AlongAxis:
    """The least of a quantity along an axis, at these values of other axes."""

    quantity: Quantity
    axis: str
    at: Mapping[str, Value]
    optimum: Optimum


def above_least(quantity: Quantity) -> Quantity:
    """The cost of a sample relative to the least one of the series, minus 1."""
    return quantity.relative("above_least")


def sample(quantity: Quantity) -> Quantity:
    """The cost of a sample, and of a call of an operator without a model."""
    return quantity.of("sample")


def fixed(quantity: Quantity) -> Quantity:
    """The part of an iteration's cost that does not depend on its batch size."""
    return quantity.of("fixed")


def marginal(quantity: Quantity) -> Quantity:
    """The cost of one more sample."""
    return quantity.of("marginal")


def sweep_rows(
    sweeps: Iterable[Sweep],
    target_sweeps: Iterable[Sweep],
    comparison: Iterable[Row],
    models: Iterable[ModelTuples],
) -> list[dict[str, Any]]:
    """A row for each measured point of a sweep, in the order of the model's axes, then of the
    target's. A model without axes has points where targets have axes.

    A tuple is new on a target at the first point that has it.
    """
    on_targets, by_name = by_target(comparison), {model.model: model for model in models}
    with_axes = list(sweeps)
    swept = {name for sweep in with_axes for name in sweep.points}
    without_axes = [Sweep(name, {name: {}}) for name in by_name if name not in swept]
    points = {name: point for sweep in target_sweeps for name, point in sweep.points.items()}
    groups: dict[str, list[str]] = defaultdict(list)
    for target in on_targets:
        groups[_group(target, points.get(target, {}))].append(target)
    found = []
    for sweep in [*with_axes, *without_axes]:
        for targets in groups.values():
            on = {name: points.get(name, {}) for name in targets}
            if sweep in with_axes or any(on.values()):
                found += _rows(sweep, on, on_targets, by_name)
    return found


def titled(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Title -> the points of each sweep: its name and, if there are several, its targets."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["sweep"], _group(row["target"], on_target(row))].append(row)
    several = len({group for _, group in found}) > 1
    return {
        f"{name} on {group}" if several else name: points for (name, group), points in found.items()
    }


def _group(target: str, point: Point) -> str:
    """The common name of targets that differ in the values of the same axes: `local[threads]`."""
    base = target.partition("[")[0]
    return f"{base}[{','.join(point)}]" if point else base


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
            compared = on_targets[target].get(name)
            if compared is None:
                continue
            found = headline(compared)
            tuples = models[name].kernel_ids
            row: dict[str, Any] = {
                "sweep": sweep.name,
                "model": name,
                "target": target,
                "point": json.dumps(point),
                "target_point": json.dumps(of_target),
                "batch_size": found.batch_size,
                "tuples": len(tuples),
                "new_tuples": len(tuples - known[target]),
                TIME.run_sd: compared[TIME.run_sd],
                **_of_operator(compared),
            }
            known[target] |= tuples
            for quantity, estimated in (
                (TIME, found.time_is_estimate),
                (ENERGY, found.energy_is_estimate),
            ):
                cost = found.cost(quantity)
                row |= quantity.columns(cost)
                row[f"{quantity}_is_estimate"] = estimated if cost is not None else None
                row[f"{quantity}_reason"] = compared[f"{quantity}_reason"] if cost is None else None
                samples = found.batch_size if row["tuple_id"] is None else 1
                row |= sample(quantity).columns(of_each(cost, samples))
            rows.append(row)
    for series in series_of(rows):
        for quantity in COMPARED:
            for row, more in zip(series, _above_least(series, quantity), strict=True):
                row |= above_least(quantity).columns(more)
        costs = [(sample(TIME).read(row), sample(ENERGY).read(row)) for row in series]
        for row, (time, energy), is_on_front in zip(series, costs, on_front(costs), strict=True):
            for quantity in (EDP, ED2P):
                row |= sample(quantity).columns(objective(quantity, time, energy))
            row["is_on_front"] = is_on_front if len(series) > 1 else None
    for on_one in series_of(rows, ("point", "target_point")):
        for quantity in COMPARED:
            line = line_through(on_one, quantity)
            for row in on_one:
                row |= fixed(quantity).columns(line.fixed if line else None)
                row |= marginal(quantity).columns(line.each if line else None)
    return rows


def _of_operator(compared: Row) -> dict[str, Any]:
    """The tuple, work and device of an operator without a model, null for a model; the flags and
    runs of either.
    """
    names = ("tuple_id", "flops", "bytes", "device_name")
    if "tuple_id" in compared:
        return {name: compared[name] for name in (*names, "flags", "runs")}
    end_to_end = {"flags": "end_to_end_flags", "runs": "end_to_end_measurements"}
    return dict.fromkeys(names) | {name: compared[of] for name, of in end_to_end.items()}


def series_of(
    rows: Iterable[dict[str, Any]], whose: Sequence[str] = ("point",)
) -> list[list[dict[str, Any]]]:
    """Rows that agree in all axes of `whose`, except in axes of the model that follow the batch
    size.
    """
    listed = list(rows)
    axes = {axis for row in listed for axis in point_of(row)}
    batch = {axis for axis in axes if follows_batch(listed, axis)}
    series: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in listed:
        points = {each: point_of(row, each) for each in whose}
        points["point"] = {a: v for a, v in points["point"].items() if a not in batch}
        series[json.dumps(points)].append(row)
    return list(series.values())


def follows_batch(rows: Sequence[Row], axis: str) -> bool:
    """Whether an axis is the batch size."""
    return all(point_of(row)[axis] == row["batch_size"] for row in rows)


def _above_least(series: Sequence[Row], quantity: Quantity) -> list[Estimate | None]:
    """The relative cost above the least; None where it is unknown, and in a series of one."""
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


def point_of(row: Row, whose: str = "point") -> dict[str, Any]:
    """The value of each axis of a row's model, or of its target."""
    found: dict[str, Any] = json.loads(row[whose])
    return found


def on_target(row: Row) -> dict[str, Any]:
    """The value of each axis of a row's target."""
    return point_of(row, "target_point")


def line_through(series: Sequence[Row], quantity: Quantity) -> Growth | None:
    """The straight line of a series' cost by batch size, if one fits."""
    costs = [(row["batch_size"], quantity.read(row)) for row in series]
    found = growth([(size, cost) for size, cost in costs if size and cost is not None])
    return found if found and found.is_straight else None


def least_along_axes(series: Sequence[Row]) -> list[AlongAxis]:
    """The least cost of a sample along the batch size and the axes of targets, in a series."""
    batch = [axis for axis in point_of(series[0]) if follows_batch(series, axis)]
    points = [{**{axis: point_of(row)[axis] for axis in batch}, **on_target(row)} for row in series]
    costs = {each: [sample(each).read(row) for row in series] for each in OBJECTIVES}
    return optima(points, costs)


def axes_of(row: Row) -> dict[str, Any]:
    """The value of each axis of a row's model, then of its target."""
    return {**point_of(row), **on_target(row)}


def objective(
    quantity: Quantity, time: Estimate | None, energy: Estimate | None
) -> Estimate | None:
    """One of OBJECTIVES, from a time and the energy in it."""
    if quantity not in _EXPONENTS:
        return time if quantity == TIME else energy
    return energy_delay(time, energy, _EXPONENTS[quantity])


def on_front(costs: Sequence[tuple[Estimate | None, Estimate | None]]) -> list[bool | None]:
    """Whether each pair of time and energy is on the Pareto front: no other pair is less in one and
    not more in the other. None where one of them is unknown.
    """
    known = [(time.value, energy.value) for time, energy in costs if time and energy]

    def better(each: tuple[float, float], than: tuple[float, float]) -> bool:
        return each != than and each[0] <= than[0] and each[1] <= than[1]

    return [
        not any(better(each, (time.value, energy.value)) for each in known)
        if time and energy
        else None
        for time, energy in costs
    ]


def optima(
    points: Sequence[Mapping[str, Value]], costs: Mapping[Quantity, Sequence[Estimate | None]]
) -> list[AlongAxis]:
    """The least of each quantity along each axis of positive numbers with enough values, from the
    axes and costs of each point.
    """
    return [
        AlongAxis(quantity, axis, dict(json.loads(others)), found)
        for axis in dict.fromkeys(axis for point in points for axis in point)
        for others, places in _lines(points, axis)
        for quantity, of_points in costs.items()
        if (found := optimum([(x, cost) for place, x in places if (cost := of_points[place])]))
    ]


def _lines(
    points: Sequence[Mapping[str, Value]], axis: str
) -> Iterable[tuple[str, list[tuple[int, float]]]]:
    """The points along an axis, by number and value, for each combination of the other axes."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for index, point in enumerate(points):
        value = number(point.get(axis))
        if value is not None and value > 0:
            others = {each: point[each] for each in point if each != axis}
            found[json.dumps(others)].append((index, value))
    return found.items()


def single_operators(
    models: Mapping[str, Sequence[ModelTuples]],
    operator_rows: Sequence[Row],
    noises: Mapping[str, Noise],
) -> Iterator[dict[str, Any]]:
    """A row for each operator without a model on each target: its tuple, and the columns of the
    comparison that a headline and a sweep read. `models` and `noises` are by target.
    """
    rows = {(row["target"], row["tuple_id"]): row for row in operator_rows}
    for target, subjects in models.items():
        for subject in (each for each in subjects if each.is_operator):
            [(tuple_id, record)] = subject.by_id.items()
            row = rows.get((target, tuple_id))
            columns: dict[str, Any] = {
                "model": subject.model,
                "target": target,
                "tuple_id": tuple_id,
                "flops": record.flops,
                "bytes": record.bytes,
                "batch_size": None,
                "end_to_end_measurements": None,
                **{name: None if row is None else row[name] for name in _MEASURED},
                TIME.run_sd: noises[target].variations[TIME].sd if row else None,
            }
            for quantity in COMPARED:
                reason = _why_unknown(row, quantity)
                cost = noises[target].value(row, quantity) if row and reason is None else None
                columns |= quantity.of("estimate").columns(cost)
                columns |= quantity.of("end_to_end").columns(None)
                columns[f"{quantity}_reason"] = reason
            yield columns


def _why_unknown(row: Row | None, quantity: Quantity) -> str | None:
    if row is None:
        return "not measured"
    if row["status"] != "ok":
        return f"{row['status']}: {row['error']}"
    return row["energy_reason"] if quantity == ENERGY else None
