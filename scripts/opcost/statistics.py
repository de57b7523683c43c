"""Estimates with their uncertainty. SciPy, slow to import, is imported where it is used."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_NORMAL_75 = statistics.NormalDist().inv_cdf(0.75)
NORMAL_97_5 = statistics.NormalDist().inv_cdf(0.975)
"""Half of a 95 % interval of a normal variable, in standard deviations."""


@dataclass(frozen=True)
class Estimate:
    """A value with a two-sided 95 % confidence interval, in the unit of the data.

    The limits are None if the data are too few for an interval.
    """

    value: float
    low: float | None
    high: float | None

    def widened(self, relative_sd: float) -> "Estimate":
        """The estimate with an independent relative error added to its interval in quadrature."""
        if self.low is None or self.high is None:
            return self
        margin = NORMAL_97_5 * relative_sd * self.value
        return Estimate(
            self.value,
            self.value - math.hypot(self.value - self.low, margin),
            self.value + math.hypot(self.high - self.value, margin),
        )

    def plus(self, constant: float) -> "Estimate":
        """The estimate shifted by an exact number."""
        limits = (None if each is None else each + constant for each in (self.low, self.high))
        return Estimate(self.value + constant, *limits)

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval as a share of the value."""
        if self.low is None or self.high is None or self.value == 0:
            return None
        return (self.high - self.low) / 2 / abs(self.value)


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


def drifts(data: Sequence[float]) -> bool:
    """Whether the intervals of the medians of the first and the second half do not overlap."""
    middle = len(data) // 2
    if middle < 6:
        return False
    first, second = median(data[:middle]), median(data[middle:])
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return False
    return first.high < second.low or second.high < first.low


def spread_of_pairs(pairs: Sequence[tuple[float, float]]) -> float | None:
    """The relative standard deviation between measurements of one quantity.

    A robust estimate from pairs of measurements of different quantities: the median of
    abs(ln(second / first)), divided by its value for standard normal data. None for fewer than 6
    pairs.
    """
    if len(pairs) < 6:
        return None
    middle = statistics.median(abs(math.log(second / first)) for first, second in pairs)
    return middle / (_NORMAL_75 * math.sqrt(2))


def product(first: Estimate, second: Estimate) -> Estimate:
    """The product of two independent positive estimates, relative half-widths in quadrature."""
    return _combine(first.value * second.value, (first, False), (second, False))


def ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The quotient of two independent positive estimates, relative half-widths in quadrature."""
    return _combine(numerator.value / denominator.value, (numerator, False), (denominator, True))


def weighted_sum(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of weight x estimate over independent estimates, half-widths in quadrature.

    A weight multiplies its estimate's error, because all calls of a tuple share one
    measurement. The sum has no interval if one of the terms has none.
    """
    total, below, above, complete = 0.0, 0.0, 0.0, True
    for weight, estimate in terms:
        total += weight * estimate.value
        if estimate.low is None or estimate.high is None:
            complete = False
            continue
        below += (weight * (estimate.value - estimate.low)) ** 2
        above += (weight * (estimate.high - estimate.value)) ** 2
    if not complete:
        return Estimate(total, None, None)
    return Estimate(total, total - math.sqrt(below), total + math.sqrt(above))


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> Estimate:
    """The value that splits the weight in half, with the interval of the weighted sign test.

    Under the test, each value is above or below the median with probability 1/2, and the sum of
    weight x sign is approximately normal with the sum of squared weights as its variance. There is
    no interval if the limits lie beyond all values. Raises statistics.StatisticsError without data.
    """
    if not len(values):
        raise statistics.StatisticsError("the median of no values")
    order = np.argsort(values, kind="stable")
    ordered, share = np.asarray(values)[order], np.asarray(weights)[order]
    below = np.cumsum(share) / share.sum()
    middle = int(np.searchsorted(below, 0.5))
    value = float(ordered[middle])
    if math.isclose(below[middle], 0.5) and middle + 1 < len(ordered):
        value = float(ordered[middle] + ordered[middle + 1]) / 2
    margin = NORMAL_97_5 * math.sqrt((share**2).sum()) / share.sum() / 2
    if margin >= 0.5:
        return Estimate(value, None, None)
    low, high = np.searchsorted(below, [0.5 - margin, 0.5 + margin])
    return Estimate(value, float(ordered[low]), float(ordered[min(high, len(ordered) - 1)]))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for multiple tests: rejecting those up to `level` makes one or more errors
    with a probability of at most `level`, whatever the dependence between the tests.

    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6 (1979).
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()


def _combine(value: float, *factors: tuple[Estimate, bool]) -> Estimate:
    below, above = 0.0, 0.0
    for factor, inverse in factors:
        if factor.low is None or factor.high is None:
            return Estimate(value, None, None)
        down = (factor.value - factor.low) / factor.value
        up = (factor.high - factor.value) / factor.value
        below += (up if inverse else down) ** 2
        above += (down if inverse else up) ** 2
    return Estimate(value, value * (1 - math.sqrt(below)), value * (1 + math.sqrt(above)))
