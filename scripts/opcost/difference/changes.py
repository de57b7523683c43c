"""Changes in time or energy of paired rows: the common change, and the change of each operator.

Two causes are separated. Clocks, a power limit or interference change all operators by a common
factor. A driver or a version of PyTorch changes single operators. Therefore each operator is tested
for a deviation from the common factor, not for any change: the latter would report a
common change once per operator and hide the outliers. An operator's total change is the
product of the two.

With fewer than ten operators, the common factor cannot be separated from their own changes; these
are tested for any change.
"""

# ASSUME that a whole study is off by no more than one of its measurements, at the speed that the
# core had in it: a machine slowed for the whole study, by interference or heat, cannot be
# distinguished from a slower machine.

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opcost.costs.terms import Row
from opcost.difference.log_ratios import (
    LogRatios,
    Pair,
    at_level,
    exponential,
    fit,
    is_doubtful,
    p_of,
    spread_of_ratio,
    spread_of_speeds,
    widened,
)
from opcost.difference.null_distribution import MIN_PAIRS, NullDistribution
from opcost.rows.quantities import Quantity
from opcost.statistics import Estimate


@dataclass
class Change:
    """One operator's change: `ratio` is after / before, `deviation` is ratio / common factor.

    The interval of the ratio includes the errors within and the variation between measurements:
    `error` is the standard deviation of the former, as a log ratio, with `degrees` of freedom,
    `null` the latter. `p` is None
    if that variation is unknown or a measurement has no interval. `adjusted_p` is p adjusted for
    the number of tests; the caller sets it after all tests.
    """

    before: Row
    after: Row
    ratio: Estimate
    deviation: float
    p: float | None
    error: float
    degrees: float
    null: NullDistribution | None
    adjusted_p: float | None = None

    def own(self, level: float) -> Estimate:
        """The deviation with the interval that excludes 1 where `adjusted_p` is below the level."""
        if self.null is None or self.p is None:
            return Estimate(self.deviation, None, None)
        error = np.array([self.error]), np.array([self.degrees])
        [half_width] = self.null.half_widths(*error, _level_of(self, level))
        log = math.log(self.deviation)
        return exponential(Estimate(log, log - half_width, log + half_width))

    @property
    def doubtful(self) -> bool:
        """Whether one of the rows is doubtful."""
        return is_doubtful(self.before) or is_doubtful(self.after)

    @property
    def flagged(self) -> bool:
        """Whether one of the rows has a flag."""
        return any(row["flags"] for row in (self.before, self.after))


@dataclass
class QuantityChange:
    """Changes in time or energy on one target.

    `common` is the factor of all operators, None for fewer than ten; if `spread_known`, its
    interval includes the error of a whole study. `p` and `adjusted_p` test whether it is one.
    `nulls` are those of sound (False) and of doubtful (True) pairs, empty if unknown;
    `error` is the median standard deviation within the measurements of sound pairs, as a log ratio,
    `degrees` their median degrees of freedom.
    """

    quantity: Quantity
    changes: list[Change]
    common: Estimate | None
    spread_known: bool
    p: float | None
    nulls: Mapping[bool, NullDistribution]
    error: float | None
    degrees: float | None
    log_common: Estimate | None
    adjusted_p: float | None = None

    def all_operators(self, level: float) -> Estimate | None:
        """`common` with the interval that excludes 1 where `adjusted_p` is below the level."""
        if self.log_common is None:
            return None
        return exponential(at_level(self.log_common, _level_of(self, level)))

    def detectable(self, level: float) -> float | None:
        """The smallest deviation, a ratio above one, that is significant in a typical pair."""
        if self.error is None or not self.nulls:
            return None
        error = np.array([self.error]), np.array([self.degrees])
        [half_width] = self.nulls[False].half_widths(*error, level)
        return math.exp(half_width)


def changes_of(
    quantity: Quantity, pairs: Sequence[Pair], spread: float | None = None
) -> QuantityChange | None:
    """The changes of a quantity in pairs of rows with a result; None if no pair has it.

    `spread` overrides the rows' relative standard deviation between measurements of one operator.
    """
    pairs = [pair for pair in pairs if all((row[quantity.value] or 0) > 0 for row in pair)]
    if not pairs:
        return None
    logs = LogRatios.of(pairs, quantity, at_one_speed=True)
    known = logs.where(np.isfinite(logs.error))
    if known.ratio.size < MIN_PAIRS:  # no common change is taken out
        logs = LogRatios.of(pairs, quantity, at_one_speed=False)
        known = logs.where(np.isfinite(logs.error))
    apart = spread_of_ratio(pairs[0], spread)
    centre, nulls = fit(known, apart, stated=spread is not None)
    of_speeds = spread_of_speeds(pairs[0]) if spread is None else 0.0
    of_runs = math.hypot(apart or 0.0, of_speeds)
    common = widened(centre, of_runs) if centre else None
    sound = known.where(~known.doubtful)
    return QuantityChange(
        quantity,
        list(_judged(pairs, logs, centre.value if centre else 0.0, nulls)),
        exponential(common) if common else None,
        apart is not None,
        p_of(common) if common else None,
        nulls,
        float(np.median(sound.error)) if sound.error.size else None,
        float(np.median(sound.degrees)) if sound.error.size else None,
        common,
    )


def _judged(
    pairs: Sequence[Pair],
    logs: LogRatios,
    centre: float,
    nulls: Mapping[bool, NullDistribution],
) -> Iterator[Change]:
    p_values = np.full(len(pairs), np.nan)
    half_widths = np.full(len(pairs), np.nan)
    for kind, null in nulls.items():
        chosen = (logs.doubtful == kind) & np.isfinite(logs.error)
        residuals, errors = logs.ratio[chosen] - centre, (logs.error[chosen], logs.degrees[chosen])
        p_values[chosen] = null.p_values(residuals, *errors)
        half_widths[chosen] = null.half_widths(*errors)
    for pair, (log, error, degrees, doubtful), p, half_width in zip(
        pairs, zip(*logs, strict=True), p_values, half_widths, strict=True
    ):
        limits = (None, None) if np.isnan(p) else (log - half_width, log + half_width)
        yield Change(
            *pair,
            exponential(Estimate(float(log), *limits)),
            math.exp(log - centre),
            None if np.isnan(p) else float(p),
            float(error),
            float(degrees),
            nulls.get(bool(doubtful)),
        )


def _level_of(test: Change | QuantityChange, level: float) -> float:
    """What the p-value itself is compared with, where the adjusted one is compared with `level`."""
    return level * test.p / test.adjusted_p if test.p and test.adjusted_p else level
