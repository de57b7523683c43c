"""The minimum of a cost along an axis, on a smooth curve through measured points; and products of
energy and time as costs.

The curve is a smoothing spline of the logarithms of cost and axis, as rough as the intervals of the
points suggest: its weighted sum of squares is n - sqrt(2 n), the lower end of the range to
n + sqrt(2 n) that Reinsch (Smoothing by spline functions, Numerische Mathematik 10, 1967) gives.
Intervals are from curves through points drawn about it (a parametric bootstrap: Efron and
Tibshirani, An Introduction to the Bootstrap, 1993, section 6.5).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opcost.statistics import NORMAL_97_5, Estimate

_LEAST_POINTS = 4
_DRAWS = 400
_PLACES = 201
_SEED = 0

_NORMAL_95 = NormalDist().inv_cdf(0.95)
_CLIFF = math.log(3)
"""Costs above three times the least are clipped, because the height of a cliff contains no
information about the minimum."""
_FAR = 3.0
"""Of a dozen equal costs, one rarely exceeds the least by more standard errors."""

_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]
_Curve = Callable[[_Floats], _Floats]


@dataclass(frozen=True)
class Optimum:
    """The least cost on the curve, and its place: places from `low` to `high` may be as good as
    `at`. The interval ends with the measured points, and a place beyond them may be better:
    `is_first` and `is_last` state whether `low` is the first and `high` the last point.
    """

    at: float
    low: float
    high: float
    cost: Estimate
    is_first: bool
    is_last: bool

    @property
    def beyond(self) -> str:
        """A note on interval ends that are measured end points, to follow the interval; or ""."""
        ends = {"smallest": self.is_first, "largest": self.is_last}
        which = " and the ".join(name for name, is_end in ends.items() if is_end)
        return f" (the {which} that was measured)" if which else ""


def energy_delay(time: Estimate | None, energy: Estimate | None, exponent: int) -> Estimate | None:
    """Energy times a power of the time, in joules and seconds: with 1 the energy-delay product
    (Gonzalez and Horowitz, Energy dissipation in general purpose microprocessors, IEEE Journal of
    Solid-State Circuits 31, 1996), with 2 ED2P (Martin, Nystroem and Penzes, ET2, in Power Aware
    Computing, 2002). None if one of the two is unknown or zero.

    As an energy is a power times the time, the time's relative error counts once for each power of
    it, and the power's error, the energy's beyond the time's, once.
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
    """The minimum of the curve through places and costs, within the measured range.

    None for fewer than four places, for places or costs that are not positive or have no interval
    or an error as large as they are, and if the curve swings far beyond the points. A place is as
    good as the best one if the difference between the two is less than the 95 % quantile of its
    error plus the curve's deviation there from straight lines between the points, which are as
    likely as the curve near a kink.

    The curve rounds a kink off, and may have its minimum beside it. The interval therefore includes
    the neighbours of the lowest measured point, and of points that may be the lowest: these enclose
    the minimum of any cost that falls to it and rises from there. The search ends at the neighbours
    of all points whose cost is not far above the lowest, regardless of the curve beyond.
    """
    ordered = sorted(points, key=lambda point: point[0])
    places = [place for place, _ in ordered]
    costs = [cost for _, cost in ordered]
    if len(set(places)) < max(_LEAST_POINTS, len(places)) or places[0] <= 0:
        return None
    if not all(cost.sd and cost.sd < cost.value for cost in costs):
        return None
    if not all(map(math.isfinite, [*places, *(cost.value + (cost.sd or 0.0) for cost in costs)])):
        return None
    x, y = np.log(places), np.log([cost.value for cost in costs])
    smoothed = np.minimum(y, y.min() + _CLIFF)
    errors = np.array([(cost.sd or math.nan) / cost.value for cost in costs])
    left, right = _neighbours(_not_above(y, errors, _FAR))
    grid = np.union1d(np.linspace(x[0], x[-1], _PLACES), x)
    grid = grid[(x[left] <= grid) & (grid <= x[right])]
    curve = _smooth(x, smoothed, errors)
    on_curve, at_points = curve(grid), curve(x)
    lowest, highest = _believable(smoothed, errors)
    if on_curve.min() < lowest or on_curve.max() > highest:
        return None
    best = int(np.argmin(on_curve))
    generator = np.random.default_rng(_SEED)
    drawn = [
        _smooth(x, at_points + generator.normal(0, errors), errors)(grid) for _ in range(_DRAWS)
    ]
    noise = np.clip(drawn, lowest, highest) - on_curve
    bend = np.abs(on_curve - np.interp(grid, x, at_points))

    def as_good(least: _Floats) -> _Bools:
        by_chance = np.quantile(noise - least[:, None], 0.95, axis=0)
        found: _Bools = on_curve - on_curve[best] <= by_chance + bend + bend[best]
        return found

    # The best was selected by errors that favour it from all that are as good.
    good = as_good(noise[:, as_good(noise[:, best])].min(axis=1))
    at = np.searchsorted(grid, x).clip(max=len(grid) - 1)
    may_be = _not_above(y, errors, _NORMAL_95)
    left, right = _neighbours(may_be)
    within = np.flatnonzero(good)
    first, last = min(int(within[0]), int(at[left])), max(int(within[-1]), int(at[right]))
    enclosed = range(left, right)
    least = min([on_curve[best], y.min(), *(_least_between(places, y, gap) for gap in enclosed)])
    measured = dict(zip(x, places, strict=True))
    at_best, low, high = (
        float(measured.get(grid[each], math.exp(grid[each]))) for each in (best, first, last)
    )
    return Optimum(
        at=at_best,
        low=low,
        high=high,
        cost=_estimate(on_curve, noise, good, least, float(bend[best])),
        is_first=bool(grid[first] <= x[0]),
        is_last=bool(grid[last] >= x[-1]),
    )


def _believable(y: _Floats, errors: _Floats) -> tuple[float, float]:
    """The plausible range of a curve through points: between unevenly spaced ones, a spline may
    swing without bound.
    """
    beyond = float(np.ptp(y) + _FAR * errors.max())
    return float(y.min()) - beyond, float(y.max()) + beyond


def _not_above(y: _Floats, errors: _Floats, deviations: float) -> _Bools:
    """The points whose cost exceeds the lowest by at most this many standard errors."""
    least = int(np.argmin(y))
    found: _Bools = y - y[least] <= deviations * np.hypot(errors, errors[least])
    return found


def _neighbours(points: _Bools) -> tuple[int, int]:
    """The points before the first of these and after the last."""
    among = np.flatnonzero(points)
    return max(int(among[0]) - 1, 0), min(int(among[-1]) + 1, len(points) - 1)


def _least_between(places: Sequence[float], y: _Floats, gap: int) -> float:
    """A lower bound of the logarithm of a convex cost between a point and the next: where the lines
    through these and their outer neighbours meet. A gap at an end has only one line, which is no
    bound: infinity.
    """
    if not 0 < gap < len(places) - 2:
        return math.inf
    before, start, end, after = (float(each) for each in np.exp(y[gap - 1 : gap + 3]))
    falls = (start - before) / (places[gap] - places[gap - 1])
    rises = (after - end) / (places[gap + 2] - places[gap + 1])
    width = places[gap + 1] - places[gap]
    if (
        rises <= falls
        or not 0 <= (meet := (end - start - rises * width) / (falls - rises)) <= width
    ):
        return math.inf
    cost = start + falls * meet
    return math.log(cost) if cost > 0 else -math.inf


def _smooth(x: _Floats, y: _Floats, errors: _Floats) -> _Curve:
    """The spline; if FITPACK finds none of that roughness, it returns the nearest. If it swings
    beyond the points, a smoother one is used, up to the upper end of the range.
    """
    from scipy.interpolate import splev, splrep

    between = np.linspace(x[0], x[-1], _PLACES)
    lowest, highest = _believable(y, errors)
    for roughness in (-1, 0, 1):
        squares = len(x) + roughness * math.sqrt(2 * len(x))
        knots, *_ = splrep(x, y, w=1 / errors, s=squares, full_output=1, quiet=1)
        curve = np.asarray(splev(between, knots), float)
        if lowest <= curve.min() and curve.max() <= highest:
            break
    return lambda at: np.asarray(splev(at, knots), float)


def _estimate(
    on_curve: _Floats, noise: _Floats, good: _Bools, least: float, bend: float
) -> Estimate:
    """The least cost, corrected for the bias of the minimum of a noisy curve by the draws.

    If the curve happens to be flat, the draws overestimate its bias. The mean over the places that
    may be as good has none, and is never below the least: it limits the value, and gives the upper
    limit. The lower one extends to `least`, where a kink between points may be.
    """
    lowest = (on_curve + noise).min(axis=1)
    mean, mean_sd = on_curve[good].mean(), noise[:, good].mean(axis=1).std()
    value = min(2 * on_curve.min() - lowest.mean(), mean)
    low = value - (lowest.mean() - np.quantile(lowest, 0.025))
    below = max(bend, float(on_curve.min()) - least)
    return Estimate(
        math.exp(value),
        math.exp(low - below),
        math.exp(mean + NORMAL_97_5 * mean_sd + bend),
    )
