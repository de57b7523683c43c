"""Where a cost is least along an axis: a smooth curve through measured points, and its minimum;
and products of energy and time as costs.

The curve is a smoothing spline of the logarithms of cost and axis, as rough as the intervals of the
points ask for: its weighted sum of squares is n - sqrt(2 n), the lower end of the range that
Reinsch (Smoothing by spline functions, Numerische Mathematik 10, 1967) gives. Intervals are from
curves through points that are drawn about it (a parametric bootstrap: Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, section 6.5).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opcost.statistics import NORMAL_97_5, Estimate

_LEAST_POINTS = 4
_DRAWS = 400
_PLACES = 201
_SEED = 0

_Floats = NDArray[np.float64]
_Curve = Callable[[_Floats], _Floats]


@dataclass(frozen=True)
class Optimum:
    """The least cost on the curve, and where it is: `low` and `high` enclose the places that may be
    as good as `at`. An interval ends where the measured points do; `is_bounded` tells whether it
    lies within, as otherwise a place beyond them may be better.
    """

    at: float
    low: float
    high: float
    cost: Estimate
    is_bounded: bool


def energy_delay(time: Estimate | None, energy: Estimate | None, exponent: int) -> Estimate | None:
    """Energy times a power of the time, in joules and seconds: with 1 the energy-delay product
    (Gonzalez and Horowitz, Energy dissipation in general purpose microprocessors, IEEE Journal of
    Solid-State Circuits 31, 1996), with 2 ED2P (Martin, Nystroem and Penzes, ET2, in Power Aware
    Computing, 2002). None if one of the two is unknown or zero.

    An energy is a power times the time: the time's relative error counts once for each power of it,
    and that of the power, which is what the energy's has beyond the time's, once.
    """
    if time is None or energy is None or not time.value or not energy.value:
        return None
    value = energy.value * time.value**exponent
    if time.sd is None or energy.sd is None:
        return Estimate(value, None, None)
    of_time, of_energy = time.sd / time.value, energy.sd / energy.value
    of_power = math.sqrt(max(of_energy**2 - of_time**2, 0.0))
    margin = NORMAL_97_5 * math.hypot(of_power, (exponent + 1) * of_time) * value
    return Estimate(value, value - margin, value + margin)


def optimum(points: Sequence[tuple[float, Estimate]]) -> Optimum | None:
    """The minimum of the curve through places and costs, never outside what was measured.

    None for fewer than four places, and for places or costs that are not positive or have no
    interval. A place is as good as the best one if the difference between the two is less than the
    95 % quantile of its error and what the curve departs there from straight lines between the
    points: of a kink, nothing more is known.
    """
    ordered = sorted(points, key=lambda point: point[0])
    places = [place for place, _ in ordered]
    costs = [cost for _, cost in ordered]
    if len(set(places)) < max(_LEAST_POINTS, len(places)) or places[0] <= 0:
        return None
    if not all(cost.sd and cost.value > 0 for cost in costs):
        return None
    if not all(
        map(math.isfinite, [*places, *(each for c in costs for each in (c.value, c.sd or 0))])
    ):
        return None
    x, y = np.log(places), np.log([cost.value for cost in costs])
    errors = np.array([(cost.sd or math.nan) / cost.value for cost in costs])
    grid = np.union1d(np.linspace(x[0], x[-1], _PLACES), x)
    curve = _smooth(x, y, errors)
    on_curve, at_points = curve(grid), curve(x)
    best = int(np.argmin(on_curve))
    generator = np.random.default_rng(_SEED)
    drawn = [
        _smooth(x, at_points + generator.normal(0, errors), errors)(grid) for _ in range(_DRAWS)
    ]
    curves = np.array(drawn)
    worse = on_curve - on_curve[best]
    by_chance = np.quantile(curves - curves[:, [best]] - worse, 0.95, axis=0)
    bend = np.abs(on_curve - np.interp(grid, x, at_points))
    as_good = np.flatnonzero(worse <= by_chance + bend + bend[best])
    first, last = int(as_good[0]), int(as_good[-1])
    return Optimum(
        at=float(np.exp(grid[best])),
        low=float(np.exp(grid[first])),
        high=float(np.exp(grid[last])),
        cost=_estimate(on_curve[best], curves.min(axis=1), float(bend[best])),
        is_bounded=first > 0 and last < len(grid) - 1,
    )


def _smooth(x: _Floats, y: _Floats, errors: _Floats) -> _Curve:
    """The spline; where FITPACK finds none of that roughness, it returns the nearest."""
    from scipy.interpolate import splev, splrep

    knots, *_ = splrep(x, y, w=1 / errors, s=len(x) - math.sqrt(2 * len(x)), full_output=1, quiet=1)
    return lambda at: np.asarray(splev(at, knots), float)


def _estimate(log_cost: float, drawn: _Floats, bend: float) -> Estimate:
    """The limits leave out the bias of the minimum of a noisy curve, which the draws show twice."""
    low, high = np.quantile(drawn, [0.025, 0.975])
    bias = float(np.mean(drawn)) - log_cost
    return Estimate(
        math.exp(log_cost - bias),
        math.exp(min(low - 2 * bias, log_cost - bias) - bend),
        math.exp(max(high - 2 * bias, log_cost - bias) + bend),
    )
