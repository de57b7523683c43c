"""The mean of a sensor's refreshes with its interval.

Refreshes are correlated: their averaging windows overlap, and power changes gradually. They are
grouped into blocks of at least 0.1 s, whose correlation is taken to be that of overlapping means of
an uncorrelated power, 1 - lag/width.

For values x with correlation matrix R and variance v, E[s^2] = v tr(A R) with A the centring matrix
over n - 1, and Var(mean) = v 1'R1/n^2; s^2 is approximately distributed as chi-squared with
tr(A R)^2 / tr(A R A R) degrees of freedom (Satterthwaite, Biometrics Bulletin 2, 1946, p. 110; Box,
Annals of Mathematical Statistics 25, 1954, p. 290). This gives Student's interval.

The length is decided once, from the variance of a first stage, and the interval of all blocks uses
that variance with its degrees of freedom: Stein's two-stage sample (Annals of Mathematical
Statistics 16, 1945, p. 243). Testing repeatedly until an interval is narrow would bias it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from opcost.energy.sampling import Refresh
from opcost.energy.sensor import Sensor
from opcost.statistics import Estimate

_BLOCK_S = 0.1


@dataclass(frozen=True)
class Variance:
    """The variance of one block, with its degrees of freedom."""

    value: float
    degrees: float


@dataclass(frozen=True)
class Blocks:
    """Mean powers over equal intervals of `block_s` seconds, and their correlation.

    Each block is the mean of `group` readings with an averaging window of `width` blocks; `share`
    is the part of their variance that overlapping windows have in common.
    """

    values: tuple[float, ...]
    block_s: float
    group: int
    width: float
    share: float

    @property
    def mean(self) -> float:
        """The mean of all blocks."""
        return float(np.mean(self.values))

    def variance(self) -> Variance:
        """The variance of one block. Raises ValueError for fewer than two."""
        moments = self._moments(len(self.values))
        square = float(np.var(self.values, ddof=1))
        return Variance(square / moments.square, moments.degrees)

    def half_width(self, variance: Variance, count: int | None = None) -> float:
        """Half of the 95 % interval of the mean over `count` such blocks (default: these)."""
        moments = self._moments(len(self.values) if count is None else count)
        error = math.sqrt(variance.value * moments.mean)
        return float(special.stdtrit(variance.degrees, 0.975)) * error

    def interval(self, variance: Variance) -> Estimate:
        """The mean with its 95 % interval."""
        half = self.half_width(variance)
        return Estimate(self.mean, self.mean - half, self.mean + half)

    def needed(self, variance: Variance, relative: float, most: int) -> int:
        """The number of blocks, at most `most`, for a half-width of `relative` x mean."""
        low, high = len(self.values), most
        while low < high:
            middle = (low + high) // 2
            if self.half_width(variance, middle) <= relative * abs(self.mean):
                high = middle
            else:
                low = middle + 1
        return low

    def trend(self) -> tuple[float, float]:
        """The relative difference between the later and the earlier half, and its p-value.

        Requires four blocks. Uses the variance within halves, which does not contain the trend.
        """
        size = len(self.values) // 2
        halves = replace(self, values=self.values[:size]), replace(self, values=self.values[-size:])
        difference = halves[1].mean - halves[0].mean
        variances = [half.variance() for half in halves]
        degrees = sum(each.degrees for each in variances)
        pooled = sum(each.value * each.degrees for each in variances) / degrees
        contrast = np.zeros(len(self.values))
        contrast[:size], contrast[-size:] = -1 / size, 1 / size
        matrix = _correlation(len(self.values), self.group, self.width, self.share)
        error = math.sqrt(pooled * float(contrast @ matrix @ contrast))
        if error == 0:
            return difference / self.mean, 0.0 if difference else 1.0
        return difference / self.mean, 2 * float(special.stdtr(degrees, -abs(difference) / error))

    def excess_p(self, variance: Variance) -> float:
        """The p-value of the F-test that these blocks vary no more than `variance`."""
        own = self.variance()
        if variance.value == 0:
            return 1.0 if own.value == 0 else 0.0
        return float(special.fdtrc(own.degrees, variance.degrees, own.value / variance.value))

    def _moments(self, count: int) -> "_Moments":
        return _moments(count, self.group, self.width, self.share)


def blocks(refreshes: Sequence[Refresh], sensor: Sensor) -> Blocks:
    """The refreshes in groups of at least 0.1 s, each weighted by its duration.

    If values mostly last for several periods (a sensor slower than assumed, or of coarse steps),
    the averaging window is taken to be at least that long.
    """
    values = np.repeat([r.power_w for r in refreshes], [r.periods for r in refreshes])
    group = max(1, math.ceil(_BLOCK_S / sensor.refresh_s - 1e-6))
    count = len(values) // group
    means = values[len(values) - count * group :].reshape(count, group).mean(axis=1)
    block_s = group * sensor.refresh_s
    held_s = sensor.refresh_s * len(values) / max(1, len(refreshes))
    repeats = held_s > 1.5 * sensor.refresh_s
    shared_s = max(sensor.averaging_s, held_s if repeats else 0.0)
    share = 1.0 if repeats else sensor.correlated_share
    return Blocks(tuple(means.tolist()), block_s, group, round(shared_s / block_s, 3), share)


@dataclass(frozen=True)
class _Moments:
    square: float  # E[s^2] / variance of a block
    mean: float  # Var(mean) / variance of a block
    degrees: float


@lru_cache(maxsize=4096)
def _moments(count: int, group: int, width: float, share: float) -> _Moments:
    if count < 2:
        raise ValueError("one block has no variance")
    matrix = _correlation(count, group, width, share)
    centred = matrix - matrix.mean(axis=0)
    square = float(np.trace(centred)) / (count - 1)
    squared = float(np.einsum("ij,ji->", centred, centred)) / (count - 1) ** 2
    return _Moments(square, float(matrix.mean()), square**2 / squared)


@lru_cache(maxsize=256)
def _correlation(count: int, group: int, width: float, share: float) -> np.ndarray:
    """The correlation of block means of readings that average power over `width` blocks."""
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    own = np.eye(count) / group
    covariance = share * _shared(lags, group, width) + (1 - share) * own
    return covariance / covariance[0, 0]


def _shared(lag: np.ndarray, group: int, width: float) -> np.ndarray:
    """Mean of max(0, 1 - |u|/width) over the distances u between the readings of two blocks."""
    offsets = np.subtract.outer(np.arange(group), np.arange(group)).ravel() / group
    distances = np.abs(lag[..., None] + offsets)
    return np.maximum(0, 1 - distances / max(width, 1e-9)).mean(axis=-1)
