"""The trial: how a workload's time and power are measured.

    calibrate -> warm up -> time (batches) -> idle -> lead-in -> window -> idle
                            |  time_s     |  |    without a meter: none       |

Time and power are measured in separate phases of the same steady loop, so that reading a sensor
costs no time that is measured. Energy per iteration is time per iteration x mean power
(energy/phase.py). A trial that a passing physical cause spoilt is repeated.
"""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from opcost import statistics
from opcost.devices.device import Device, Pending
from opcost.devices.disturbance import Watch
from opcost.energy.meter import DeviceState, Meter, MeterUnavailable
from opcost.energy.phase import PowerMeasurement, measure_power
from opcost.energy.sampling import SYSTEM_CLOCK, Clock
from opcost.energy.sensor import Sensor
from opcost.rows.flags import DISTURBED, DRIFTING, LAUNCH_BOUND, SENTINEL_QUICKER, spoiled
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_LAUNCH_BOUND_SHARE = 0.95
_FIRST_USE_S = 1.0


class Workload(Protocol):
    """What is measured: something that can be iterated, each time on the next of its operands."""

    rotation: int
    """Iterations until the first operands come again."""

    def run(self, iterations: int) -> None:
        """Start that many iterations, without waiting for the device."""


@dataclass(frozen=True)
class TimeMeasurement:
    """Seconds per iteration, and the batches behind them.

    The estimate is that of the undisturbed batches, or of all if they are fewer than
    `min_batches`: `counts_disturbed` says so.
    """

    estimate: Estimate
    batch_times_s: tuple[float, ...]
    undisturbed: tuple[bool, ...]
    counts_disturbed: bool
    batch_iterations: int
    enqueue_s: float
    stop_reason: str

    @property
    def converged(self) -> bool:
        """Whether the confidence interval is as narrow as was asked for."""
        return self.stop_reason == "converged"


@dataclass
class Trial:
    """The result of measuring one workload. `power` is None where `power_reason` says why.

    It `started_at` and `ended_at` with its repeats.
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


class Listener:
    """What hears how far a trial is; this one does nothing about it."""

    def opening_meter(self) -> None:
        """The meter is about to be opened."""

    def timing(self) -> None:
        """Time is about to be measured."""

    def timed(self, trial: Trial) -> None:
        """Power is about to be measured; this is the trial if it should not be."""


def run_trial(
    workload: Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    open_meter: Callable[[Device], Meter],
    find_sensor: Callable[[Meter], Sensor] = lambda meter: meter.assumed,
    clock: Clock = SYSTEM_CLOCK,
    listener: Listener | None = None,
) -> Trial:
    """Measure a workload's time and, where the device has a meter, its power.

    `find_sensor` says what is known of the meter's sensor. A spoilt trial is repeated up to
    `max_repeats` times; the last one counts.
    """
    repeats, started_at = 0, datetime.now(UTC)
    listener = listener or Listener()
    with _no_garbage_collection():
        while True:
            opened = _open(open_meter, device, listener)
            trial = Trial(_timed(workload, device, watch, settings), None, opened.fault)
            trial.flags = find_flags(trial.time, device, watch)
            trial.repeats, trial.started_at, trial.ended_at = repeats, started_at, datetime.now(UTC)
            if opened.meter is not None:
                listener.timed(trial)
                load = WorkloadLoad(workload, device, trial.time.estimate.value)
                _add_power(trial, load, opened, find_sensor, settings, clock)
            spoilt = trial.time.counts_disturbed or spoiled(trial.flags)
            trial.ended_at = datetime.now(UTC)
            if repeats == settings.max_repeats or not spoilt:
                return trial
            repeats += 1
            clock.sleep(settings.repeat_pause_s)


@dataclass(frozen=True)
class _Opened:
    """A meter and the device's state when it was opened, or why there is none."""

    meter: Meter | None
    began: DeviceState
    fault: str | None = None


def _open(open_meter: Callable[[Device], Meter], device: Device, listener: Listener) -> _Opened:
    listener.opening_meter()
    try:
        meter = open_meter(device)
        return _Opened(meter, meter.state())
    except Exception as error:
        return _Opened(None, DeviceState(), _reason(error))
    finally:
        listener.timing()


def _timed(
    workload: Workload, device: Device, watch: Watch, settings: MeasurementSettings
) -> TimeMeasurement:
    iteration_s = calibrate(workload, device, settings.batch_s)
    iterations = max(1, round(settings.batch_s / iteration_s))
    warm_up(workload, device, iterations, settings.warm_up_s)
    return measure_time(workload, device, watch, iterations, settings)


def _add_power(
    trial: Trial,
    load: "WorkloadLoad",
    opened: _Opened,
    find_sensor: Callable[[Meter], Sensor],
    settings: MeasurementSettings,
    clock: Clock,
) -> None:
    """Measure power as well. Time stays what it is, whatever becomes of this."""
    assert opened.meter is not None
    try:
        sensor = find_sensor(opened.meter)
        trial.power = measure_power(load, opened.meter, sensor, settings, clock, opened.began)
        trial.flags += trial.power.flags
    except Exception as error:
        trial.power_reason = _reason(error)


def _reason(error: Exception) -> str:
    """Why there is no power: what the meter says, or whatever else went wrong with it."""
    if isinstance(error, MeterUnavailable):
        return str(error)
    return f"power could not be measured: {type(error).__name__}: {error}"


@dataclass(frozen=True)
class WorkloadLoad:
    """A workload as the load of a power measurement."""

    workload: Workload
    device: Device
    iteration_s: float

    def start(self, iterations: int) -> Pending:
        """Start that many iterations on the device."""
        return self.device.start(lambda: self.workload.run(iterations))


def calibrate(workload: Workload, device: Device, batch_s: float) -> float:
    """Seconds per iteration, roughly: double the iterations until half a batch is filled."""
    device.time(lambda: workload.run(1))  # the first call also loads and chooses kernels
    iterations = 1
    while True:
        seconds = device.time(partial(workload.run, iterations)).device_s
        if seconds >= batch_s / 2:
            return seconds / iterations
        iterations *= 2


def warm_up(workload: Workload, device: Device, iterations: int, warm_up_s: float) -> None:
    """Iterate, unmeasured, for `warm_up_s` seconds, and over all operands as far as a second lasts.

    Memory is slow when it is used for the first time, for some tenths of a second.
    """
    start, elapsed_s, done = time.monotonic(), 0.0, 0
    while elapsed_s < warm_up_s or (done < workload.rotation and elapsed_s < _FIRST_USE_S):
        device.time(lambda: workload.run(iterations))
        done += iterations
        elapsed_s = time.monotonic() - start


def measure_time(
    workload: Workload,
    device: Device,
    watch: Watch,
    iterations: int,
    settings: MeasurementSettings,
) -> TimeMeasurement:
    """Time batches until the median is known well enough or the budget is spent.

    A batch during which the watch noticed a disturbance is kept, and does not count.
    """
    times_s: list[float] = []
    enqueue_s: list[float] = []
    undisturbed: list[bool] = []
    watch.look()
    start = time.monotonic()
    stop_reason = ""
    while not stop_reason:
        batch = device.time(lambda: workload.run(iterations))
        times_s.append(batch.device_s / iterations)
        enqueue_s.append(batch.enqueue_s / iterations)
        undisturbed.append(watch.look())
        counted = list(itertools.compress(times_s, undisturbed))
        stop_reason = _why_stop(counted, len(times_s), time.monotonic() - start, settings)
    if len(counted) < settings.min_batches:
        counted = times_s
    return TimeMeasurement(
        statistics.median(counted),
        tuple(times_s),
        tuple(undisturbed),
        len(counted) > sum(undisturbed),
        iterations,
        statistics.median(enqueue_s).value,
        stop_reason,
    )


def _why_stop(
    times_s: list[float], batches: int, elapsed_s: float, settings: MeasurementSettings
) -> str:
    """The reason to stop timing, or "" to go on; `times_s` are those of undisturbed batches."""
    if len(times_s) >= settings.min_batches and elapsed_s >= settings.min_time_s:
        half_width = statistics.median(times_s).relative_half_width
        if half_width is not None and half_width <= settings.time_relative_ci:
            return "converged"
    spent = elapsed_s >= settings.max_time_s and batches >= settings.min_batches
    return "time_budget" if spent else ""


def find_flags(timing: TimeMeasurement, device: Device, watch: Watch) -> list[str]:
    """What a reader should know before trusting the time."""
    flags = []
    counted = list(itertools.compress(timing.batch_times_s, timing.undisturbed))
    few = len(counted) < len(timing.undisturbed) / 2
    if few or timing.counts_disturbed:
        flags.append(DISTURBED)
    if watch.quieter_s() is not None:
        flags.append(SENTINEL_QUICKER)
    if statistics.drifts(counted):
        flags.append(DRIFTING)
    on_gpu = device.torch_device.type == "cuda"
    if on_gpu and timing.enqueue_s >= _LAUNCH_BOUND_SHARE * timing.estimate.value:
        flags.append(LAUNCH_BOUND)
    return flags


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
