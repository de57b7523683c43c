"""Estimates with their uncertainty. SciPy, slow to import, is imported where it is used."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

NORMAL_97_5 = statistics.NormalDist().inv_cdf(0.975)
"""Half of a 95 % interval of a normal variable, in standard deviations."""


@dataclass(frozen=True)
class Estimate:
    """A value with a two-sided 95 % confidence interval, in the unit of the data.

    The limits are None if the data are too few for an interval. `degrees_of_freedom` are those of
    the Student's distribution behind the interval, more than 2; None stands for a normal one.
    """

    value: float
    low: float | None
    high: float | None
    degrees_of_freedom: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def widened(self, relative_sd: float) -> "Estimate":
        """The estimate with an independent relative error added to its interval in quadrature."""
        margin = NORMAL_97_5 * relative_sd * self.value
        error = Estimate(0.0, -margin, margin)
        return _with_errors(self.value, [(1.0, self), (1.0, error)])

    def plus(self, constant: float) -> "Estimate":
        """The estimate shifted by an exact number."""
        low, high = (None if each is None else each + constant for each in (self.low, self.high))
        return Estimate(self.value + constant, low, high, self.degrees_of_freedom)

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
    def scale(self) -> float | None:
        """The scale of the distribution behind the interval; of a normal one its deviation."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2 / student_97_5(self.degrees_of_freedom)

    @property
    def sd(self) -> float | None:
        """The standard deviation that the interval stands for."""
        n = self.degrees_of_freedom
        if self.scale is None or n is None:
            return self.scale
        return self.scale * math.sqrt(n / (n - 2))


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
    """Whether two intervals have a value in common; one that is unknown may hold any."""
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

    Those of the logarithms, if all limits are positive: a wide interval of the denominator reaches
    further up in the quotient than down.
    """
    value = numerator.value / denominator.value
    if all(each.low is not None and each.low > 0 for each in (numerator, denominator)):
        terms = [(1.0, _logarithm(numerator)), (-1.0, _logarithm(denominator))]
        log = _with_errors(0.0, terms)
        low, high = (
            None if each is None else value * math.exp(each) for each in (log.low, log.high)
        )
        return Estimate(value, low, high, log.degrees_of_freedom)
    return _with_errors(
        value, [(1 / denominator.value, numerator), (-value / denominator.value, denominator)]
    )


def _logarithm(estimate: Estimate) -> Estimate:
    low, high = (None if each is None else math.log(each) for each in (estimate.low, estimate.high))
    return Estimate(math.log(estimate.value), low, high, estimate.degrees_of_freedom)


def weighted_sum(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of weight x estimate over independent estimates, half-widths in quadrature.

    A weight multiplies its estimate's error, because all calls of a tuple share one
    measurement. The sum has no interval if one of the terms has none.
    """
    listed = list(terms)
    return _with_errors(sum(weight * each.value for weight, each in listed), listed)


def correlated_sum(terms: Iterable[tuple[float, Estimate]]) -> Estimate:
    """The sum of weight x estimate over estimates that err together: limits add up.

    Weights are not negative. The sum has no interval if one of the terms has none.
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


def student_97_5(degrees_of_freedom: float | None) -> float:
    """Half of a 95 % interval in units of the scale; of a normal distribution for None."""
    from scipy import special

    if degrees_of_freedom is None:
        return NORMAL_97_5
    return float(special.stdtrit(degrees_of_freedom, 0.975))


def _with_errors(value: float, terms: Sequence[tuple[float, Estimate]]) -> Estimate:
    """The value with the errors of all terms, times their weights; none if one is unknown.

    A Student's variable of scale s has the variance s^2 n / (n - 2). The sum of the terms is taken
    as Student's again, with their total variance, and degrees of freedom as by Welch (The
    generalization of Student's problem, Biometrika 34, 1947).
    """
    below = above = of_degrees = 0.0
    for weight, each in terms:
        if each.low is None or each.high is None:
            return Estimate(value, None, None)
        n = each.degrees_of_freedom
        stretch = (1.0 if n is None else n / (n - 2)) / student_97_5(n) ** 2
        sides = (each.value - each.low, each.high - each.value)
        down, up = (stretch * (weight * side) ** 2 for side in sides)
        down, up = (down, up) if weight >= 0 else (up, down)
        below, above = below + down, above + up
        of_degrees += 0.0 if n is None else ((down + up) / 2) ** 2 / n
    total = (below + above) / 2
    degrees = total**2 / of_degrees if of_degrees > 1e-9 * total**2 else None
    shrink = 1.0 if degrees is None else (degrees - 2) / degrees
    half = student_97_5(degrees) * math.sqrt(shrink)
    return Estimate(
        value, value - half * math.sqrt(below), value + half * math.sqrt(above), degrees
    )


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
