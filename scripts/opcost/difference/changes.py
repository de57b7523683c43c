"""How time or energy of paired rows changed: what they have in common, and each operator by itself.

Two questions are told apart. Did everything change, by a factor that operators have in common? That
is what clocks, a power limit or a busy machine do. Did single operators change otherwise than the
others? That is what a driver or a version of PyTorch does. So it is tested of each operator
whether it deviates from the common factor, and not whether it changed at all: that would name a
common change once for each operator, and hide what stands out. An operator's whole change is the
product of the two.

Fewer than ten operators have no common factor that could be told from their own changes; of these
it is tested whether they changed at all.
"""

# ASSUME that a whole study is off by no more than one of its measurements: a machine that was
# slower all along, because of neighbours or heat, cannot be told from one that was made slower.

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opcost.costs.terms import Row
from opcost.difference.log_ratios import (
    LogRatios,
    Pair,
    exponential,
    fit,
    is_doubtful,
    p_of,
    spread_of_ratio,
    widened,
)
from opcost.difference.scatter import Scatter
from opcost.rows.quantities import Quantity
from opcost.statistics import Estimate


@dataclass
class Change:
    """One operator's change: `ratio` is after / before, `deviation` is that over the common factor.

    The interval of the ratio holds the errors within the measurements and how badly they reproduce.
    `p` is None where that is not known, or a measurement has no interval. `adjusted_p` is p with
    regard to the number of tests; whoever makes all of them gives it.
    """

    before: Row
    after: Row
    ratio: Estimate
    deviation: float
    p: float | None
    adjusted_p: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether one of the rows is doubtful."""
        return is_doubtful(self.before) or is_doubtful(self.after)

    @property
    def flagged(self) -> bool:
        """Whether one of the rows has a flag, or has not converged."""
        return any(row["flags"] or not row["converged"] for row in (self.before, self.after))


@dataclass
class QuantityChange:
    """What became of time or energy on one target.

    `common` is the factor of all operators, None for fewer than ten; its interval holds how far a
    whole study may be off, if `spread_known`. `p` and `adjusted_p` are of the test that it is one.
    `scatters` are those of sound (False) and of doubtful (True) pairs, empty where not known;
    `error` is the median standard deviation within the measurements of sound pairs, as a log ratio.
    """

    quantity: Quantity
    changes: list[Change]
    common: Estimate | None
    spread_known: bool
    p: float | None
    scatters: Mapping[bool, Scatter]
    error: float | None
    adjusted_p: float | None = None

    def detectable(self, level: float) -> float | None:
        """The deviation, as a ratio above one, from which a typical sound pair has such a p."""
        if self.error is None or not self.scatters:
            return None
        [half_width] = self.scatters[False].half_widths(np.array([self.error]), level)
        return math.exp(half_width)


def changes_of(
    quantity: Quantity, pairs: Sequence[Pair], spread: float | None = None
) -> QuantityChange | None:
    """What became of a quantity in pairs of rows with a result; None if no pair has it.

    `spread` overrides what the rows say: the relative standard deviation of one measurement among
    others of the same operator.
    """
    pairs = [pair for pair in pairs if all((row[quantity.value] or 0) > 0 for row in pair)]
    if not pairs:
        return None
    logs = LogRatios.of(pairs, quantity)
    known = logs.where(np.isfinite(logs.error))
    apart = spread_of_ratio(pairs[0], spread)
    centre, scatters = fit(known, apart, stated=spread is not None)
    common = widened(centre, apart or 0.0) if centre else None
    sound = known.error[~known.doubtful]
    return QuantityChange(
        quantity,
        list(_judged(pairs, logs, centre.value if centre else 0.0, scatters)),
        exponential(common) if common else None,
        apart is not None,
        p_of(common) if common else None,
        scatters,
        float(np.median(sound)) if sound.size else None,
    )


def _judged(
    pairs: Sequence[Pair],
    logs: LogRatios,
    centre: float,
    scatters: Mapping[bool, Scatter],
) -> Iterator[Change]:
    p_values = np.full(len(pairs), np.nan)
    half_widths = np.full(len(pairs), np.nan)
    for kind, scatter in scatters.items():
        chosen = (logs.doubtful == kind) & np.isfinite(logs.error)
        residuals, errors = logs.ratio[chosen] - centre, logs.error[chosen]
        p_values[chosen] = scatter.p_values(residuals, errors)
        half_widths[chosen] = scatter.half_widths(errors)
    for pair, log, p, half_width in zip(pairs, logs.ratio, p_values, half_widths, strict=True):
        limits = (None, None) if np.isnan(p) else (log - half_width, log + half_width)
        yield Change(
            *pair,
            exponential(Estimate(float(log), *limits)),
            math.exp(log - centre),
            None if np.isnan(p) else float(p),
        )
