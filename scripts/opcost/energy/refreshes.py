"""The mean of a sensor's refreshes and how sure it is. Pure functions over plain numbers.

Refreshes are not independent: their averaging windows overlap, and power itself does not change at
once. So they are grouped into blocks of at least 0.1 s, and blocks are taken to be correlated as
overlapping means of an uncorrelated power are: by 1 - lag/width, at the least.

For values x with correlation matrix R and variance v, E[s^2] = v tr(A R) with A the centring matrix
over n - 1, and Var(mean) = v 1'R1/n^2; s^2 is distributed nearly as chi-squared with
tr(A R)^2 / tr(A R A R) degrees of freedom (Satterthwaite, Biometrics Bulletin 2, 1946, p. 110; Box,
Annals of Mathematical Statistics 25, 1954, p. 290). Hence Student's interval, also for few values.

How long to go on is decided once, from the first stage's variance, and the interval of the whole
uses that variance with its degrees of freedom: Stein's two-stage sample (Annals of Mathematical
Statistics 16, 1945, p. 243). Looking again and again until an interval happens to be narrow would
make it too narrow.
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
class Spread:
    """Variance of one block as the first stage found it, and the degrees of freedom behind it."""

    variance: float
    degrees: float


@dataclass(frozen=True)
class Blocks:
    """Means over equal spans of time, and how neighbours are correlated.

    Each holds `group` readings that share power over `width` blocks; `share` is how much of their
    scatter that explains.
    """

    values: tuple[float, ...]
    block_s: float
    group: int
    width: float
    share: float

    @property
    def mean(self) -> float:
        """The mean over all, in the unit of the values."""
        return float(np.mean(self.values))

    def spread(self) -> Spread:
        """The variance of one block. Raises ValueError for fewer than two."""
        moments = self._moments(len(self.values))
        square = float(np.var(self.values, ddof=1))
        return Spread(square / moments.scatter, moments.degrees)

    def half_width(self, spread: Spread, count: int | None = None) -> float:
        """Half of the 95 % interval of the mean over `count` blocks like these (default: these)."""
        moments = self._moments(len(self.values) if count is None else count)
        error = math.sqrt(spread.variance * moments.mean)
        return float(special.stdtrit(spread.degrees, 0.975)) * error

    def interval(self, spread: Spread) -> Estimate:
        """The mean with its 95 % interval."""
        half = self.half_width(spread)
        return Estimate(self.mean, self.mean - half, self.mean + half)

    def needed(self, spread: Spread, relative: float, most: int) -> int:
        """How many blocks bring half of the interval within that share of the mean."""
        low, high = len(self.values), most
        while low < high:
            middle = (low + high) // 2
            if self.half_width(spread, middle) <= relative * abs(self.mean):
                high = middle
            else:
                low = middle + 1
        return low

    def trend(self) -> tuple[float, float]:
        """How much the later half exceeds the earlier, relative, and how often chance does more.

        At least four blocks are needed. The variance is that within halves: that of the whole
        would contain the trend itself.
        """
        half = len(self.values) // 2
        halves = replace(self, values=self.values[:half]), replace(self, values=self.values[-half:])
        difference = halves[1].mean - halves[0].mean
        spreads = [part.spread() for part in halves]
        degrees = sum(spread.degrees for spread in spreads)
        variance = sum(spread.variance * spread.degrees for spread in spreads) / degrees
        contrast = np.zeros(len(self.values))
        contrast[:half], contrast[-half:] = -1 / half, 1 / half
        matrix = _correlation(len(self.values), self.group, self.width, self.share)
        error = math.sqrt(variance * float(contrast @ matrix @ contrast))
        if error == 0:
            return difference / self.mean, 0.0 if difference else 1.0
        return difference / self.mean, 2 * float(special.stdtr(degrees, -abs(difference) / error))

    def excess(self, spread: Spread) -> float:
        """How often chance gives these blocks more variance than `spread`, were it the same."""
        own = self.spread()
        if spread.variance == 0:
            return 1.0 if own.variance == 0 else 0.0
        return float(special.fdtrc(own.degrees, spread.degrees, own.variance / spread.variance))

    def _moments(self, count: int) -> "_Moments":
        return _moments(count, self.group, self.width, self.share)


def blocks(refreshes: Sequence[Refresh], sensor: Sensor) -> Blocks:
    """The refreshes in groups of at least 0.1 s, each weighing as long as it lasted.

    Values that stay for several periods make the span over which power is shared longer: a sensor
    slower than it was taken for, or one of coarse steps.
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
    scatter: float  # E[s^2] / variance of a block
    mean: float  # Var(mean) / variance of a block
    degrees: float


@lru_cache(maxsize=4096)
def _moments(count: int, group: int, width: float, share: float) -> _Moments:
    if count < 2:
        raise ValueError("one block has no spread")
    matrix = _correlation(count, group, width, share)
    centred = matrix - matrix.mean(axis=0)
    scatter = float(np.trace(centred)) / (count - 1)
    squared = float(np.einsum("ij,ji->", centred, centred)) / (count - 1) ** 2
    return _Moments(scatter, float(matrix.mean()), scatter**2 / squared)


@lru_cache(maxsize=256)
def _correlation(count: int, group: int, width: float, share: float) -> np.ndarray:
    """Correlation between block means of readings that average power over `width` blocks."""
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    own = np.eye(count) / group
    covariance = share * _shared(lags, group, width) + (1 - share) * own
    return covariance / covariance[0, 0]


def _shared(lag: np.ndarray, group: int, width: float) -> np.ndarray:
    """Mean of max(0, 1 - |u|/width) over the distances u between the readings of two blocks."""
    offsets = np.subtract.outer(np.arange(group), np.arange(group)).ravel() / group
    distances = np.abs(lag[..., None] + offsets)
    return np.maximum(0, 1 - distances / max(width, 1e-9)).mean(axis=-1)
