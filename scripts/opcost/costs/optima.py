"""What is least along the axes of a sweep: time, energy, and their products.

The energy-delay product of a sample is its energy times its time, and ED2P its energy times the
square of its time (Gonzalez and Horowitz, Energy dissipation in general purpose microprocessors,
IEEE Journal of Solid-State Circuits 31, 1996; Martin, Nystroem and Penzes, ET2: a metric for time
and energy efficiency of computation, in Power Aware Computing, 2002).
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.models.axes import Value
from opcost.optimum import Optimum, optimum
from opcost.rows.quantities import ED2P, EDP, ENERGY, TIME, Quantity
from opcost.statistics import NORMAL_97_5, Estimate

OBJECTIVES = (TIME, ENERGY, EDP, ED2P)

_EXPONENTS = {EDP: 1, ED2P: 2}


def objective(
    quantity: Quantity, time: Estimate | None, energy: Estimate | None
) -> Estimate | None:
    """One of OBJECTIVES, from a time and the energy in it.

    An energy is a power times the time: in a product, the time's relative error counts once for
    each power of it, and that of the power, which is what the energy's has beyond the time's, once.
    """
    if quantity not in _EXPONENTS:
        return time if quantity == TIME else energy
    if time is None or energy is None or not time.value or not energy.value:
        return None
    exponent = _EXPONENTS[quantity]
    value = energy.value * time.value**exponent
    if time.sd is None or energy.sd is None:
        return Estimate(value, None, None)
    of_time, of_energy = time.sd / time.value, energy.sd / energy.value
    of_power = math.sqrt(max(of_energy**2 - of_time**2, 0.0))
    margin = NORMAL_97_5 * math.hypot(of_power, (exponent + 1) * of_time) * value
    return Estimate(value, value - margin, value + margin)


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
    for number, point in enumerate(points):
        value = point.get(axis)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            others = {each: point[each] for each in point if each != axis}
            found[json.dumps(others)].append((number, float(value)))
    return found.items()
