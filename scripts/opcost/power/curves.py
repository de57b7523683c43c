"""Curves of cumulative energy over time, from the readings of a sensor.

A counter, or the integral of power readings, becomes a curve that is known at its *knots*, the
moments when the sensor changed.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import MAX_W
from opcost.energy.sensor import Sensor

Numbers = NDArray[np.float64]

_MEDIAN_OF_NORMAL = 0.6745
"""Median absolute value of a standard normal variable."""

_STEPS_W = (1.0, 0.1, 0.01, 0.001)
"""ASSUME sensors are rounded to watts, or to a decimal part of one."""

_SLOWER = 1.5
"""A sensor whose changes are all further apart, in periods, is slower than assumed."""

_STUCK = 20
"""ASSUME a sensor that has changed is stuck if it stays the same for so many usual intervals."""


@dataclass(frozen=True)
class Curve:
    """Cumulative joules at ascending `times_s`, each of which may be off by `slack_s`.

    Readings averaged over longer than their period blur the curve over `blur_s`. Each reading has
    an error of `noise_j` and, if readings do not cover the share `unseen` of the time, one of
    `unseen_j`. All readings are rounded to `step_w`.

    The counter was reset, or jumped, before the knots `broken`. Within `unread_s`, pairs of
    moments, the sensor was not read or was stuck, as between readings further apart than
    `covered_s`; if the curve `counts`, the total energy of these gaps is known. `shown_w` is the
    range of the power readings, if there are any; `limit_w` is the power limit, if it is known.
    The last reading shows the power before `until_s`.
    """

    times_s: Numbers
    joules: Numbers
    slack_s: Numbers
    blur_s: float = 0.0
    unseen: float = 0.0
    unseen_j: float = 0.0
    noise_j: float = 0.0
    step_w: float = 0.0
    broken: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    unread_s: Numbers = field(default_factory=lambda: np.empty((0, 2)))
    counts: bool = False
    shown_w: tuple[float, float] | None = None
    covered_s: float = math.inf
    limit_w: float | None = None
    until_s: float = math.inf

    @cached_property
    def every_s(self) -> float | None:
        """Median seconds between changes of the sensor."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else None

    @cached_property
    def range_w(self) -> tuple[float, float]:
        """The lowest and the highest mean power between knots."""
        watts = np.diff(self.joules) / np.diff(self.times_s)
        return float(watts.min()), float(watts.max())

    @cached_property
    def early_s(self) -> Numbers:
        """The earliest possible times of the knots."""
        return self.times_s - self.slack_s

    @cached_property
    def late_s(self) -> Numbers:
        """The latest possible times of the knots."""
        return self.times_s + self.slack_s

    def unread_between(self, start_s: float, end_s: float) -> Numbers:
        """Seconds of each part of `unread_s` that lies between two moments."""
        lengths_s = self.unread_s.clip(start_s, end_s) @ [-1.0, 1.0]
        return lengths_s[lengths_s > 0]


_NO_CURVE = Curve(np.empty(0), np.empty(0), np.empty(0))


def of_counter(
    times_s: Numbers,
    counter_j: Numbers,
    refresh_s: float,
    most_w: float = MAX_W,
    read_every_s: float = math.inf,
    shown_w: tuple[float, float] | None = None,
) -> Curve:
    """The curve of a counter, read at `times_s`, that is updated at least every `refresh_s`.

    A counter that stays the same for longer is updated as often as it is seen to change. One that
    decreases, or increases by more than `most_w`, was reset. Power between readings further apart
    than `read_every_s` is unknown.
    """
    steps_j = np.diff(counter_j)
    changed = np.flatnonzero(steps_j) + 1
    if not len(changed):
        return _NO_CURVE
    refresh_s = _counter_refresh_s(times_s, changed, refresh_s)
    # The update came after the previous reading, at most a period ago.
    between_s = times_s[changed] - times_s[changed - 1]
    gaps_s = np.minimum(between_s, refresh_s)
    steps_j = steps_j[changed - 1]
    since_s = np.diff(times_s[changed], prepend=times_s[0])
    wrong = (steps_j < 0) | (steps_j > most_w * (since_s + refresh_s))
    joules = counter_j[changed[0]] + np.cumsum(np.where(wrong, 0.0, steps_j)) - steps_j[0]
    return Curve(
        times_s[changed] - gaps_s / 2,
        joules,
        gaps_s / 2,
        broken=np.flatnonzero(wrong),
        unread_s=_unread_s(times_s, read_every_s),
        counts=True,
        shown_w=shown_w,
        covered_s=read_every_s,
        until_s=float(times_s[-1]),
    )


def _counter_refresh_s(times_s: Numbers, changed: NDArray[np.intp], assumed_s: float) -> float:
    """The assumed period, or an estimate from changes if readings were constant for longer."""
    first, last = np.append(0, changed), np.append(changed, len(times_s)) - 1
    same_s = times_s[last] - times_s[first]
    if same_s.max() < _SLOWER * assumed_s:
        return assumed_s
    apart_s = np.diff(times_s[changed])
    return max(assumed_s, float(np.median(apart_s if len(apart_s) else same_s)))


def of_readings(times_s: Numbers, power_w: Numbers, sensor: Sensor) -> Curve:
    """The curve of power readings taken at `times_s`."""
    if len(times_s) < 2:
        return _NO_CURVE
    step_w = _step_shown_w(power_w)
    changed = np.flatnonzero(np.diff(power_w)) + 1
    if not len(changed):  # constant: it may have been refreshed at any moment
        joules, sure = power_w[0] * (times_s - times_s[0]), np.zeros(len(times_s))
        unread_s = _unread_s(times_s, max(sensor.refresh_s, sensor.averaging_s))
        until_s = float(times_s[-1])
        return Curve(times_s, joules, sure, step_w=step_w, unread_s=unread_s, until_s=until_s)
    refresh_s = _refresh_s(times_s, times_s[changed], sensor.refresh_s)
    unread_s = _together(
        _unread_s(times_s, max(refresh_s, sensor.averaging_s)),
        _stuck_s(np.append(times_s[changed], times_s[-1]), refresh_s),
    )
    gaps_s = np.minimum(times_s[changed] - times_s[changed - 1], refresh_s)
    moments_s, watts, slack_s = _periodic(
        np.append(times_s[changed] - gaps_s / 2, times_s[-1]),
        np.append(power_w[changed], power_w[-1]),
        np.append(gaps_s / 2, refresh_s),
        refresh_s,
    )
    if len(moments_s) < 2:
        return _NO_CURVE
    joules = np.concatenate([[0.0], np.cumsum(watts[1:] * np.diff(moments_s))])
    late_s = sensor.lag_s + max(0.0, (sensor.averaging_s - refresh_s) / 2)
    unseen = max(0.0, 1 - sensor.averaging_s / refresh_s)
    # Differences of successive readings estimate how power varies and, by their median, where the
    # load stays the same, the noise.
    steps_w = np.diff(watts)
    between_w = math.sqrt(float(np.mean(steps_w**2)) / 2)
    noise_w = float(np.median(np.abs(steps_w))) / _MEDIAN_OF_NORMAL / math.sqrt(2)
    return Curve(
        moments_s - late_s,
        joules,
        slack_s,
        sensor.averaging_s if sensor.averaging_s > 1.5 * refresh_s else 0.0,
        unseen,
        refresh_s * unseen * between_w,
        refresh_s * noise_w,
        step_w,
        unread_s=unread_s - late_s,
        covered_s=max(refresh_s, sensor.averaging_s),
        until_s=float(times_s[-1]) - late_s,
    )


def _refresh_s(times_s: Numbers, changed_s: Numbers, assumed_s: float) -> float:
    """The assumed period, or the one estimated from changes if all of them are further apart than
    this period and than the readings.
    """
    apart_s = np.diff(changed_s)
    seen_s = max(assumed_s, float(np.median(np.diff(times_s))))
    if len(apart_s) < 2 or apart_s.min() < _SLOWER * seen_s:
        return assumed_s
    return float(np.median(apart_s))


def _stuck_s(changed_s: Numbers, refresh_s: float) -> Numbers:
    """Pairs of moments between which the sensor was stuck; the last moment is the end of the
    recording.
    """
    apart_s = np.diff(changed_s)
    if len(apart_s) < _STUCK:
        return np.empty((0, 2))
    usual_s = max(refresh_s, float(np.quantile(apart_s, 0.9)))
    still = np.flatnonzero(apart_s > _STUCK * usual_s)
    return np.stack([changed_s[still] + refresh_s, changed_s[still + 1]], axis=1)


def _together(*pairs: Numbers) -> Numbers:
    """The union of pairs of moments."""
    found: list[list[float]] = []
    for first, last in sorted(np.concatenate(pairs).tolist()):
        if found and first <= found[-1][1]:
            found[-1][1] = max(last, found[-1][1])
        else:
            found.append([first, last])
    return np.array(found).reshape(-1, 2)


def _periodic(
    seen_s: Numbers, watts: Numbers, slack_s: Numbers, refresh_s: float
) -> tuple[Numbers, Numbers, Numbers]:
    """All refreshes between observed changes, their values, and the possible error of their times.

    A constant value is refreshed each period. When a change is observed depends on when the sensor
    was read; the periodicity of refreshes gives a better estimate.
    """
    if len(seen_s) < 3:
        return seen_s[:0], watts[:0], slack_s[:0]
    apart_s = np.diff(seen_s)
    shortest_s = min(refresh_s, float(np.median(apart_s)))
    steps = np.maximum(1, np.rint(apart_s / shortest_s)).astype(np.int64)
    periods = np.concatenate([[0], np.cumsum(steps)])
    # The last moment is the end of the recording, not a change.
    period_s = float(seen_s[-2] - seen_s[0]) / float(periods[-2])
    phase_s = float(np.median(seen_s[:-1] - periods[:-1] * period_s))
    every = np.arange(periods[-1])
    place = np.searchsorted(periods, every, "right") - 1
    off_s = np.abs(seen_s - phase_s - periods * period_s)
    return phase_s + every * period_s, watts[place], np.minimum(off_s, slack_s)[place]


def _unread_s(times_s: Numbers, covered_s: float) -> Numbers:
    """Pairs of moments between which the sensor was not read, if a reading covers `covered_s`."""
    late = np.flatnonzero(np.diff(times_s) > covered_s)
    return np.stack([times_s[late], times_s[late + 1] - covered_s], axis=1)


def _step_shown_w(power_w: Numbers) -> float:
    """The coarsest step of which all readings are multiples, 0 for none."""
    for step_w in _STEPS_W:
        steps = power_w / step_w
        if np.abs(steps - np.rint(steps)).max() < 1e-6:
            return step_w
    return 0.0
