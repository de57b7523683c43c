"""The trial: measure a workload's time and power.

    calibrate -> warm up -> time (blocks) -> idle -> lead-in -> window -> idle
                            |  time_s    |  |    without a meter: none        |

Time and power are measured in separate phases, so that reading the sensor does not slow down timed
iterations (power_load.py); in sustained operation, time is that of the power phase. Energy per
iteration is time per iteration x mean power (energy/phase.py). A trial that was spoilt by a
transient cause is retried.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from opcost import statistics
from opcost.energy.meter import DeviceState, Meter, MeterUnavailable
from opcost.energy.phase import PowerMeasurement, measure_power
from opcost.errors import OpcostError
from opcost.measuring.checkpoint import Listener
from opcost.measuring.power_load import load_of
from opcost.measuring.station import Station
from opcost.measuring.timing import TimeMeasurement, Workload, find_flags, time_workload
from opcost.rows.flags import spoiling
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings


@dataclass
class Trial:
    """The result of measuring one workload; `power` is None for `power_reason`.

    `started_at` and `ended_at` include its `repeats`, the number of retries.
    """

    time: TimeMeasurement
    power: PowerMeasurement | None
    power_reason: str | None
    flags: list[str] = field(default_factory=list)
    repeats: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def energy(self) -> Estimate | None:
        """Gross joules per iteration."""
        if self.power is None:
            return None
        return statistics.product(self.time.estimate, self.power.estimate)


def run_trial(
    workload: Workload,
    station: Station,
    settings: MeasurementSettings,
    listener: Listener | None = None,
) -> Trial:
    """Measure a workload's time and, if the station has a meter, its power.

    A disturbed core does not spoil a trial, because the next round measures at another time. A
    spoilt trial is retried up to `max_repeats` times, unless the retry has the same causes, which
    are then permanent. The last trial counts.
    """
    repeats, started_at = 0, datetime.now(UTC)
    earlier: set[str] = set()
    listener = listener or Listener()
    device, watch, clock = station.device, station.watch, station.clock
    with no_garbage_collection():
        while True:
            opened = _open(station, listener) if settings.energy else _UNOPENED
            timing = time_workload(workload, device, watch, settings, clock)
            trial = Trial(timing, None, opened.fault)
            trial.flags = find_flags(trial.time, watch)
            trial.repeats, trial.started_at, trial.ended_at = repeats, started_at, datetime.now(UTC)
            if opened.meter is not None:
                listener.timed(trial)
                _add_power(trial, workload, station, opened, settings)
            if settings.is_sustained:
                trial.time = _sustained(trial)
            causes = spoiling(trial.flags)
            trial.ended_at = datetime.now(UTC)
            if repeats == settings.max_repeats or causes <= earlier:
                return trial
            repeats, earlier = repeats + 1, causes
            clock.sleep(settings.repeat_pause_s)


@dataclass(frozen=True)
class _Opened:
    """A meter and the device's state when it was opened, or why there is none."""

    meter: Meter | None
    began: DeviceState
    fault: str | None = None


_UNOPENED = _Opened(None, DeviceState(), "not measured: the study sets energy: false")


def _open(station: Station, listener: Listener) -> _Opened:
    listener.opening_meter()
    try:
        meter = station.open_meter()
        return _Opened(meter, meter.state())
    except Exception as error:
        return _Opened(None, DeviceState(), _reason(error))
    finally:
        listener.timing()


def _add_power(
    trial: Trial,
    workload: Workload,
    station: Station,
    opened: _Opened,
    settings: MeasurementSettings,
) -> None:
    """Measure power; a failure leaves the time valid and becomes the reason."""
    assert opened.meter is not None
    meter, began = opened.meter, opened.began
    try:
        sensor = station.find_sensor(meter)
        load = load_of(workload, station.device, trial.time)
        trial.power = measure_power(load, meter, sensor, settings, station.clock, began)
        trial.flags += trial.power.flags
    except Exception as error:
        trial.power_reason = _reason(error)


def _sustained(trial: Trial) -> TimeMeasurement:
    """The time of the power phase, in its parts. Raises OpcostError without one."""
    if trial.power is None:
        raise OpcostError(
            f"sustained operation needs a power meter: {trial.power_reason}. Use operation: burst"
        )
    window = trial.power.window
    part_s = window.length_s / len(window.paces_s)
    return replace(
        trial.time,
        estimate=statistics.median(window.paces_s),
        block_times_s=window.paces_s,
        undisturbed=(True,) * len(window.paces_s),
        counts_disturbed=False,
        block_iterations=max(1, round(part_s / trial.time.estimate.value)),
        stop_reason="time_budget",
    )


def _reason(error: Exception) -> str:
    """Why power is null: as the meter states, or an unexpected error."""
    if isinstance(error, MeterUnavailable):
        return str(error)
    return f"power could not be measured: {type(error).__name__}: {error}"


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage, and then none until the end of the block."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
