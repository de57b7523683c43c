"""The power phase of a trial: measure the mean power of a load.

    idle | lead-in | window (window.py)        | idle
         | load ----------------------------- >|
    idle_before_w    estimate, counter_w         idle_after_w

Energy per iteration is this power times the time from another phase, so both phases run the same
load. If a device waited longer for its host in this one, power is converted to the timed pace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opcost.energy.load import SYSTEM_CLOCK, Clock, Load
from opcost.energy.meter import (
    DeviceState,
    Meter,
    MeterUnavailable,
    power_capped,
    throttled_s,
)
from opcost.energy.sampling import Sampler
from opcost.energy.sensor import Sensor
from opcost.energy.shifted import may_alias, shifted_windows
from opcost.energy.window import PowerSetup, Window, mean, one_window, sustained_window
from opcost.rows import flags
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_COUNTER_TOLERANCE = 0.02
_PACE_TOLERANCE = 0.05
_THROTTLED_SHARE = 0.01
_BUSY_IDLE = 1.5

_WAITING = 0.1
"""Power that a waiting device may draw above idle, as a share of what work draws above idle. While
an H100 waited for 5 to 15 us, the share was 0 +- 0.02 (docs/explanation/real_gpus_tables.md)."""


@dataclass(frozen=True)
class PowerMeasurement:
    """Mean power under load in watts. `began` is the device's state before the trial.

    `pace` is the time of an iteration in the window as a multiple of the timed one, or None if
    there are too few iterations. If the device `may_wait` for its host, power is converted, unless
    it is that of a burst, or of sustained operation.
    """

    window: Window
    idle_before_w: float | None
    idle_after_w: float | None
    began: DeviceState
    meter: str
    sensor: Sensor
    flags: tuple[str, ...]
    missing: Mapping[str, str]
    pace: float | None
    may_wait: bool
    is_capped: bool

    @property
    def estimate(self) -> Estimate:
        """Mean power at the timed pace with its 95 % interval, without the error of the gain."""
        converts = self.may_wait and not self.window.has_timed_pace
        if not converts or self.pace is None or self.idle_w is None:
            return self.window.estimate
        return _at_timed_pace(self.window.estimate, self.idle_w, self.pace, self.is_capped)

    @property
    def idle_w(self) -> float | None:
        """The mean of the idle power before and after, in watts."""
        if self.idle_before_w is None or self.idle_after_w is None:
            return None
        return (self.idle_before_w + self.idle_after_w) / 2

    @property
    def other_processes(self) -> int | None:
        """The largest number of other compute processes on the device, or None if unknown."""
        states = (self.began, self.window.start_state, self.window.end_state)
        known = [state.other_processes for state in states if state.other_processes is not None]
        return max(known, default=None)

    def throttled_s(self, cause: str) -> float | None:
        """Seconds of throttling in this trial; `cause` is a `..._s` field of DeviceState."""
        return throttled_s(self.began, self.window.end_state, cause)

    def columns(self) -> dict[str, Any]:
        """The columns about the measurement of power, except power and energy themselves."""
        window, sensor = self.window, self.sensor
        start, end = window.start_state, window.end_state
        return {
            "power_gain_uncertainty": sensor.gain_uncertainty,
            "idle_power_w": self.idle_w,
            "idle_power_before_w": self.idle_before_w,
            "idle_power_after_w": self.idle_after_w,
            "counter_power_w": window.counter_w,
            "power_converged": window.converged,
            "power_stop_reason": "converged" if window.converged else "power_budget",
            "power_window_s": window.length_s,
            "power_pace": self.pace,
            "power_is_of_burst": window.is_burst,
            "power_segments": window.segments,
            "power_refreshes": len(window.refreshes),
            "power_sample_w": [r.power_w for r in window.refreshes],
            "power_sample_time_s": [r.time_s - window.start_s for r in window.refreshes],
            "meter": self.meter,
            "sensor_source": sensor.source,
            "sensor_refresh_s": sensor.refresh_s,
            "sensor_averaging_s": sensor.averaging_s,
            "sm_clock_mhz": end.sm_clock_mhz,
            "memory_clock_mhz": end.memory_clock_mhz,
            "performance_state": end.performance_state,
            "temperature_start_c": start.temperature_c,
            "temperature_end_c": end.temperature_c,
            "utilisation": end.utilisation,
            "power_limit_w": end.power_limit_w,
            "power_capped_s": self.throttled_s("power_capped_s"),
            "thermal_throttle_s": self.throttled_s("thermal_throttle_s"),
            "brake_throttle_s": self.throttled_s("brake_throttle_s"),
            "other_processes": self.other_processes,
            "meter_missing": dict(self.missing),
        }


def measure_power(
    load: Load,
    meter: Meter,
    sensor: Sensor,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
    began: DeviceState | None = None,
) -> PowerMeasurement:
    """Measure a load's mean power, and the device's idle power before and after it.

    `began` is the device's state before the trial (default: now). Raises MeterUnavailable if the
    meter fails.
    """
    began = began or meter.state()
    sampler = Sampler(meter, sensor, load, clock)
    idle_before_w = _idle_w(sampler, sensor, settings)
    setup = PowerSetup(sampler, meter, sensor, load, settings)
    if settings.is_sustained:
        window = sustained_window(setup)
    else:
        window = shifted_windows(setup) if may_alias(setup) else one_window(setup)
    sampler.drain()
    idle_after_w = _idle_w(sampler, sensor, settings)
    missing = {**meter.missing, **window.end_state.missing}
    pace = window.pace_s / load.iteration_s if window.pace_s else None
    power = PowerMeasurement(
        window=window,
        idle_before_w=idle_before_w,
        idle_after_w=idle_after_w,
        began=began,
        meter=meter.name,
        sensor=sensor,
        flags=(),
        missing=missing,
        pace=pace,
        may_wait=load.may_wait,
        is_capped=power_capped(began, window.end_state, window.length_s, window.overall_w),
    )
    return replace(power, flags=(*window.flags, *_found_flags(power)))


def _at_timed_pace(mean: Estimate, idle_w: float, pace: float, is_capped: bool) -> Estimate:
    """Mean power if an iteration took its timed time, `1 / pace` of that in the window.

    The device did the same work in both, and waited for the rest. ASSUME that it drew its idle
    power while it waited (`_WAITING`). If it waited in the window, in stalls that the readings may
    not have covered, the interval extends to the power without waiting.

    If its power limit slowed it down (`is_capped`), it did the work at a lower clock. ASSUME that
    the energy of that work is between the same and that of a voltage in proportion to the clock.
    """
    work_w = mean.value - idle_w
    if is_capped and pace > 1 and mean.low is not None and mean.high is not None:
        low, high = idle_w + (mean.low - idle_w) * pace, idle_w + (mean.high - idle_w) * pace**3
        return Estimate(idle_w + work_w * pace**2, low, high)
    value = idle_w + work_w * pace
    if mean.low is None or mean.high is None:
        return Estimate(value, None, None)
    low, high = (idle_w + (limit - idle_w) * pace for limit in (mean.low, mean.high))
    if pace > 1:
        return Estimate(value, min(low, mean.low), max(high, mean.high))
    waiting_w = _WAITING * abs(work_w) * (1 - pace)
    return Estimate(value, low - waiting_w, high + waiting_w)


def _idle_w(sampler: Sampler, sensor: Sensor, settings: MeasurementSettings) -> float | None:
    """Mean power of the idle device, after readings no longer contain the previous load."""
    if settings.idle_s == 0:
        return None
    sampler.rest(sensor.settle_s)
    start_s = sampler.clock.now_s()
    sampler.rest(max(settings.idle_s, 2 * sensor.refresh_s))
    seen = sampler.refreshes(start_s, sampler.clock.now_s())
    if not seen:
        raise MeterUnavailable("the meter gave no reading of the idle device")
    return mean(seen)


def _found_flags(power: PowerMeasurement) -> list[str]:
    window, sensor = power.window, power.sensor
    conditions = {
        flags.POWER_NOT_CONVERGED: not window.converged,
        flags.COUNTER_DISAGREES: _counter_disagrees(window, sensor),
        flags.POWER_CAPPED: power.is_capped,
        flags.THROTTLED: any(
            (power.throttled_s(cause) or 0) > _THROTTLED_SHARE * window.length_s
            for cause in ("thermal_throttle_s", "brake_throttle_s")
        ),
        flags.OTHER_PROCESS: bool(power.other_processes),
        flags.BUSY_WHEN_IDLE: _busy_when_idle(power),
        flags.PACE_DIFFERS: _pace_differs(power),
        flags.ASSUMED_SENSOR: sensor.source in ("assumed", "partly assumed"),
    }
    return [flag for flag, found in conditions.items() if found]


def _pace_differs(power: PowerMeasurement) -> bool:
    """A device that waits for its host may be faster here: its power is converted."""
    if power.window.has_timed_pace:
        return False
    if power.pace is None:
        return power.may_wait
    slower = power.pace - 1
    return slower > _PACE_TOLERANCE or (not power.may_wait and slower < -_PACE_TOLERANCE)


def _counter_disagrees(window: Window, sensor: Sensor) -> bool:
    """Whether counter and readings differ by more than late reads of the counter can explain."""
    if window.counter_w is None:
        return False
    late = (sensor.counter_refresh_s or sensor.refresh_s) / window.length_s
    tolerance = late + _COUNTER_TOLERANCE + window.pause_share
    return abs(window.counter_w / window.overall_w - 1) > tolerance


def _busy_when_idle(power: PowerMeasurement) -> bool:
    idle_w = power.sensor.idle_w
    return (
        idle_w is not None
        and power.idle_before_w is not None
        and power.idle_before_w > _BUSY_IDLE * idle_w
    )
