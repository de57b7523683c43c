"""A row for each point of a sweep: what it costs, and where a sample costs least.

Points of a series differ only in the batch size and in the axes of their targets. In each series,
the least cost of a sample is marked, and what noise does not separate from it. An operator without
a model has calls instead of samples.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opcost.costs.headline import headline, of_each
from opcost.costs.terms import Row, by_target
from opcost.groups import grouped
from opcost.models.axes import Point, Sweep
from opcost.rows.quantities import COMPARED, ED2P, EDP, ENERGY, TIME, Quantity
from opcost.rows.runs import Noise
from opcost.statistics import Estimate, energy_delay, least
from opcost.tuples.model_tuples import ModelTuples

OBJECTIVES = (TIME, ENERGY, EDP, ED2P)
_EXPONENTS = {EDP: 1, ED2P: 2}
_BATCH = "batch"


def sweep_rows(
    sweeps: Iterable[Sweep],
    target_sweeps: Iterable[Sweep],
    comparison: Iterable[Row],
    models: Iterable[ModelTuples],
) -> list[dict[str, Any]]:
    """A row for each compared point of a sweep, in the order of the model's axes, then of the
    target's. Models that differ in the batch size alone are a sweep, too, and so is any model where
    targets have axes.
    """
    on_targets = by_target(comparison)
    target_points = {name: point for sweep in target_sweeps for name, point in sweep.points.items()}
    with_axes = list(sweeps)
    with_axes += _of_batches(models, {name for sweep in with_axes for name in sweep.points})
    swept = {name for sweep in with_axes for name in sweep.points}
    others = dict.fromkeys(name for rows in on_targets.values() for name in rows)
    without_axes = [Sweep(name, {name: {}}) for name in others if name not in swept]
    rows = [
        _row(sweep.name, point, target_points.get(target, {}), compared[name])
        for sweep in [*with_axes, *without_axes]
        for name, point in sweep.points.items()
        for target, compared in on_targets.items()
        if name in compared and (name in swept or target in target_points)
    ]
    for points in by_sweep(rows).values():
        for series in series_of(points):
            _mark_least(series)
    return rows


def by_sweep(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Title -> the points of each sweep on targets that differ in the values of the same axes:
    `resnet18_sweep on local[threads]`.
    """
    return grouped((f"{row['sweep']} on {_without_values(row)}", row) for row in rows)


def series_of(points: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The points of a sweep that agree in the axes of the model, except for the batch size."""
    batch = batch_axes(points)

    def others(row: Row) -> str:
        return json.dumps({a: value for a, value in point_of(row).items() if a not in batch})

    return list(grouped((others(row), row) for row in points).values())


def batch_axes(points: Sequence[Row]) -> set[str]:
    """The axes of the model that are the batch size."""
    return {
        axis
        for axis in point_of(points[0])
        if all(point_of(row)[axis] == row["batch_size"] for row in points)
    }


def point_of(row: Row) -> Point:
    """The value of each axis of a row's model."""
    found: Point = json.loads(row["point"])
    return found


def on_target(row: Row) -> Point:
    """The value of each axis of a row's target."""
    found: Point = json.loads(row["target_point"])
    return found


def axes_of(row: Row) -> Point:
    """The value of each axis of a row's model, then of its target."""
    return {**point_of(row), **on_target(row)}


def sample_cost(row: Row, objective: Quantity) -> Estimate | None:
    """What a sample costs, of one of `OBJECTIVES`; or a call, or an iteration of unknown size."""
    time, energy = (of_each(each.read(row), row["batch_size"] or 1) for each in COMPARED)
    if objective in _EXPONENTS:
        return energy_delay(time, energy, _EXPONENTS[objective])
    return time if objective == TIME else energy


def _of_batches(models: Iterable[ModelTuples], swept: Collection[str]) -> Iterator[Sweep]:
    """A sweep `resnet50[batch]` of models that have no axes and differ in the batch size alone, as
    `--batch 1,8` makes them.
    """
    alike: dict[str, dict[int, str]] = defaultdict(dict)
    for model in models:
        definition = model.definition
        if definition is not None and definition.batch_size and model.model not in swept:
            inputs = tuple(replace(spec, shape=spec.shape[1:]) for spec in definition.inputs)
            but_for_the_batch = replace(definition, name="", inputs=inputs).to_json()
            alike[but_for_the_batch].setdefault(definition.batch_size, model.model)
    for names in alike.values():
        if len(names) > 1:
            size, name = next(iter(names.items()))
            points: dict[str, Point] = {names[batch]: {_BATCH: batch} for batch in sorted(names)}
            yield Sweep(f"{name.replace(f'_b{size}', '')}[{_BATCH}]", points)


def _row(sweep: str, point: Point, target_point: Point, compared: Row) -> dict[str, Any]:
    found = headline(compared)
    is_operator = "tuple_id" in compared
    row: dict[str, Any] = {
        "sweep": sweep,
        "model": compared["model"],
        "target": compared["target"],
        "point": json.dumps(point),
        "target_point": json.dumps(target_point),
        "batch_size": found.batch_size,
        "tuple_id": compared["tuple_id"] if is_operator else None,
        "flops": compared["flops"],
        "bytes": compared["bytes"] if is_operator else None,
        "flags": compared["flags" if is_operator else "end_to_end_flags"],
        "estimated": [str(each) for each in COMPARED if found.is_estimate(each)],
        "least": [],
        "within_noise": [],
    }
    for quantity in COMPARED:
        cost = found.cost(quantity)
        row |= quantity.columns(cost)
        row[f"{quantity}_reason"] = compared[f"{quantity}_reason"] if cost is None else None
    row["samples_per_s"] = None
    if found.batch_size and found.time:
        row["samples_per_s"] = found.batch_size / found.time.value
    for objective in OBJECTIVES[1:]:
        cost = sample_cost(row, objective)
        row[objective.of("sample").value] = None if cost is None else cost.value
    return row


def _mark_least(series: Sequence[dict[str, Any]]) -> None:
    for objective in OBJECTIVES:
        costs = [sample_cost(row, objective) for row in series]
        best, alike = least(costs)
        if best is not None and sum(cost is not None for cost in costs) > 1:
            series[best]["least"].append(str(objective))
            for place in alike:
                series[place]["within_noise"].append(str(objective))


def _without_values(row: Row) -> str:
    """The common name of targets that differ in the values of the same axes: `local[threads]`."""
    axes = ",".join(on_target(row))
    return f"{row['target'].partition('[')[0]}[{axes}]" if axes else row["target"]


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
                "flags": None if row is None else row["flags"],
                "batch_size": None,
                "end_to_end_measurements": None,
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
