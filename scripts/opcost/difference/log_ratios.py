"""Pairs of measurements as log ratios: their errors, common change and null distribution."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from opcost import statistics
from opcost.costs.terms import Row
from opcost.difference.null_distribution import (
    DOUBTFUL_TAIL,
    MIN_PAIRS,
    SOUND_TAIL,
    Array,
    NullDistribution,
)
from opcost.rows import flags
from opcost.rows.executed import speed_law_in, value_at_speed_of_run
from opcost.rows.quantities import TIME, Quantity
from opcost.statistics import Estimate

Pair = tuple[Row, Row]

_RESOLUTION = 1e-6  # relative: clocks resolve no narrower intervals
_NORMAL_97_5 = float(special.ndtri(0.975))


class LogRatios(NamedTuple):
    """For each pair: ln(after / before), the standard deviation of its error with its degrees of
    freedom, and its doubtfulness.

    The error is infinite if a measurement has no interval, the degrees of freedom if it is normal.
    """

    ratio: Array
    error: Array
    degrees: Array
    doubtful: NDArray[np.bool_]

    @classmethod
    def of(cls, pairs: Sequence[Pair], quantity: Quantity, *, at_one_speed: bool) -> Self:
        """The log ratios of a quantity that all rows have. `at_one_speed`: what the usual speed of
        the core changes between runs, and all rows share, is no error of each.
        """
        column = quantity.value
        read = partial(value_at_speed_of_run, quantity=quantity) if at_one_speed else quantity.read
        errors = [_error(*(_log(read(row)) for row in pair)) for pair in pairs]
        return cls(
            np.array([math.log(after[column] / before[column]) for before, after in pairs]),
            np.array([error for error, _ in errors]),
            np.array([degrees for _, degrees in errors]),
            np.array([any(map(is_doubtful, pair)) for pair in pairs]),
        )

    def where(self, chosen: NDArray[np.bool_]) -> "LogRatios":
        """The log ratios of selected pairs."""
        return LogRatios(
            self.ratio[chosen], self.error[chosen], self.degrees[chosen], self.doubtful[chosen]
        )


def is_doubtful(row: Row) -> bool:
    """Whether a row may reproduce worse than its interval says: because of a flag, or as a single
    execution that did not converge, on a target whose scatter is unknown.
    """
    alone = row[TIME.degrees] is None and (row["executions"] or 1) == 1
    return flags.doubtful(row["flags"] or ()) or (alone and not row["converged"])


def spread_of_ratio(pair: Pair, stated: float | None) -> float | None:
    """The standard deviation of the log ratio of two measurements, from the studies' spreads."""
    spreads = [row[TIME.scatter] if stated is None else stated for row in pair]
    return None if None in spreads else math.hypot(*spreads)


def spread_of_speeds(pair: Pair) -> float:
    """The standard deviation of the log ratio that the usual speeds of two runs explain."""
    laws = [speed_law_in(row) for row in pair if row["executions"]]
    return math.hypot(*(law.value_sd for law in laws if law))


def fit(
    logs: LogRatios, apart: float | None, stated: bool
) -> tuple[Estimate | None, dict[bool, NullDistribution]]:
    """The common log ratio, and the null distributions of sound (False) and doubtful (True) pairs.

    For fewer than ten pairs, the common ratio is None and the null has `apart`, the standard
    deviation of a log ratio (None if unknown). If `stated`, it applies to any number of pairs.
    """
    # A study's spread comes from few pairs, which makes it uncertain: heavy tails account for that.
    tails = {False: SOUND_TAIL if stated else DOUBTFUL_TAIL, True: DOUBTFUL_TAIL}
    held = not stated and bool(np.isfinite(logs.degrees).all())  # by the intervals of the rows
    given = {
        kind: NullDistribution(0.0 if held else apart, tail)
        for kind, tail in tails.items()
        if apart is not None
    }
    if logs.ratio.size < MIN_PAIRS:
        return None, given
    weights = np.ones(logs.ratio.size)
    for _ in range(2):  # the weights of the second round are from the nulls of the first
        centre = statistics.weighted_median(logs.ratio.tolist(), weights.tolist())
        nulls = given if stated else _estimated_nulls(logs, centre.value)
        sd = np.where(logs.doubtful, nulls[True].sd, nulls[False].sd)
        weights = 1 / np.hypot(logs.error, sd)
    return centre, nulls


def _log(found: Estimate | None) -> Estimate:
    """The logarithm of a quantity, with as wide an interval below as above."""
    assert found is not None
    value, low, high = math.log(found.value), found.low, found.high
    if low is None or high is None or low <= 0:
        return Estimate(value, None, None)
    half = math.log(high / low) / 2
    return Estimate(value, value - half, value + half, found.degrees_of_freedom)


def _error(before: Estimate, after: Estimate) -> tuple[float, float]:
    """The standard deviation of the difference of two logarithms, and its degrees of freedom.

    Executions of a tuple have one variance, whichever row combines them. That of both rows together
    is known no worse than that of the row with fewer degrees of freedom.
    """
    if before.scale is None or after.scale is None:
        return math.inf, math.inf
    n = min(each.degrees_of_freedom or math.inf for each in (before, after))
    stretch = 1.0 if math.isinf(n) else math.sqrt(n / (n - 2))
    return max(stretch * math.hypot(before.scale, after.scale), _RESOLUTION), n


def _estimated_nulls(logs: LogRatios, centre: float) -> dict[bool, NullDistribution]:
    """The nulls of sound and of doubtful pairs; if one kind is rare, that of all pairs."""
    result = {}
    for kind, tail in ((False, SOUND_TAIL), (True, DOUBTFUL_TAIL)):
        chosen = logs.where(logs.doubtful == kind)
        if chosen.ratio.size >= MIN_PAIRS:
            result[kind] = NullDistribution.of(chosen.ratio - centre, chosen.error, tail)
        else:
            result[kind] = NullDistribution.of(logs.ratio - centre, logs.error, DOUBTFUL_TAIL)
    return result


def widened(log: Estimate, sd: float) -> Estimate:
    """The estimate with an independent error of standard deviation `sd` added in quadrature."""
    if log.low is None or log.high is None:
        return log
    margin = _NORMAL_97_5 * sd
    return Estimate(
        log.value,
        log.value - math.hypot(log.value - log.low, margin),
        log.value + math.hypot(log.high - log.value, margin),
    )


def at_level(log: Estimate, level: float) -> Estimate:
    """The estimate with the interval that excludes zero where `p_of` is below the level."""
    if log.low is None or log.high is None:
        return log
    factor = -float(special.ndtri(level / 2)) / _NORMAL_97_5
    low, high = (log.value + factor * (limit - log.value) for limit in (log.low, log.high))
    return Estimate(log.value, low, high)


def p_of(log: Estimate) -> float | None:
    """The p-value of a zero logarithm, from the half-width of the interval on the side of zero."""
    limit = log.low if log.value > 0 else log.high
    if limit is None or log.value == 0:
        return None if limit is None else 1.0
    sd = max(abs(log.value - limit) / _NORMAL_97_5, _RESOLUTION)
    return float(2 * special.ndtr(-abs(log.value) / sd))


def exponential(log: Estimate) -> Estimate:
    """The ratio with this logarithm."""
    if log.low is None or log.high is None:
        return Estimate(math.exp(log.value), None, None)
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))
