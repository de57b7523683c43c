"""A window of power under load: as long as its interval needs, at every phase of the iteration.

    load | lead-in (settle_s) | first stage | as long again as that asks for |
                              ^ counter                                      ^ counter

Where iterations are long against the sensor's averaging window, shifted.py does this otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from opcost.energy.load import Load
from opcost.energy.meter import DeviceState, Meter, MeterUnavailable
from opcost.energy.refreshes import Blocks, blocks
from opcost.energy.sampling import Refresh, Sampler
from opcost.energy.sensor import Sensor
from opcost.rows.flags import POWER_DRIFTING, POWER_UNSTEADY, TOO_FEW_REFRESHES
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_FIRST_STAGE_WINDOWS = 4
_FEWEST_REFRESHES = 8
_DRIFT_CHANCE = 0.01
_UNSTEADY_CHANCE = 0.01
_ABOVE_LIMIT = 2
"""ASSUME a device exceeds its limit by less than this, and for moments only."""


@dataclass
class Window:
    """Mean power under load, in watts, and what it rests on.

    `overall_w` is the mean of all readings between the two of the counter; with shifted windows
    that includes pauses, a share `pause_share` of the time.
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
    flags: list[str] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        """Seconds between the two readings of the counter."""
        return self.end_s - self.start_s


@dataclass
class Bench:
    """What a window is measured with."""

    sampler: Sampler
    meter: Meter
    sensor: Sensor
    load: Load
    settings: MeasurementSettings

    def now_s(self) -> float:
        """The clock, in seconds."""
        return self.sampler.clock.now_s()


def one_window(bench: Bench) -> Window:
    """Mean power under a steady load. Raises MeterUnavailable when the meter gives out."""
    sampler, settings, sensor = bench.sampler, bench.settings, bench.sensor
    first_s = max(settings.power_min_s, _FIRST_STAGE_WINDOWS * sensor.averaging_s)
    give_up_s = bench.now_s() + settings.power_lead_in_max_s
    sampler.busy_for(sensor.refresh_s)
    start_state = bench.meter.state()  # takes a while: in the lead-in it starves no window
    sampler.busy_for(sensor.settle_s)
    while True:
        opening = begin_window(bench, start_state)
        first = _first_stage(bench, first_s)
        steady = len(first.values) < 4 or not _drifts(first, settings)
        if steady or bench.now_s() >= give_up_s:
            break
    if len(first.values) < 2:
        return end_window(bench, opening)
    spread = first.spread()
    most = max(len(first.values), math.floor(settings.power_max_s / first.block_s))
    # One block more: the edges of a window may cost one.
    count = first.needed(spread, settings.power_relative_ci, most) + 1
    if count > len(first.values) + 1:
        sampler.busy_for((count - len(first.values)) * first.block_s)
    window = end_window(bench, opening)
    final = blocks(window.refreshes, sensor)
    window.estimate = final.interval(spread)
    window.converged = narrow(window.estimate, settings)
    if not steady or _drifts(final, settings):
        window.flags.append(POWER_DRIFTING)
    if final.excess(spread) < _UNSTEADY_CHANCE:
        window.flags.append(POWER_UNSTEADY)
    return window


def _first_stage(bench: Bench, seconds: float) -> Blocks:
    start_s = bench.now_s()
    limit_s = start_s + bench.settings.power_max_s

    def enough() -> bool:
        now_s = bench.now_s()
        if now_s < start_s + seconds:
            return False
        seen = bench.sampler.refreshes(start_s, now_s)
        return len(seen) >= _FEWEST_REFRESHES or now_s >= limit_s

    bench.sampler.busy_until(enough)
    return blocks(under_load(bench, start_s, bench.now_s()), bench.sensor)


def under_load(bench: Bench, start_s: float, end_s: float) -> list[Refresh]:
    """What the sensor showed of the load. Raises MeterUnavailable if that can be no power."""
    seen = bench.sampler.refreshes(start_s, end_s)
    if not seen:
        raise MeterUnavailable("the meter gave no reading under load")
    if not any(refresh.power_w for refresh in seen):
        raise MeterUnavailable("the meter reads 0 W under load")
    return seen


@dataclass(frozen=True)
class Opening:
    """The beginning of a window: the counter's first reading."""

    state: DeviceState
    counter_j: float | None
    start_s: float


def begin_window(bench: Bench, state: DeviceState) -> Opening:
    """Read the counter for the first time; `state` is the device just before."""
    return Opening(state, bench.meter.counter_j(), bench.now_s())


def end_window(bench: Bench, opening: Opening) -> Window:
    """Read the counter for the second time; all that was shown since is the window."""
    end_j, end_s = bench.meter.counter_j(), bench.now_s()
    start_s = opening.start_s
    seen = under_load(bench, start_s, end_s)
    end_state = bench.meter.state()
    _check_limit(mean(seen), end_state.power_limit_w)
    counter_w = None
    if opening.counter_j is not None and end_j is not None:
        counter_w = (end_j - opening.counter_j) / (end_s - start_s)
    return Window(
        estimate=Estimate(mean(seen), None, None),
        start_s=start_s,
        end_s=end_s,
        refreshes=seen,
        overall_w=mean(seen),
        counter_w=counter_w,
        pace_s=bench.sampler.pace_s(start_s, end_s),
        start_state=opening.state,
        end_state=end_state,
        flags=[TOO_FEW_REFRESHES] if len(seen) < _FEWEST_REFRESHES else [],
    )


def _check_limit(power_w: float, limit_w: float | None) -> None:
    if limit_w and power_w > _ABOVE_LIMIT * limit_w:
        raise MeterUnavailable(
            f"the meter reads {power_w:g} W, more than {_ABOVE_LIMIT} times the power limit of "
            f"{limit_w:g} W"
        )


def mean(refreshes: Sequence[Refresh]) -> float:
    """Their mean power in watts, each weighing as long as it lasted."""
    periods = sum(refresh.periods for refresh in refreshes)
    return sum(refresh.power_w * refresh.periods for refresh in refreshes) / periods


def _drifts(found: Blocks, settings: MeasurementSettings) -> bool:
    """Whether power changes over a window by more than was asked for; halves show half."""
    change, chance = found.trend()
    return chance < _DRIFT_CHANCE and 2 * abs(change) > settings.power_relative_ci


def narrow(estimate: Estimate, settings: MeasurementSettings) -> bool:
    """Whether the interval is as narrow as was asked for."""
    half = estimate.relative_half_width
    return half is not None and half <= settings.power_relative_ci
