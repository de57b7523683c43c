"""Cumulative energy over time, from the readings of a sensor.

    joules                      .----o
                           o---'
                      o---'             o: the sensor's value changed
       o-----o-------'
             |   ^start      ^end

A counter, or the sum of power readings, becomes a curve that is known at its *knots*, the moments
when the sensor changed. When the energy between two knots was spent is bounded by the lowest and
the highest power that the sensor has shown. The interval of a window extends to these bounds at
both edges: most windows begin and end with the load, so the errors at both edges have the same
sign, and add up.
"""

# ASSUME power between two knots leaves the range shown around the window by at most a tenth of that
# range: shorter peaks and pauses are not seen.

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import MAX_W
from opcost.energy.sensor import Sensor
from opcost.statistics import NORMAL_97_5, Estimate

Numbers = NDArray[np.float64]

_BEYOND_SHOWN = 0.1
_WIDEST = 0.5
"""An interval of a larger share of the value is of no use."""

_MOST_UNREAD = 0.1
"""If the sensor was not read for a larger share of a window, its energy is unknown: whatever
delayed the sampler is probably what the window measures."""

_ENDS_SOON = 2.0
"""A sensor that is read changes within so many of its usual intervals."""

_SLOWER = 1.5
"""A sensor whose changes are further apart than so many assumed periods is slower than assumed."""

_STUCK = 20
"""ASSUME a sensor that has changed is stuck if it stays the same for so many usual intervals."""

_MEDIAN_OF_NORMAL = 0.6745
"""Median absolute value of a standard normal variable."""

NOT_SHOWN = "the sensor did not change before and after the window"
REPEAT = "repeat what the window holds, and divide"
CUT_OFF = "the recording ends before the sensor showed the end of the window"


@dataclass(frozen=True)
class CurveEnergy:
    """Joules between two moments with their 95 % interval, or None with the `reason`. `changes`
    counts the sensor's changes.
    """

    energy: Estimate | None
    reason: str | None
    changes: int = 0


@dataclass(frozen=True)
class Curve:
    """Cumulative joules at ascending `times_s`, each of which may be off by `slack_s`.

    The energy between knots has an error of `sd_j`. Readings averaged over longer than their period
    blur the curve over `blur_s`. Of a sensor that shows whole watts, `step_w` is 1. The counter
    was reset, or jumped, before the knots `broken`. Within `unread_s`, pairs of moments, the sensor
    was not read or was stuck; if the curve `counts`, the total energy of these gaps is known. The
    last reading shows the power before `until_s`.
    """

    times_s: Numbers
    joules: Numbers
    slack_s: Numbers
    until_s: float
    sd_j: float = 0.0
    blur_s: float = 0.0
    step_w: float = 0.0
    broken: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    unread_s: Numbers = field(default_factory=lambda: np.empty((0, 2)))
    counts: bool = False

    @cached_property
    def every_s(self) -> float:
        """Median seconds between changes of the sensor."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else 0.0

    @cached_property
    def watts(self) -> Numbers:
        """The mean power between knots."""
        return np.diff(self.joules) / np.diff(self.times_s)

    @cached_property
    def range_w(self) -> tuple[float, float]:
        """The lowest and the highest power shown, extended a little."""
        least, most = float(self.watts.min()), float(self.watts.max())
        beyond = _BEYOND_SHOWN * (most - least)
        return max(0.0, least - beyond), most + beyond

    def energy(self, start_s: float, end_s: float) -> CurveEnergy:
        """The energy between two moments."""
        before = int(np.searchsorted(self.times_s, start_s, "right")) - 1
        after = int(np.searchsorted(self.times_s, end_s, "left"))
        if before < 0:
            return CurveEnergy(None, NOT_SHOWN)
        if after >= len(self.times_s):
            stopped = self.until_s >= end_s + _ENDS_SOON * self.every_s
            return CurveEnergy(None, NOT_SHOWN if stopped else CUT_OFF)
        changes = max(0, after - before - 1)
        if ((before < self.broken) & (self.broken <= after)).any():
            reason = "the energy counter was set back or jumped in the window"
            return CurveEnergy(None, reason, changes)
        length_s, unread_s = end_s - start_s, self._unread_s(start_s, end_s)
        if unread_s > _MOST_UNREAD * length_s and not (self.counts and changes):
            return CurveEnergy(None, _unread(unread_s, length_s), changes)
        first_j, first_margin_j, first_sd_j = self._up_to(before, start_s)
        last_j, last_margin_j, last_sd_j = self._up_to(after - 1, end_s)
        value_j = last_j - first_j
        if value_j <= 0 and changes:
            return CurveEnergy(None, "the sensor shows no power", changes)
        margin_j = first_margin_j + last_margin_j + self.step_w / 2 * length_s
        sds_j = (first_sd_j, last_sd_j, self.sd_j * math.sqrt(changes))
        margin_j += NORMAL_97_5 * math.hypot(*sds_j)
        if not self.counts:
            margin_j += unread_s * (self.range_w[1] - self.range_w[0]) / 2
        if not changes or margin_j > _WIDEST * value_j:
            around_s = self._unread_s(float(self.times_s[before]), float(self.times_s[after]))
            reason = (
                _unread(around_s, length_s)
                if around_s > _MOST_UNREAD * length_s
                else f"{length_s:.3g} s are too short for the sensor, which changes every "
                f"{self.every_s:.3g} s: {REPEAT}"
            )
            return CurveEnergy(None, reason, changes)
        found = Estimate(value_j, value_j - margin_j, value_j + margin_j)
        return CurveEnergy(found, None, changes)

    def _up_to(self, place: int, moment_s: float) -> tuple[float, float, float]:
        """Joules up to a moment after the knot at `place`, their bound and their standard error."""
        start_s, end_s = (float(each) for each in self.times_s[place : place + 2])
        spent_j = float(self.joules[place + 1] - self.joules[place])
        part_s, rest_s = moment_s - start_s, end_s - moment_s
        low_w, high_w = self.range_w
        if self._unread_s(start_s, end_s) > 0:  # anything may have happened there
            low_w, high_w = 0.0, math.inf
        least_j = max(spent_j - high_w * rest_s, low_w * part_s, 0.0)
        most_j = min(high_w * part_s, spent_j - low_w * rest_s, spent_j)
        if least_j > most_j:
            least_j = most_j = spent_j * part_s / (end_s - start_s)
        # A blur counts so much on the wrong side of a moment, if a load begins or ends there.
        margin_j = (most_j - least_j) / 2 + self.range_w[1] * self.blur_s / 8
        sd_j = float(self.slack_s[place]) * spent_j / (end_s - start_s) / math.sqrt(3)
        return float(self.joules[place]) + (least_j + most_j) / 2, margin_j, sd_j

    def _unread_s(self, start_s: float, end_s: float) -> float:
        """Seconds between two moments in which the sensor was not read."""
        lengths_s = self.unread_s.clip(start_s, end_s) @ [-1.0, 1.0]
        return min(float(lengths_s[lengths_s > 0].sum()), end_s - start_s)


def _unread(unread_s: float, length_s: float) -> str:
    return (
        f"the sensor was not read, or stood still, for {unread_s:.3g} s in and around the "
        f"{length_s:.3g} s of the window: give a shorter period, or leave the sampler a core"
    )


def of_counter(
    times_s: Numbers,
    counter_j: Numbers,
    refresh_s: float,
    most_w: float = MAX_W,
    read_every_s: float = math.inf,
) -> Curve | None:
    """The curve of a counter, read at `times_s`, that is updated at least every `refresh_s`; None
    if it did not change.

    A counter that decreases, or increases by more than `most_w`, was reset. Power between readings
    further apart than `read_every_s` is unknown.
    """
    changed = np.flatnonzero(np.diff(counter_j)) + 1
    if not len(changed):
        return None
    same_s = times_s[changed[1:] - 1] - times_s[changed[:-1]]
    if len(same_s) and same_s.max() >= _SLOWER * refresh_s:
        refresh_s = max(refresh_s, float(np.median(np.diff(times_s[changed]))))
    # The update came after the previous reading, at most a period ago.
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], refresh_s)
    steps_j = np.diff(counter_j)[changed - 1]
    since_s = np.diff(times_s[changed], prepend=times_s[0])
    wrong = (steps_j < 0) | (steps_j > most_w * (since_s + refresh_s))
    return Curve(
        times_s[changed] - gaps_s / 2,
        np.cumsum(np.where(wrong, 0.0, steps_j)),
        gaps_s / 2,
        float(times_s[-1]),
        broken=np.flatnonzero(wrong),
        unread_s=_far_apart(times_s, read_every_s),
        counts=True,
    )


def of_readings(times_s: Numbers, power_w: Numbers, sensor: Sensor) -> Curve | None:
    """The curve of power readings taken at `times_s`; None if they are too few."""
    if len(times_s) < 2:
        return None
    step_w = float((power_w % 1 == 0).all())
    changed = np.flatnonzero(np.diff(power_w)) + 1
    if not len(changed):  # constant: it may have been refreshed at any moment
        joules, slack_s = power_w[0] * (times_s - times_s[0]), np.zeros(len(times_s))
        unread_s = _far_apart(times_s, max(sensor.refresh_s, sensor.averaging_s))
        until_s = float(times_s[-1])
        return Curve(times_s, joules, slack_s, until_s, step_w=step_w, unread_s=unread_s)
    refresh_s = _refresh_s(times_s, times_s[changed], sensor.refresh_s)
    covered_s = max(refresh_s, sensor.averaging_s)
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], refresh_s)
    # A constant value is refreshed each period, also after the last change.
    seen_s = np.append(times_s[changed] - gaps_s / 2, times_s[-1])
    seen_w, seen_slack_s = np.append(power_w[changed], power_w[-1]), np.append(gaps_s / 2, 0.0)
    apart_s = np.diff(seen_s)
    steps = np.maximum(1, np.rint(apart_s / refresh_s)).astype(np.int64)
    place = np.repeat(np.arange(len(steps)), steps)
    order = np.arange(len(place)) - (np.cumsum(steps) - steps)[place] + 1
    knots_s = seen_s[place] + order * (apart_s / steps)[place]
    watts = np.where(order == steps[place], seen_w[place + 1], seen_w[place])
    joules = np.cumsum(watts * (apart_s / steps)[place])
    late_s = sensor.lag_s + max(0.0, (sensor.averaging_s - refresh_s) / 2)
    # Differences of successive readings estimate how power varies and, by their median, where the
    # load stays the same, the noise. A reading of a part of its period misses the rest, and where
    # power changed is known to the slack.
    unseen = max(0.0, 1 - sensor.averaging_s / refresh_s)
    steps_w = np.diff(watts) if len(watts) > 1 else np.zeros(1)
    varies_w = math.sqrt(float(np.mean(steps_w**2)))
    noise_w = float(np.median(np.abs(steps_w))) / _MEDIAN_OF_NORMAL
    slack_j = varies_w * float(gaps_s.mean()) / 2 / math.sqrt(3)
    readings_j = refresh_s * math.hypot(unseen * varies_w, noise_w) / math.sqrt(2)
    return Curve(
        np.append(seen_s[0], knots_s) - late_s,
        np.append(0.0, joules),
        np.append(seen_slack_s[0], seen_slack_s[place]),
        float(times_s[-1]) - late_s,
        sd_j=math.hypot(readings_j, slack_j),
        blur_s=sensor.averaging_s if sensor.averaging_s > _SLOWER * refresh_s else 0.0,
        step_w=step_w,
        unread_s=_far_apart(_live(times_s, changed, refresh_s), covered_s) - late_s,
    )


def _refresh_s(times_s: Numbers, changed_s: Numbers, assumed_s: float) -> float:
    """The assumed period, or the one estimated from changes if all of them are further apart than
    this period and than the readings.
    """
    apart_s = np.diff(changed_s)
    seen_s = max(assumed_s, float(np.median(np.diff(times_s))))
    slower = len(apart_s) > 1 and apart_s.min() >= _SLOWER * seen_s
    return float(np.median(apart_s)) if slower else assumed_s


def _far_apart(times_s: Numbers, covered_s: float) -> Numbers:
    """Pairs of moments between which the sensor was not read, if a reading covers `covered_s`."""
    late = np.flatnonzero(np.diff(times_s) > covered_s)
    return np.stack([times_s[late], times_s[late + 1] - covered_s], axis=1)


def _live(times_s: Numbers, changed: NDArray[np.intp], refresh_s: float) -> Numbers:
    """The times of the readings between which the sensor was not stuck, and of the last one."""
    apart_s = np.diff(times_s[changed])
    if len(apart_s) < _STUCK:
        return times_s
    usual_s = max(refresh_s, float(np.quantile(apart_s, 0.9)))
    last = np.searchsorted(changed, np.arange(len(times_s)), "right") - 1
    since_s = times_s - times_s[changed[last.clip(0)]]
    return np.append(times_s[since_s <= _STUCK * usual_s], times_s[-1])
