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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from opcost import statistics
from opcost.scatter import DOUBTFUL_TAIL, FEWEST_PAIRS, SOUND_TAIL, Array, Scatter
from opcost.statistics import Estimate
from opcost.terms import Row

UNITS = {"time": "s", "energy": "j"}

_RESOLUTION = 1e-6  # relative: no interval is narrower than clocks tell
_NORMAL_97_5 = float(special.ndtri(0.975))
_HARMLESS = {
    "assumed_sensor",
    "degenerate_values",
    "disturbed",
    "footprint_within_cache",
    "launch_bound",
    "value_dependent",
}
"""Flags of rows that reproduce as well as others: what a row means, or what was noticed in time.

A disturbed row that converged did so on its undisturbed batches, and reproduces as well as others
do (docs/how_to/query.md); one that had too few of them has not converged.
"""


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
class Quantity:
    """What became of `name` ("time" or "energy") on one target.

    `common` is the factor of all operators, None for fewer than ten; its interval holds how far a
    whole study may be off, if `spread_known`. `p` and `adjusted_p` are of the test that it is one.
    `scatters` are those of sound (False) and of doubtful (True) pairs, empty where not known;
    `error` is the median standard deviation within the measurements of sound pairs, as a log ratio.
    """

    name: str
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


class _Logs(NamedTuple):
    """Of each pair the log ratio, the standard deviation of its error, whether it is doubtful."""

    ratio: Array
    error: Array
    doubtful: NDArray[np.bool_]

    def where(self, chosen: NDArray[np.bool_]) -> "_Logs":
        return _Logs(self.ratio[chosen], self.error[chosen], self.doubtful[chosen])


def is_doubtful(row: Row) -> bool:
    """Whether a row reproduces worse than others: it drifted, has not converged, or the like."""
    return bool(set(row["flags"] or ()) - _HARMLESS) or not row["converged"]


def changes_of(
    name: str, pairs: Sequence[tuple[Row, Row]], spread: float | None = None
) -> Quantity | None:
    """What became of `name` in pairs of rows with a result; None if no pair has it.

    `spread` overrides what the rows say: the relative standard deviation of one measurement among
    others of the same operator.
    """
    column = f"{name}_{UNITS[name]}"
    pairs = [pair for pair in pairs if all((row[column] or 0) > 0 for row in pair)]
    if not pairs:
        return None
    logs = _Logs(
        np.array([math.log(after[column] / before[column]) for before, after in pairs]),
        np.array([math.hypot(*(_log_error(row, name) for row in pair)) for pair in pairs]),
        np.array([any(map(is_doubtful, pair)) for pair in pairs]),
    )
    known = logs.where(np.isfinite(logs.error))
    apart = _spread_of_ratio(pairs[0], spread)
    centre, scatters = _fit(known, apart, stated=spread is not None)
    common = _widened(centre, apart or 0.0) if centre else None
    sound = known.error[~known.doubtful]
    return Quantity(
        name,
        list(_judged(pairs, logs, centre.value if centre else 0.0, scatters)),
        _exponential(common) if common else None,
        apart is not None,
        _p_of(common) if common else None,
        scatters,
        float(np.median(sound)) if sound.size else None,
    )


def _log_error(row: Row, name: str) -> float:
    """The standard deviation of the logarithm, by the row's interval; infinite if it has none."""
    unit = UNITS[name]
    low, high = row[f"{name}_ci_low_{unit}"], row[f"{name}_ci_high_{unit}"]
    if low is None or high is None or low <= 0:
        return math.inf
    return max(math.log(high / low) / 2 / _NORMAL_97_5, _RESOLUTION)


def _spread_of_ratio(pair: tuple[Row, Row], stated: float | None) -> float | None:
    """The standard deviation of the log ratio of two measurements, as the studies know it."""
    spreads = [row["spread"] if stated is None else stated for row in pair]
    return None if None in spreads else math.hypot(*spreads)


def _fit(
    logs: _Logs, apart: float | None, stated: bool
) -> tuple[Estimate | None, dict[bool, Scatter]]:
    """What the log ratios have in common, and how sound and doubtful ones lie around it."""
    given = (
        {}
        if apart is None
        else {False: Scatter(apart, SOUND_TAIL), True: Scatter(apart, DOUBTFUL_TAIL)}
    )
    if logs.ratio.size < FEWEST_PAIRS:
        return None, given
    weights = np.ones(logs.ratio.size)
    for _ in range(2):  # the weights of the second round are from the scatter of the first
        centre = statistics.weighted_median(logs.ratio.tolist(), weights.tolist())
        scatters = given if stated else _scatters(logs, centre.value)
        sd = np.where(logs.doubtful, scatters[True].sd, scatters[False].sd)
        weights = 1 / np.hypot(logs.error, sd)
    return centre, scatters


def _scatters(logs: _Logs, centre: float) -> dict[bool, Scatter]:
    """Of sound pairs and of doubtful ones; where one kind is rare, all pairs speak for it."""
    result = {}
    for kind, tail in ((False, SOUND_TAIL), (True, DOUBTFUL_TAIL)):
        chosen = logs.where(logs.doubtful == kind)
        if chosen.ratio.size >= FEWEST_PAIRS:
            result[kind] = Scatter.of(chosen.ratio - centre, chosen.error, tail)
        else:
            result[kind] = Scatter.of(logs.ratio - centre, logs.error, DOUBTFUL_TAIL)
    return result


def _judged(
    pairs: Sequence[tuple[Row, Row]],
    logs: _Logs,
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
            _exponential(Estimate(float(log), *limits)),
            math.exp(log - centre),
            None if np.isnan(p) else float(p),
        )


def _widened(log: Estimate, sd: float) -> Estimate:
    """With an independent error of that standard deviation added in quadrature."""
    if log.low is None or log.high is None:
        return log
    margin = _NORMAL_97_5 * sd
    return Estimate(
        log.value,
        log.value - math.hypot(log.value - log.low, margin),
        log.value + math.hypot(log.high - log.value, margin),
    )


def _p_of(log: Estimate) -> float | None:
    """Of the test that the logarithm is zero, by the side of its interval on which zero lies."""
    limit = log.low if log.value > 0 else log.high
    if limit is None or log.value == 0:
        return None if limit is None else 1.0
    sd = max(abs(log.value - limit) / _NORMAL_97_5, _RESOLUTION)
    return float(2 * special.ndtr(-abs(log.value) / sd))


def _exponential(log: Estimate) -> Estimate:
    if log.low is None or log.high is None:
        return Estimate(math.exp(log.value), None, None)
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))
