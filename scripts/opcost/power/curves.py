"""Curves of energy over time, from what a sensor showed.

A counter, or the readings of power added up, become a curve that is known at its *knots*, the
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
"""The median of the absolute value of a standard normal variable."""

_STEPS_W = (1.0, 0.1, 0.01, 0.001)
"""ASSUME sensors show whole watts, or a decimal part of one."""

_SLOWER = 1.5
"""A sensor whose changes are all further apart, in periods, is slower than assumed."""

_STUCK = 20
"""ASSUME a sensor that has shown changes does not show the same for so many times its usual
interval, unless it is stuck."""


@dataclass(frozen=True)
class Curve:
    """Joules since a fixed moment at ascending `times_s`, each of which may be off by `slack_s`.

    Readings that are means over longer than they last blur the curve over `blur_s`. Each reading
    adds an error of `noise_j`, that of the sensor, and, where readings do not see the share
    `unseen` of the time, one of `unseen_j`. All readings may be off by half of `step_w`, that of
    what the sensor shows.

    The counter was set back, or jumped, before the knots `broken`. Within `unread_s`, pairs of
    moments, the sensor was not read, or stood still; so it is between readings further apart than
    `covered_s`. If it `counts`, their energy is known as a whole. `shown_w` are the least and the
    most power that readings show, if there are any; `limit_w` is the device's power limit, if
    it is known. What was read last shows what was before `until_s`.
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
        """How often the sensor changes."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else None

    @cached_property
    def range_w(self) -> tuple[float, float]:
        """The least and the most power between knots."""
        watts = np.diff(self.joules) / np.diff(self.times_s)
        return float(watts.min()), float(watts.max())

    @cached_property
    def early_s(self) -> Numbers:
        """When the knots were at the earliest."""
        return self.times_s - self.slack_s

    @cached_property
    def late_s(self) -> Numbers:
        """When the knots were at the latest."""
        return self.times_s + self.slack_s

    def unread_between(self, start_s: float, end_s: float) -> Numbers:
        """The lengths in seconds of the parts of `unread_s` that lie between two moments."""
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

    One that stays the same for longer is updated as often as it is seen to change. A counter that
    decreases, or increases by more than `most_w`, was reset. Power between readings that are
    further apart than `read_every_s` is unknown.
    """
    steps_j = np.diff(counter_j)
    changed = np.flatnonzero(steps_j) + 1
    if not len(changed):
        return _NO_CURVE
    refresh_s = _counter_refresh_s(times_s, changed, refresh_s)
    # The update came after the reading before, and not longer than a period ago.
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
    """The period as assumed, or as the changes tell, if readings were the same for longer."""
    first, last = np.append(0, changed), np.append(changed, len(times_s)) - 1
    same_s = times_s[last] - times_s[first]
    if same_s.max() < _SLOWER * assumed_s:
        return assumed_s
    apart_s = np.diff(times_s[changed])
    return max(assumed_s, float(np.median(apart_s if len(apart_s) else same_s)))


def of_readings(times_s: Numbers, power_w: Numbers, sensor: Sensor) -> Curve:
    """The curve of readings of power, taken at `times_s`."""
    if len(times_s) < 2:
        return _NO_CURVE
    step_w = _step_shown_w(power_w)
    changed = np.flatnonzero(np.diff(power_w)) + 1
    if not len(changed):  # exactly constant: it may have been refreshed at any moment
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
    # Successive readings tell how power varies from one to the next, and, in the median, where the
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
    """The sensor's period as assumed, or as its changes tell, if all of them are further apart,
    and than its readings.
    """
    apart_s = np.diff(changed_s)
    seen_s = max(assumed_s, float(np.median(np.diff(times_s))))
    if len(apart_s) < 2 or apart_s.min() < _SLOWER * seen_s:
        return assumed_s
    return float(np.median(apart_s))


def _stuck_s(changed_s: Numbers, refresh_s: float) -> Numbers:
    """Pairs of moments between which a sensor stood still, unlike before; the last of the moments
    is the end of the recording, no change.
    """
    apart_s = np.diff(changed_s)
    if len(apart_s) < _STUCK:
        return np.empty((0, 2))
    usual_s = max(refresh_s, float(np.quantile(apart_s, 0.9)))
    still = np.flatnonzero(apart_s > _STUCK * usual_s)
    return np.stack([changed_s[still] + refresh_s, changed_s[still + 1]], axis=1)


def _together(*pairs: Numbers) -> Numbers:
    """Pairs of moments that cover what any of these do, none of it twice."""
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
