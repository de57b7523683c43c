"""What is least along the axes of a sweep: time, energy, and their products."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.models.axes import Value, number
from opcost.optimum import Optimum, energy_delay, optimum
from opcost.rows.quantities import ED2P, EDP, ENERGY, TIME, Quantity
from opcost.statistics import Estimate

OBJECTIVES = (TIME, ENERGY, EDP, ED2P)

_EXPONENTS = {EDP: 1, ED2P: 2}


def objective(
    quantity: Quantity, time: Estimate | None, energy: Estimate | None
) -> Estimate | None:
    """One of OBJECTIVES, from a time and the energy in it."""
    if quantity not in _EXPONENTS:
        return time if quantity == TIME else energy
    return energy_delay(time, energy, _EXPONENTS[quantity])


def on_front(costs: Sequence[tuple[Estimate | None, Estimate | None]]) -> list[bool | None]:
    """Whether each pair of time and energy is on the Pareto front: no other pair is less in one of
    the two and not more in the other. None where one of them is unknown.
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


@dataclass(frozen=True)
class AlongAxis:
    """The least of a quantity along an axis, with the other axes where `at` tells."""

    quantity: Quantity
    axis: str
    at: Mapping[str, Value]
    optimum: Optimum


def optima(
    points: Sequence[Mapping[str, Value]], costs: Mapping[Quantity, Sequence[Estimate | None]]
) -> list[AlongAxis]:
    """The least of each quantity along each axis of positive numbers with enough values.

    `points` have the value of each axis, and `costs` are those of each point.
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
