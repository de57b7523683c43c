"""Bounds of power around an edge of a window, from activity too short for the sensor to resolve.

The edges of a program's windows divide its time into stretches. Within a stretch shorter than the
sensor resolves, power may leave the range that the sensor has shown, but only as far as readings of
a longer time allow: a stretch of half the resolution had at most twice the power shown.
"""

from dataclasses import dataclass

import numpy as np

from opcost.power.curves import Numbers

NO_EDGES = np.empty(0)


@dataclass(frozen=True)
class PowerRange:
    """The lowest and the highest power, in watts, shown of anything that lasts `resolution_s` or
    longer. The device draws `peak_w` at most.
    """

    low_w: float
    high_w: float
    peak_w: float
    resolution_s: float

    def of(self, lengths_s: Numbers) -> tuple[Numbers, Numbers]:
        """The bounds of the mean power of stretches of these lengths."""
        shares = np.minimum(lengths_s / self.resolution_s, 1.0)
        # A reading is a mean over the stretch and, for the rest of the time, something else.
        rest_w = np.where(shares < 1, self.peak_w, 0.0) * (1 - shares)
        least_w = np.maximum((self.low_w - rest_w) / shares, 0.0)
        return least_w, np.minimum(self.high_w / shares, self.peak_w)


@dataclass(frozen=True)
class Stretches:
    """The stretches on one side of a moment, outwards: full lengths, and the start and end of the
    part within reach, in seconds from the moment.
    """

    lengths_s: Numbers
    starts_s: Numbers
    ends_s: Numbers

    @classmethod
    def before(cls, edges_s: Numbers, moment_s: float, reach_s: float) -> "Stretches":
        """The stretches before a moment, as far as `reach_s`. `edges_s` ascend."""
        first, last = np.searchsorted(edges_s, [moment_s - reach_s, moment_s])
        return cls._at(moment_s - edges_s[max(int(first) - 1, 0) : last][::-1], reach_s)

    @classmethod
    def after(cls, edges_s: Numbers, moment_s: float, reach_s: float) -> "Stretches":
        """The stretches after a moment, as far as `reach_s`. `edges_s` ascend."""
        first, last = np.searchsorted(edges_s, [moment_s, moment_s + reach_s], "right")
        return cls._at(edges_s[first : int(last) + 1] - moment_s, reach_s)

    @classmethod
    def between(cls, edges_s: Numbers, start_s: float, end_s: float) -> "Stretches":
        """The stretches that overlap an interval, in seconds from its start."""
        first, last = np.searchsorted(edges_s, [start_s, end_s], "right")
        inside = cls._at(edges_s[first : int(last) + 1] - start_s, end_s - start_s)
        if not first:
            return inside
        # The first one may have begun before.
        lengths_s = inside.lengths_s.copy()
        lengths_s[:1] += start_s - edges_s[first - 1]
        return cls(lengths_s, inside.starts_s, inside.ends_s)

    @classmethod
    def _at(cls, distances_s: Numbers, reach_s: float) -> "Stretches":
        starts_s = np.append(0.0, distances_s)
        ends_s = np.append(distances_s, np.inf)[starts_s < reach_s]
        starts_s = starts_s[starts_s < reach_s]
        return cls(ends_s - starts_s, starts_s, np.minimum(ends_s, reach_s))

    def limits_j(self, power: PowerRange) -> tuple[float, float]:
        """Bounds of the energy within reach."""
        least_w, most_w = power.of(self.lengths_s)
        lasted_s = self.ends_s - self.starts_s
        return float(least_w @ lasted_s), float(most_w @ lasted_s)

    def uncertain_j(self, power: PowerRange) -> float:
        """The width of the bounds of the unresolved stretches' energy."""
        short = self.lengths_s < power.resolution_s
        least_w, most_w = power.of(self.lengths_s[short])
        return float((most_w - least_w) @ (self.ends_s - self.starts_s)[short])

    def blurred_j(self, power: PowerRange, blur_s: float) -> tuple[float, float]:
        """Bounds of the energy that a mean over `blur_s` counts on the other side of the moment."""
        least_w, most_w = power.of(self.lengths_s)
        weights = _weight_s(self.ends_s, blur_s) - _weight_s(self.starts_s, blur_s)
        return float(least_w @ weights), float(most_w @ weights)


def _weight_s(until_s: Numbers, blur_s: float) -> Numbers:
    """Integral up to a distance of the share by which means around moments reach over an edge."""
    near_s = np.minimum(until_s, blur_s / 2)
    return near_s / 2 - near_s**2 / (2 * blur_s)
