"""The energy of a window of time, from what a sensor showed before, in and after it.

A counter, or the readings of power added up, become a curve of energy that is known at its *knots*,
the moments when the sensor changed. A window seldom begins or ends at a knot. Where between two
knots their energy was spent is unknown, within limits: power lies between the least and the most
that the sensor has shown. The energy up to an edge is taken to be uniformly distributed between
these limits, and the interval of a window holds the errors of both edges.
"""

# ASSUME power between two knots does not leave the range of what is shown around the window by more
# than a tenth of that range: shorter peaks and pauses are not seen.

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import MAX_W
from opcost.energy.sensor import Sensor
from opcost.statistics import NORMAL_97_5, Estimate

Numbers = NDArray[np.float64]

_BEYOND_SHOWN = 0.1
_MEDIAN_OF_NORMAL = 0.6745
"""The median of the absolute value of a standard normal variable."""

_WIDEST = 0.5
"""An interval of a larger share of the value says less than the upper limit."""

_MOST_UNREAD = 0.1
"""If the meter was not read for a larger share of a window, its energy is unknown: what kept the
sampler from reading is likely to be what the window is about."""

_STEPS_W = (1.0, 0.1, 0.01, 0.001)
"""ASSUME sensors show whole watts, or a decimal part of one."""

NOT_SHOWN = "the sensor did not change before and after the window"


@dataclass(frozen=True)
class Curve:
    """Joules since a fixed moment at ascending `times_s`, each of which may be off by `slack_s`.

    Readings that are means over longer than they last blur the curve over `blur_s`. Each reading
    adds an error of `noise_j`, that of the sensor, and, where readings cover part of the time
    alone, one of `unseen_j`. All readings may be off by half of `step_w`, that of what the sensor
    shows.

    The counter was set back, or jumped, before the knots `broken`. Within `unread_s`, pairs of
    moments, the sensor was not read although it was refreshed.
    """

    times_s: Numbers
    joules: Numbers
    slack_s: Numbers
    blur_s: float = 0.0
    unseen_j: float = 0.0
    noise_j: float = 0.0
    step_w: float = 0.0
    broken: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    unread_s: Numbers = field(default_factory=lambda: np.empty((0, 2)))

    def unread_between(self, start_s: float, end_s: float) -> Numbers:
        """The lengths in seconds of the parts of `unread_s` that lie between two moments."""
        lengths_s = self.unread_s.clip(start_s, end_s) @ [-1.0, 1.0]
        return lengths_s[lengths_s > 0]


_NO_CURVE = Curve(np.empty(0), np.empty(0), np.empty(0))


@dataclass(frozen=True)
class WindowEnergy:
    """Joules of a window with their 95 % interval, or None with the `reason`.

    `at_most_j` is an upper limit in either case, if there is one. `changes` is how often the sensor
    changed in the window, `every_s` how often it does.
    """

    energy: Estimate | None
    reason: str | None
    at_most_j: float | None
    changes: int
    every_s: float | None


def of_counter(times_s: Numbers, counter_j: Numbers, refresh_s: float) -> Curve:
    """The curve of a counter, read at `times_s`, that is updated at least every `refresh_s`.

    A counter that decreases, or increases by more than any device draws, was set anew.
    """
    steps_j = np.diff(counter_j)
    changed = np.flatnonzero(steps_j) + 1
    if not len(changed):
        return _NO_CURVE
    # The update came after the reading before, and not longer than a period ago.
    between_s = times_s[changed] - times_s[changed - 1]
    gaps_s = np.minimum(between_s, refresh_s)
    steps_j = steps_j[changed - 1]
    wrong = (steps_j < 0) | (steps_j > MAX_W * np.maximum(between_s, refresh_s))
    joules = counter_j[changed[0]] + np.cumsum(np.where(wrong, 0.0, steps_j)) - steps_j[0]
    moments_s = times_s[changed] - gaps_s / 2
    return Curve(moments_s, joules, gaps_s / 2, broken=np.flatnonzero(wrong))


def of_readings(times_s: Numbers, power_w: Numbers, sensor: Sensor) -> Curve:
    """The curve of readings of power, taken at `times_s`."""
    if len(times_s) < 2:
        return _NO_CURVE
    unread_s = _unread_s(times_s, max(sensor.refresh_s, sensor.averaging_s))
    step_w = _step_shown_w(power_w)
    changed = np.flatnonzero(np.diff(power_w)) + 1
    if not len(changed):  # exactly constant: it may have been refreshed at any moment
        joules, sure = power_w[0] * (times_s - times_s[0]), np.zeros(len(times_s))
        return Curve(times_s, joules, sure, step_w=step_w, unread_s=unread_s)
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], sensor.refresh_s)
    moments_s, watts, slack_s = _periodic(
        np.append(times_s[changed] - gaps_s / 2, times_s[-1]),
        np.append(power_w[changed], power_w[-1]),
        np.append(gaps_s / 2, sensor.refresh_s),
        sensor.refresh_s,
    )
    if len(moments_s) < 2:
        return _NO_CURVE
    joules = np.concatenate([[0.0], np.cumsum(watts[1:] * np.diff(moments_s))])
    late_s = sensor.lag_s + max(0.0, (sensor.averaging_s - sensor.refresh_s) / 2)
    unseen = max(0.0, 1 - sensor.averaging_s / sensor.refresh_s)
    # Successive readings tell how power varies from one to the next, and, in the median, where the
    # load stays the same, the noise.
    steps_w = np.diff(watts)
    between_w = math.sqrt(float(np.mean(steps_w**2)) / 2)
    noise_w = float(np.median(np.abs(steps_w))) / _MEDIAN_OF_NORMAL / math.sqrt(2)
    return Curve(
        moments_s - late_s,
        joules,
        slack_s,
        sensor.averaging_s if sensor.averaging_s > 1.5 * sensor.refresh_s else 0.0,
        sensor.refresh_s * unseen * between_w,
        sensor.refresh_s * noise_w,
        step_w,
        unread_s=unread_s - late_s,
    )


def energy_of(curve: Curve, start_s: float, end_s: float) -> WindowEnergy:
    """The energy between two moments."""
    moments = curve.times_s
    every_s = float(np.median(np.diff(moments))) if len(moments) > 1 else None
    before = int(np.searchsorted(moments, start_s, "right")) - 1
    after = int(np.searchsorted(moments, end_s, "left"))
    if before < 0 or after >= len(moments):
        return WindowEnergy(None, NOT_SHOWN, None, 0, every_s)
    changes = max(0, after - before - 1)
    if ((before < curve.broken) & (curve.broken <= after)).any():
        reason = "the energy counter was set back or jumped in the window"
        return WindowEnergy(None, reason, None, changes, every_s)
    unread_s = curve.unread_between(start_s, end_s)
    if unread_s.sum() > _MOST_UNREAD * (end_s - start_s):
        reason = _unread(float(unread_s.sum()), end_s - start_s, every_s)
        return WindowEnergy(None, reason, None, changes, every_s)
    at_least_j, at_most_j = _limits(curve, start_s, end_s)
    noise_j = NORMAL_97_5 * curve.noise_j * math.sqrt(changes + 2)
    noise_j += curve.step_w / 2 * (end_s - start_s)
    # What readings leave out or blur has no limit.
    sure = not curve.blur_s and not curve.unseen_j and not len(unread_s)
    limit_j = at_most_j + noise_j if sure else None
    if not changes:
        reason = _too_short(end_s - start_s, every_s)
        return WindowEnergy(None, reason, limit_j, changes, every_s)
    low_w, high_w = _range_w(curve)
    (first_j, first_sd), (last_j, last_sd) = (
        _up_to(curve, place, moment_s, low_w, high_w)
        for place, moment_s in ((before, start_s), (after - 1, end_s))
    )
    value_j = last_j - first_j
    readings_sd = math.hypot(curve.unseen_j, curve.noise_j) * math.sqrt(changes)
    shown_sd = curve.step_w * (end_s - start_s) / math.sqrt(12)
    unread_sd = (high_w - low_w) * float(np.linalg.norm(unread_s)) / math.sqrt(3)
    margin_j = NORMAL_97_5 * math.hypot(first_sd, last_sd, readings_sd, shown_sd, unread_sd)
    if value_j <= 0:
        reason = "the sensor shows no power"
        return WindowEnergy(None, reason, None, changes, every_s)
    if margin_j > _WIDEST * value_j:
        reason = _too_short(end_s - start_s, every_s)
        return WindowEnergy(None, reason, limit_j, changes, every_s)
    low_j, high_j = value_j - margin_j, value_j + margin_j
    if limit_j is not None:
        low_j, high_j = max(low_j, at_least_j - noise_j), min(high_j, limit_j)
    found = Estimate(value_j, min(low_j, value_j), max(high_j, value_j))
    return WindowEnergy(found, None, limit_j, changes, every_s)


def _limits(curve: Curve, start_s: float, end_s: float) -> tuple[float, float]:
    """The joules between the changes that surely came in the window, and between those that surely
    came before and after it.
    """
    early, late = curve.times_s - curve.slack_s, curve.times_s + curve.slack_s
    last = len(early) - 1
    before = max(int(np.searchsorted(late, start_s, "right")) - 1, 0)
    after = min(int(np.searchsorted(early, end_s, "left")), last)
    first_inside = min(int(np.searchsorted(early, start_s, "left")), last)
    last_inside = max(int(np.searchsorted(late, end_s, "right")) - 1, first_inside)
    joules = curve.joules
    return float(joules[last_inside] - joules[first_inside]), float(joules[after] - joules[before])


def _up_to(
    curve: Curve, place: int, moment_s: float, low_w: float, high_w: float
) -> tuple[float, float]:
    """Joules up to a moment after the knot at `place`, and their standard deviation."""
    length_s = float(curve.times_s[place + 1] - curve.times_s[place])
    spent_j = float(curve.joules[place + 1] - curve.joules[place])
    part_s = moment_s - float(curve.times_s[place])
    rest_s = length_s - part_s
    least_j = max(spent_j - high_w * rest_s, low_w * part_s, 0.0)
    most_j = min(high_w * part_s, spent_j - low_w * rest_s, spent_j)
    straight_j = spent_j * part_s / length_s
    if least_j > most_j:
        least_j = most_j = straight_j
    slack_j = float(curve.slack_s[place]) * spent_j / length_s
    blur_j = _step_w(curve, moment_s) * curve.blur_s / 8
    variance = (most_j - least_j) ** 2 / 12 + (slack_j**2 + blur_j**2) / 3
    return float(curve.joules[place]) + (least_j + most_j) / 2, math.sqrt(variance)


def _range_w(curve: Curve) -> tuple[float, float]:
    """The least and the most power between knots, and a little beyond."""
    shown_w = np.diff(curve.joules) / np.diff(curve.times_s)
    least, most = float(shown_w.min()), float(shown_w.max())
    beyond = _BEYOND_SHOWN * (most - least)
    return max(0.0, least - beyond), most + beyond


def _step_w(curve: Curve, moment_s: float) -> float:
    """By how much power changes around a moment, within the length of a blur."""
    if not curve.blur_s:
        return 0.0
    first, last = np.searchsorted(curve.times_s, [moment_s - curve.blur_s, moment_s + curve.blur_s])
    near = slice(max(int(first) - 1, 0), int(last) + 1)
    if len(curve.times_s[near]) < 2:
        return 0.0
    shown_w = np.diff(curve.joules[near]) / np.diff(curve.times_s[near])
    return float(shown_w.max() - shown_w.min())


def _periodic(
    seen_s: Numbers, watts: Numbers, slack_s: Numbers, refresh_s: float
) -> tuple[Numbers, Numbers, Numbers]:
    """All refreshes between changes that were seen, their values, and by how much each may be off.

    A value that stays is shown again after each period. When a change was seen depends on when the
    sensor was read; that refreshes are periodic tells better when it was.
    """
    if len(seen_s) < 3:
        return seen_s[:0], watts[:0], slack_s[:0]
    apart_s = np.diff(seen_s)
    shortest_s = min(refresh_s, float(np.median(apart_s)))
    steps = np.maximum(1, np.rint(apart_s / shortest_s)).astype(np.int64)
    periods = np.concatenate([[0], np.cumsum(steps)])
    # The last one is the end of the recording, no change.
    period_s = float(seen_s[-2] - seen_s[0]) / float(periods[-2])
    phase_s = float(np.median(seen_s[:-1] - periods[:-1] * period_s))
    every = np.arange(periods[-1])
    place = np.searchsorted(periods, every, "right") - 1
    off_s = np.abs(seen_s - phase_s - periods * period_s)
    return phase_s + every * period_s, watts[place], np.minimum(off_s, slack_s)[place]


def _unread_s(times_s: Numbers, covered_s: float) -> Numbers:
    """Pairs of moments between which a sensor was not read, if a reading covers `covered_s`."""
    late = np.flatnonzero(np.diff(times_s) > covered_s)
    return np.stack([times_s[late], times_s[late + 1] - covered_s], axis=1)


def _step_shown_w(power_w: Numbers) -> float:
    """The coarsest step of which all readings are multiples."""
    for step_w in _STEPS_W:
        steps = power_w / step_w
        if np.abs(steps - np.rint(steps)).max() < 1e-6:
            return step_w
    return 0.0


def _unread(unread_s: float, length_s: float, every_s: float | None) -> str:
    often = "" if every_s is None else f", which changes every {every_s:.3g} s"
    return (
        f"the sensor{often} was not read for {unread_s:.3g} of {length_s:.3g} s: give a shorter "
        "period, or leave the sampler a core"
    )


def _too_short(length_s: float, every_s: float | None) -> str:
    often = "" if every_s is None else f", which changes every {every_s:.3g} s"
    return (
        f"{length_s:.3g} s are too short for the sensor{often}: repeat what the window holds, and "
        "divide"
    )
