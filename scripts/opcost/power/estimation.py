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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opcost.energy.sensor import Sensor
from opcost.statistics import NORMAL_97_5, Estimate

Numbers = NDArray[np.float64]

_BEYOND_SHOWN = 0.1
_MEDIAN_OF_NORMAL = 0.6745
"""The median of the absolute value of a standard normal variable."""

_WIDEST = 0.5
"""An interval of a larger share of the value says less than the upper limit."""


@dataclass(frozen=True)
class Curve:
    """Joules since a fixed moment at ascending `times_s`, each of which may be off by `slack_s`.

    Readings that are means over longer than they last blur the curve over `blur_s`. Each reading
    adds an error of `noise_j`, that of the sensor, and, where readings cover part of the time
    alone, one of `unseen_j`.
    """

    times_s: Numbers
    joules: Numbers
    slack_s: Numbers
    blur_s: float = 0.0
    unseen_j: float = 0.0
    noise_j: float = 0.0


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
    """The curve of a counter, read at `times_s`, that is updated at least every `refresh_s`."""
    changed = np.flatnonzero(np.diff(counter_j)) + 1
    if not len(changed):
        return Curve(np.empty(0), np.empty(0), np.empty(0))
    # The update came after the reading before, and not longer than a period ago.
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], refresh_s)
    return Curve(times_s[changed] - gaps_s / 2, counter_j[changed], gaps_s / 2)


def of_readings(times_s: Numbers, power_w: Numbers, sensor: Sensor) -> Curve:
    """The curve of readings of power, taken at `times_s`."""
    if len(times_s) < 2:
        return Curve(np.empty(0), np.empty(0), np.empty(0))
    changed = np.flatnonzero(np.diff(power_w)) + 1
    if not len(changed):  # exactly constant: it may have been refreshed at any moment
        return Curve(times_s, power_w[0] * (times_s - times_s[0]), np.zeros(len(times_s)))
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], sensor.refresh_s)
    moments_s, watts, slack_s = _periodic(
        np.append(times_s[changed] - gaps_s / 2, times_s[-1]),
        np.append(power_w[changed], power_w[-1]),
        np.append(gaps_s / 2, sensor.refresh_s),
        sensor.refresh_s,
    )
    if len(moments_s) < 2:
        return Curve(np.empty(0), np.empty(0), np.empty(0))
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
    )


def energy_of(curve: Curve, start_s: float, end_s: float) -> WindowEnergy:
    """The energy between two moments."""
    moments = curve.times_s
    every_s = float(np.median(np.diff(moments))) if len(moments) > 1 else None
    before = int(np.searchsorted(moments, start_s, "right")) - 1
    after = int(np.searchsorted(moments, end_s, "left"))
    if before < 0 or after >= len(moments):
        reason = "the sensor did not change before and after the window"
        return WindowEnergy(None, reason, None, 0, every_s)
    changes = max(0, after - before - 1)
    at_least_j, at_most_j = _limits(curve, start_s, end_s)
    noise_j = NORMAL_97_5 * curve.noise_j * math.sqrt(changes + 2)
    # What readings leave out or blur has no limit.
    sure = not curve.blur_s and not curve.unseen_j
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
    margin_j = NORMAL_97_5 * math.hypot(first_sd, last_sd, readings_sd)
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


def _too_short(length_s: float, every_s: float | None) -> str:
    often = "" if every_s is None else f", which changes every {every_s:.3g} s"
    return (
        f"{length_s:.3g} s are too short for the sensor{often}: repeat what the window holds, and "
        "divide"
    )
