"""Estimates with their uncertainty. SciPy, slow to import, is imported where it is used."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

NORMAL_97_5 = statistics.NormalDist().inv_cdf(0.975)
"""Half of a 95 % interval of a normal variable, in standard deviations."""

_LEAST_OF_A_LINE = 3
"""A line through fewer points would always fit."""
_MISFIT_P = 0.01


@dataclass(frozen=True)
class Estimate:
    """A value with a two-sided 95 % confidence interval, in the unit of the data.

    The limits are None if the data are too few for an interval.
    """

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def plus(self, constant: float) -> "Estimate":
        """The estimate shifted by an exact number."""
        return self.changed(lambda each: each + constant)

    def times(self, factor: float) -> "Estimate":
        """The estimate multiplied by an exact number that is not negative."""
        return self.changed(lambda each: each * factor)

    def changed(self, change: Callable[[float], float]) -> "Estimate":
        """The estimate under a function that increases."""
        low, high = (None if each is None else change(each) for each in (self.low, self.high))
        return Estimate(change(self.value), low, high)

    @property
    def half_width(self) -> float | None:
        """Half of the interval, in the unit of the value."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval as a share of the value."""
        if self.half_width is None or self.value == 0:
            return None
        return self.half_width / abs(self.value)

    @property
    def sd(self) -> float | None:
        """The standard deviation of a normal distribution with this interval."""
        return None if self.half_width is None else self.half_width / NORMAL_97_5


def median(data: Sequence[float]) -> Estimate:
    """The median with the interval between order statistics, which assumes no distribution.

    The interval (x_k, x_(n+1-k)) contains the median of independent values with probability
    1 - 2 P(Binomial(n, 1/2) < k); k is the largest for which that is at least 95 %. Fewer than 6
    values have no interval. (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2.)
    Raises statistics.StatisticsError without data.
    """
    from scipy import special

    ordered = sorted(data)
    value = statistics.median(ordered)
    cumulative = special.bdtr(np.arange(len(ordered) // 2 + 1), len(ordered), 0.5)
    rank = int(np.searchsorted(cumulative, 0.025, side="right"))
    if rank == 0:
        return Estimate(value, None, None)
    return Estimate(value, ordered[rank - 1], ordered[-rank])


def mean(data: Sequence[float]) -> Estimate:
    """The mean of independent values, with Student's interval; a single value has none.

    Raises statistics.StatisticsError without data.
    """
    from scipy import special

    value = statistics.fmean(data)
    if len(data) < 2:
        return Estimate(value, None, None)
    quantile = float(special.stdtrit(len(data) - 1, 0.975))
    margin = quantile * statistics.stdev(data) / math.sqrt(len(data))
    return Estimate(value, value - margin, value + margin)


def overlap(first: Estimate, second: Estimate) -> bool:
    """Whether two intervals have a value in common; an unknown one may contain any."""
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return True
    return first.low <= second.high and second.low <= first.high


def drifts(data: Sequence[float]) -> bool:
    """Whether the intervals of the medians of the first and the second half do not overlap."""
    middle = len(data) // 2
    if middle < 6:
        return False
    return not overlap(median(data[:middle]), median(data[middle:]))


def product(first: Estimate, second: Estimate) -> Estimate:
    """The product of two independent positive estimates, relative half-widths in quadrature."""
    value = first.value * second.value
    return _with_errors(value, [(second.value, first), (first.value, second)])


def ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The quotient of two independent positive estimates, relative half-widths in quadrature.

    If all limits are positive, half-widths of the logarithms are used: a wide interval of the
    denominator extends further up in the quotient than down.
    """
    value = numerator.value / denominator.value
    if all(each.low is not None and each.low > 0 for each in (numerator, denominator)):
        terms = [(1.0, numerator.changed(math.log)), (-1.0, denominator.changed(math.log))]
        return _with_errors(0.0, terms).changed(lambda log: value * math.exp(log))
    return _with_errors(
        value, [(1 / denominator.value, numerator), (-value / denominator.value, denominator)]
    )


def weighted_sum(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of weight x estimate over independent estimates, half-widths in quadrature.

    A weight multiplies its estimate's error, because all calls of a tuple share one measurement.
    The sum has no interval if a term has none.
    """
    listed = list(terms)
    return _with_errors(sum(weight * each.value for weight, each in listed), listed)


def correlated_sum(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of weight x estimate over fully correlated estimates: limits add up.

    Weights are not negative. The sum has no interval if a term has none.
    """
    listed = list(terms)

    def total(limits: Sequence[float | None]) -> float | None:
        known = [
            weight * each
            for (weight, _), each in zip(listed, limits, strict=True)
            if each is not None
        ]
        return sum(known) if len(known) == len(listed) else None

    return Estimate(
        sum(weight * each.value for weight, each in listed),
        total([each.low for _, each in listed]),
        total([each.high for _, each in listed]),
    )


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


def least(costs: Sequence[Estimate | None]) -> tuple[int | None, list[int]]:
    """The position of the least positive cost, None if there is none, and the positions of those
    that noise does not separate from it: the interval of their ratio includes 1, or is unknown.
    """
    known = {place: cost for place, cost in enumerate(costs) if cost is not None and cost.value > 0}
    if not known:
        return None, []
    best = min(known, key=lambda place: known[place].value)
    ratios = {place: ratio(cost, known[best]) for place, cost in known.items() if place != best}
    return best, [place for place, each in ratios.items() if each.low is None or each.low <= 1]


def straight_line(points: Iterable[tuple[float, Estimate]]) -> tuple[Estimate, Estimate] | None:
    """The start a and the slope b of value = a + b x, weighted by the variances of the values.

    None for fewer than three places with an interval, and if the line does not fit: its squared
    residuals are larger than these intervals explain (chi-squared test at 1 %).
    """
    from scipy import special

    known = [(x, each.value, each.sd) for x, each in points if each.sd]
    if len({x for x, _, _ in known}) < _LEAST_OF_A_LINE:
        return None
    x, values, sds = np.array(known, float).T
    line, covariance = np.polyfit(x, values, 1, w=1 / sds, cov="unscaled")
    squares = float(np.sum(((values - np.polyval(line, x)) / sds) ** 2))
    if special.chdtrc(len(known) - 2, squares) < _MISFIT_P:
        return None
    slope, start = (
        Estimate(float(value), float(value - margin), float(value + margin))
        for value, margin in zip(line, NORMAL_97_5 * np.sqrt(np.diag(covariance)), strict=True)
    )
    return start, slope


def student_97_5(degrees_of_freedom: float | None) -> float:
    """Half of a 95 % interval in units of the scale; of a normal distribution for None."""
    from scipy import special

    if degrees_of_freedom is None:
        return NORMAL_97_5
    return float(special.stdtrit(degrees_of_freedom, 0.975))


def _with_errors(value: float, terms: Sequence[tuple[float, Estimate]]) -> Estimate:
    """The value with the errors of all terms, times their weights; without if one is unknown."""
    below = above = 0.0
    for weight, each in terms:
        if each.low is None or each.high is None:
            return Estimate(value, None, None)
        sides = (weight * (each.value - each.low), weight * (each.high - each.value))
        down, up = sides if weight >= 0 else reversed(sides)
        below, above = below + down**2, above + up**2
    return Estimate(value, value - math.sqrt(below), value + math.sqrt(above))
