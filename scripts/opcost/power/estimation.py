"""The energy of a window of time, from sensor readings before, in and after it.

A window seldom begins or ends at a knot of the energy curve (curves.py). When the energy between
two knots was spent is bounded by the lowest and the highest power that the sensor has shown. The
interval of a window extends to these bounds at both edges: most windows begin and end with the
load, so the true value lies at the bounds, with the same sign at both edges. While the sensor was
not read, power is unbounded. Work between or within windows may be too short for the sensor: see
stretches.py.
"""

# ASSUME power between two knots leaves the range shown around the window by at most a tenth of that
# range, unless an edge of another window marks a change of the program: shorter peaks and pauses
# are not seen. A device draws at most its power limit; if that is unknown, at most twice what it
# shows, except for what a longer average may hide.

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opcost.power.curves import Curve, Numbers
from opcost.power.stretches import NO_EDGES, PowerRange, Stretches
from opcost.statistics import NORMAL_97_5, Estimate

_BEYOND_SHOWN = 0.1
_WIDEST = 0.5
"""An interval of a larger share of the value is less useful than the upper limit."""

_MOST_UNREAD = 0.1
"""If the meter was not read for a larger share of a window, its energy is unknown: whatever delayed
the sampler is probably what the window measures."""

_LONG_ENOUGH = 2.0
"""A window of so many readings would usually have an energy if the sensor was read often enough."""

_RESOLVED = 2.0
"""Shortest duration resolved, in intervals between knots."""

_PEAK = 2.0
"""Upper limit of power, as a multiple of the highest reading, if the power limit is unknown."""

_ENDS_SOON = 2.0
"""A sensor that is read changes within so many of its usual intervals."""

NOT_SHOWN = "the sensor did not change before and after the window"
REPEAT = "repeat what the window holds, and divide"
CUT_OFF = "the recording ends before the sensor showed the end of the window"


@dataclass(frozen=True)
class WindowEnergy:
    """Joules of a window with their 95 % interval, or None with the `reason`.

    `at_most_j` is an upper limit in either case, if there is one. `changes` counts the sensor's
    changes in the window, which come every `every_s`.
    """

    energy: Estimate | None
    reason: str | None
    at_most_j: float | None
    changes: int
    every_s: float | None


def energy_of(
    curve: Curve, start_s: float, end_s: float, edges_s: Numbers = NO_EDGES
) -> WindowEnergy:
    """The energy between two moments. `edges_s` are the ascending edges of all windows."""
    moments = curve.times_s
    every_s = curve.every_s
    before = int(np.searchsorted(moments, start_s, "right")) - 1
    after = int(np.searchsorted(moments, end_s, "left"))
    if before < 0:
        return WindowEnergy(None, NOT_SHOWN, None, 0, every_s)
    if after >= len(moments):
        return _not_shown_to_its_end(curve, start_s, end_s, before)
    changes = max(0, after - before - 1)
    if ((before < curve.broken) & (curve.broken <= after)).any():
        reason = "the energy counter was set back or jumped in the window"
        return WindowEnergy(None, reason, None, changes, every_s)
    unread_s = curve.unread_between(start_s, end_s)
    most = 1.0 if curve.counts and changes else _MOST_UNREAD
    if unread_s.sum() > most * (end_s - start_s):
        reason = _unread(float(unread_s.sum()), end_s - start_s, _often(every_s, curve.covered_s))
        return WindowEnergy(None, reason, None, changes, every_s)
    at_least_j, at_most_j = _limits(curve, start_s, end_s)
    noise_j = NORMAL_97_5 * curve.noise_j * math.sqrt(changes + 2)
    noise_j += curve.step_w / 2 * (end_s - start_s)
    # Energy that readings miss or blur has no upper limit.
    seen = curve.counts or not len(unread_s)
    sure = seen and not curve.blur_s and not curve.unseen_j
    limit_j = at_most_j + noise_j if sure else None
    if not changes:
        reason = _too_short(curve, start_s, end_s, (before, after))
        return WindowEnergy(None, reason, limit_j, changes, every_s)
    resolution_s = _RESOLVED * (every_s or 0.0) + curve.blur_s
    power = _shown(*curve.range_w, curve, resolution_s, _BEYOND_SHOWN)
    first, last = (
        _up_to(curve, place, moment_s, power, edges_s)
        for place, moment_s in ((before, start_s), (after - 1, end_s))
    )
    value_j = last.joules - first.joules
    readings_sd = math.hypot(curve.unseen_j, curve.noise_j) * math.sqrt(changes)
    shown_sd = curve.step_w * (end_s - start_s) / math.sqrt(12)
    unread_j = (
        0.0 if curve.counts else (power.high_w - power.low_w) * float(np.linalg.norm(unread_s))
    )
    unread_sd = unread_j / math.sqrt(3)
    sds = (first.sd, last.sd, readings_sd, shown_sd, unread_sd)
    # Readings of a part of the time may all see the same part of each iteration of a loop.
    turns_j = curve.unseen * Stretches.between(edges_s, start_s, end_s).uncertain_j(power)
    margin_j = first.beyond_j + last.beyond_j + turns_j + NORMAL_97_5 * math.hypot(*sds)
    if value_j <= 0:
        reason = "the sensor shows no power"
        return WindowEnergy(None, reason, None, changes, every_s)
    if margin_j > _WIDEST * value_j:
        reason = _too_short(curve, start_s, end_s, (before, after))
        if unread_s.sum() > _MOST_UNREAD * (end_s - start_s):
            reason = _unread(float(unread_s.sum()), end_s - start_s, "")
        return WindowEnergy(None, reason, limit_j, changes, every_s)
    low_j, high_j = value_j - margin_j, value_j + margin_j
    if limit_j is not None:
        low_j, high_j = max(low_j, at_least_j - noise_j), min(high_j, limit_j)
    found = Estimate(value_j, min(low_j, value_j), max(high_j, value_j))
    return WindowEnergy(found, None, limit_j, changes, every_s)


def _not_shown_to_its_end(curve: Curve, start_s: float, end_s: float, before: int) -> WindowEnergy:
    """Energy of a window that ends after the last sensor update. The part that a counter does not
    show has an upper limit if the device has one.
    """
    if curve.until_s >= end_s + _ENDS_SOON * (curve.every_s or 0.0):
        return WindowEnergy(None, NOT_SHOWN, None, 0, curve.every_s)
    last = len(curve.times_s) - 1
    limit_j = None
    if curve.counts and curve.limit_w is not None and not (before < curve.broken).any():
        unseen_s = end_s - float(curve.early_s[last])
        limit_j = _limits(curve, start_s, end_s)[1] + unseen_s * curve.limit_w
    return WindowEnergy(None, CUT_OFF, limit_j, last - before, curve.every_s)


def _limits(curve: Curve, start_s: float, end_s: float) -> tuple[float, float]:
    """Joules between the changes that surely came in the window, and between those that surely
    came before and after it.
    """
    early, late = curve.early_s, curve.late_s
    last = len(early) - 1
    before = max(int(np.searchsorted(late, start_s, "right")) - 1, 0)
    after = min(int(np.searchsorted(early, end_s, "left")), last)
    first_inside = min(int(np.searchsorted(early, start_s, "left")), last)
    last_inside = max(int(np.searchsorted(late, end_s, "right")) - 1, first_inside)
    joules = curve.joules
    return float(joules[last_inside] - joules[first_inside]), float(joules[after] - joules[before])


class _UpTo(NamedTuple):
    """Joules up to a moment, with a bound `beyond_j` and a standard error `sd`."""

    joules: float
    beyond_j: float
    sd: float


def _up_to(curve: Curve, place: int, moment_s: float, power: PowerRange, edges_s: Numbers) -> _UpTo:
    """The energy up to a moment after the knot at `place`."""
    length_s = float(curve.times_s[place + 1] - curve.times_s[place])
    spent_j = float(curve.joules[place + 1] - curve.joules[place])
    part_s = moment_s - float(curve.times_s[place])
    least_before_j, most_before_j = Stretches.before(edges_s, moment_s, part_s).limits_j(power)
    least_after_j, most_after_j = Stretches.after(edges_s, moment_s, length_s - part_s).limits_j(
        power
    )
    least_j = max(spent_j - most_after_j, least_before_j, 0.0)
    most_j = min(most_before_j, spent_j - least_after_j, spent_j)
    straight_j = middle_j = spent_j * part_s / length_s
    ends_s = curve.times_s[place : place + 2]
    if len(curve.unread_between(float(ends_s[0]), float(ends_s[1]))):
        least_j, most_j = 0.0, spent_j
    elif least_j > most_j:
        least_j = most_j = straight_j
    else:
        middle_j = (least_j + most_j) / 2
    slack_j = float(curve.slack_s[place]) * spent_j / length_s
    # Where a load begins or ends at the edge, a blur adds an error of the same sign at both edges.
    beyond_j = max(most_j - middle_j, middle_j - least_j)
    beyond_j += _blurred_j(curve, moment_s, power.resolution_s, edges_s)
    return _UpTo(float(curve.joules[place]) + middle_j, beyond_j, slack_j / math.sqrt(3))


def _blurred_j(curve: Curve, moment_s: float, resolution_s: float, edges_s: Numbers) -> float:
    """The most energy that a blur may have counted on the wrong side of a moment."""
    if not curve.blur_s:
        return 0.0
    first, last = np.searchsorted(curve.times_s, [moment_s - curve.blur_s, moment_s + curve.blur_s])
    near = slice(max(int(first) - 1, 0), int(last) + 1)
    if len(curve.times_s[near]) < 2:
        return 0.0
    shown_w = np.diff(curve.joules[near]) / np.diff(curve.times_s[near])
    power = _shown(float(shown_w.min()), float(shown_w.max()), curve, resolution_s, 0.0)
    (least_before_j, most_before_j), (least_after_j, most_after_j) = (
        side(edges_s, moment_s, curve.blur_s / 2).blurred_j(power, curve.blur_s)
        for side in (Stretches.before, Stretches.after)
    )
    return max(most_after_j - least_before_j, most_before_j - least_after_j)


def _shown(
    least: float, most: float, curve: Curve, resolution_s: float, beyond: float
) -> PowerRange:
    """The range of power shown, extended by the share `beyond`."""
    if curve.shown_w is not None:
        least, most = min(least, curve.shown_w[0]), max(most, curve.shown_w[1])
    low_w, high_w = max(0.0, least - beyond * (most - least)), most + beyond * (most - least)
    unlimited_w = math.inf if curve.blur_s else _PEAK * high_w
    peak_w = unlimited_w if curve.limit_w is None else max(curve.limit_w, high_w)
    return PowerRange(low_w, high_w, peak_w, resolution_s)


def _often(every_s: float | None, at_most_s: float = math.inf) -> str:
    """How often a sensor changes; changes within `at_most_s` between readings are missed."""
    return "" if every_s is None else f", which changes every {min(every_s, at_most_s):.3g} s"


def _unread(unread_s: float, length_s: float, often: str) -> str:
    return (
        f"the sensor{often} was not read, or stood still, for {unread_s:.3g} of {length_s:.3g} s: "
        "give a shorter period, or leave the sampler a core"
    )


def _too_short(curve: Curve, start_s: float, end_s: float, knots: tuple[int, int]) -> str:
    """The reason, given the last of the `knots` before the window and the first after it."""
    length_s, every_s = end_s - start_s, curve.every_s
    before_s, after_s = (float(curve.times_s[place]) for place in knots)
    unread_s = float(curve.unread_between(before_s, after_s).sum())
    if unread_s and length_s > _LONG_ENOUGH * curve.covered_s:
        return (
            f"the sensor was not read for {unread_s:.3g} s in and around the {length_s:.3g} s of "
            "the window: give a shorter period, or leave the sampler a core"
        )
    often = _often(every_s, curve.covered_s if unread_s else math.inf)
    return f"{length_s:.3g} s are too short for the sensor{often}: {REPEAT}"
