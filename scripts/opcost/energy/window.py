"""A window of power under load, of the length that the requested interval needs.

    load | lead-in (settle_s) | first stage | second stage, its length from the first |
                              ^ counter                                               ^ counter

A power limiter lets a burst pass, and acts after some tenths of a second. Time was measured in
bursts, so power is then the mean of the readings above the limit until one is first below it,
without the last of them if that is much lower: it then contains some of the limiter's action.

shifted.py measures iterations that are long compared with the sensor's averaging window.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from opcost.energy.load import Load
from opcost.energy.meter import (
    ABOVE_LIMIT,
    DeviceState,
    Meter,
    MeterUnavailable,
    plausible_w,
    power_capped,
)
from opcost.energy.refreshes import Blocks, blocks
from opcost.energy.sampling import Refresh, Sampler
from opcost.energy.sensor import Sensor
from opcost.rows.flags import POWER_DRIFTING, POWER_UNSTEADY, TOO_FEW_REFRESHES
from opcost.statistics import Estimate, student_97_5
from opcost.study import MeasurementSettings

_FIRST_STAGE_WINDOWS = 4
_MIN_BURST_REFRESHES = 3
_STEADY_AFTER_S, _SUSTAINED_S = 5.0, 8.0
_PARTS = 8
_MIN_REFRESHES = 8
_DRIFT_P = 0.01
_UNSTEADY_P = 0.01


@dataclass
class Window:
    """Mean power under load in watts.

    `overall_w` is the mean of all readings between the two readings of the counter; with shifted
    windows, this includes pauses, a share `pause_share` of the time. `is_burst` if the power limit
    slowed the device down, and the estimate is of the readings before. `paces_s` are the seconds of
    an iteration in equal parts of a window of sustained operation.
    """

    estimate: Estimate
    start_s: float
    end_s: float
    refreshes: list[Refresh]
    overall_w: float
    counter_w: float | None
    pace_s: float | None
    start_state: DeviceState
    end_state: DeviceState
    converged: bool = False
    segments: int = 1
    pause_share: float = 0.0
    is_burst: bool = False
    paces_s: tuple[float, ...] = ()
    flags: list[str] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        """Seconds between the two readings of the counter."""
        return self.end_s - self.start_s

    @property
    def has_timed_pace(self) -> bool:
        """Whether power is at the pace that the row's time states: of a burst, or sustained."""
        return self.is_burst or bool(self.paces_s)


@dataclass
class PowerSetup:
    """A sampler with its meter, load and settings."""

    sampler: Sampler
    meter: Meter
    sensor: Sensor
    load: Load
    settings: MeasurementSettings

    def now_s(self) -> float:
        """The clock, in seconds."""
        return self.sampler.clock.now_s()


def one_window(setup: PowerSetup) -> Window:
    """Mean power under a steady load. Raises MeterUnavailable if the meter fails."""
    sampler, settings, sensor = setup.sampler, setup.settings, setup.sensor
    first_s = max(settings.power_min_s, _FIRST_STAGE_WINDOWS * sensor.averaging_s)
    give_up_s = setup.now_s() + settings.power_lead_in_max_s
    sampler.busy_for(sensor.refresh_s)
    start_state = setup.meter.state()  # slow, so it is read in the lead-in
    sampler.busy_for(sensor.settle_s)
    while True:
        opening = begin_window(setup, start_state)
        first = _first_stage(setup, first_s)
        steady = len(first.values) < 4 or not _drifts(first, settings)
        burst = _burst(setup, opening)
        if steady or burst or setup.now_s() >= give_up_s:
            break
    if len(first.values) < 2:
        return end_window(setup, opening)
    if burst is not None and (window := _limited(setup, opening, burst)):
        return window
    variance = first.variance()
    most = max(len(first.values), math.floor(settings.power_max_s / first.block_s))
    # One more block, because the edges of a window may cost one.
    count = first.needed(variance, settings.power_relative_ci, most) + 1
    if count > len(first.values) + 1:
        sampler.busy_for((count - len(first.values)) * first.block_s)
    window = end_window(setup, opening)
    final = blocks(window.refreshes, sensor)
    window.estimate = final.interval(variance)
    window.converged = narrow(window.estimate, settings)
    if not steady or _drifts(final, settings):
        window.flags.append(POWER_DRIFTING)
    if final.excess_p(variance) < _UNSTEADY_P:
        window.flags.append(POWER_UNSTEADY)
    return window


def sustained_window(setup: PowerSetup) -> Window:
    """Mean power and pace after seconds of load. Raises MeterUnavailable if the meter fails, or too
    few iterations end in a part.
    """
    sampler, settings = setup.sampler, setup.settings
    start_state = setup.meter.state()
    sampler.busy_for(max(_STEADY_AFTER_S, setup.sensor.settle_s))
    opening = begin_window(setup, start_state)
    sampler.busy_for(max(_SUSTAINED_S, settings.power_min_s))
    window = end_window(setup, opening)
    part_s = window.length_s / _PARTS
    starts_s = [window.start_s + part * part_s for part in range(_PARTS)]
    paces_s = [sampler.pace_s(start_s, start_s + part_s) for start_s in starts_s]
    if None in paces_s or window.pace_s is None:
        raise MeterUnavailable(
            f"sustained operation: an iteration takes longer than {part_s:.1f} s, the parts of a "
            "window; operation: burst measures it"
        )
    window.paces_s = tuple(pace_s for pace_s in paces_s if pace_s is not None)
    found = blocks(window.refreshes, setup.sensor)
    if len(found.values) > 1:
        window.estimate = found.interval(found.variance())
        window.converged = narrow(window.estimate, settings)
    return window


def _first_stage(setup: PowerSetup, seconds: float) -> Blocks:
    start_s = setup.now_s()
    limit_s = start_s + setup.settings.power_max_s

    def enough() -> bool:
        now_s = setup.now_s()
        if now_s < start_s + seconds:
            return False
        seen = setup.sampler.refreshes(start_s, now_s)
        return len(seen) >= _MIN_REFRESHES or now_s >= limit_s

    setup.sampler.busy_until(enough)
    return blocks(under_load(setup, start_s, setup.now_s()), setup.sensor)


def under_load(setup: PowerSetup, start_s: float, end_s: float) -> list[Refresh]:
    """The refreshes under load. Raises MeterUnavailable if there are none, or only zeros."""
    seen = setup.sampler.refreshes(start_s, end_s)
    if not seen:
        raise MeterUnavailable("the meter gave no reading under load")
    if not any(refresh.power_w for refresh in seen):
        raise MeterUnavailable("the meter reads 0 W under load")
    return seen


@dataclass(frozen=True)
class Opening:
    """The start of a window: the first reading of the counter."""

    state: DeviceState
    counter_j: float | None
    start_s: float


def begin_window(setup: PowerSetup, state: DeviceState) -> Opening:
    """Read the counter; `state` is the device's state just before."""
    return Opening(state, setup.meter.counter_j(), setup.now_s())


def end_window(setup: PowerSetup, opening: Opening) -> Window:
    """Read the counter again. The window has all refreshes since `opening`."""
    end_j, end_s = setup.meter.counter_j(), setup.now_s()
    start_s = opening.start_s
    seen = under_load(setup, start_s, end_s)
    end_state = setup.meter.state()
    limit_w = end_state.power_limit_w
    if limit_w and mean(seen) > ABOVE_LIMIT * limit_w:
        raise MeterUnavailable(
            f"the meter reads {mean(seen):g} W, more than {ABOVE_LIMIT} times the power limit of "
            f"{limit_w:g} W"
        )
    counter_w = None
    if opening.counter_j is not None and end_j is not None:
        counter_w = plausible_w((end_j - opening.counter_j) / (end_s - start_s))
    sensor = setup.sensor  # refreshes are means over a time before them
    from_s = seen[0].time_s - sensor.lag_s - sensor.averaging_s
    return Window(
        estimate=Estimate(mean(seen), None, None),
        start_s=start_s,
        end_s=end_s,
        refreshes=seen,
        overall_w=mean(seen),
        counter_w=counter_w,
        pace_s=setup.sampler.pace_s(from_s, seen[-1].time_s - sensor.lag_s),
        start_state=opening.state,
        end_state=end_state,
        flags=[TOO_FEW_REFRESHES] if len(seen) < _MIN_REFRESHES else [],
    )


def _limited(setup: PowerSetup, opening: Opening, burst: Estimate) -> Window | None:
    """The window of a burst that the power limit has ended; None if it did not slow the device."""
    window = end_window(setup, opening)
    if not power_capped(opening.state, window.end_state, window.length_s, window.overall_w):
        return None
    window.estimate, window.is_burst = burst, True
    window.converged = narrow(burst, setup.settings)
    return window


def _burst(setup: PowerSetup, opening: Opening) -> Estimate | None:
    seen = setup.sampler.refreshes(opening.start_s, setup.now_s())
    return burst_power([each.power_w for each in seen], opening.state.power_limit_w)


def burst_power(powers_w: Sequence[float], limit_w: float | None) -> Estimate | None:
    """Mean of the first readings above the limit, in watts, with its 95 % interval; None if fewer
    than three are, or none below it follows.
    """
    above_w = list(itertools.takewhile(lambda power_w: limit_w and power_w > limit_w, powers_w))
    if not _MIN_BURST_REFRESHES <= len(above_w) < len(powers_w):
        return None
    *before_w, last_w = above_w
    burst_w = before_w if last_w < 2 * min(before_w) - max(before_w) else above_w
    value_w = fmean(burst_w)
    error_w = stdev(burst_w) / math.sqrt(len(burst_w))
    half_w = student_97_5(len(burst_w) - 1) * error_w
    return Estimate(value_w, value_w - half_w, value_w + half_w)


def mean(refreshes: Sequence[Refresh]) -> float:
    """Mean power of refreshes in watts, weighted by duration."""
    periods = sum(refresh.periods for refresh in refreshes)
    return sum(refresh.power_w * refresh.periods for refresh in refreshes) / periods


def _drifts(found: Blocks, settings: MeasurementSettings) -> bool:
    """Whether power changes over a window by more than the requested interval, twice the trend."""
    change, p_value = found.trend()
    return p_value < _DRIFT_P and 2 * abs(change) > settings.power_relative_ci


def narrow(estimate: Estimate, settings: MeasurementSettings) -> bool:
    """Whether the interval is as narrow as requested."""
    half = estimate.relative_half_width
    return half is not None and half <= settings.power_relative_ci
