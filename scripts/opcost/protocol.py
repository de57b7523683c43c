"""The trial: how a workload's time and power are measured.

    calibrate -> warm up -> time (batches) -> idle -> lead-in -> power window
                            |  time_s     |  |    without a meter: none      |

Time and power are measured in separate phases of the same steady loop, so that reading a sensor
costs no time that is measured. Energy per iteration is time per iteration x mean power.
"""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from opcost import statistics
from opcost.device import Device
from opcost.disturbance import Watch
from opcost.energy import REFRESH_S, Meter, MeterUnavailable, PowerRecord, recording
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_LOAD_CHUNK_S = 0.1
_COUNTER_TOLERANCE = 0.02
_LAUNCH_BOUND_SHARE = 0.95


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
    `min_batches`.
    """

    estimate: Estimate
    batch_times_s: tuple[float, ...]
    undisturbed: tuple[bool, ...]
    batch_iterations: int
    enqueue_s: float
    stop_reason: str

    @property
    def converged(self) -> bool:
        """Whether the confidence interval is as narrow as was asked for."""
        return self.stop_reason == "converged"


@dataclass(frozen=True)
class PowerMeasurement:
    """Mean power under load, and the readings behind it."""

    estimate: Estimate
    record: PowerRecord
    idle_w: float | None
    meter: str


@dataclass
class Trial:
    """The result of measuring one workload. `power` is None where `power_reason` says why."""

    time: TimeMeasurement
    power: PowerMeasurement | None
    power_reason: str | None
    flags: list[str] = field(default_factory=list)

    @property
    def energy(self) -> Estimate | None:
        """Gross joules per iteration."""
        if self.power is None:
            return None
        return statistics.product(self.time.estimate, self.power.estimate)


def run_trial(
    workload: Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    open_meter: Callable[[Device], Meter],
) -> Trial:
    """Measure a workload's time and, where the device has a meter, its power."""
    with _no_garbage_collection():
        iteration_s = calibrate(workload, device, settings.batch_s)
        iterations = max(1, round(settings.batch_s / iteration_s))
        warm_up(workload, device, iterations, settings.warm_up_s)
        timing = measure_time(workload, device, watch, iterations, settings)
        power, reason = None, None
        try:
            meter = open_meter(device)
            power = measure_power(workload, device, meter, timing.estimate.value, settings)
        except MeterUnavailable as unavailable:
            reason = str(unavailable)
    return Trial(timing, power, reason, find_flags(timing, power, device))


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
    """Iterate, unmeasured, for `warm_up_s` seconds and at least once over all operands.

    Memory is slow when it is used for the first time.
    """
    start = time.monotonic()
    done = 0
    while time.monotonic() - start < warm_up_s or done < workload.rotation:
        device.time(lambda: workload.run(iterations))
        done += iterations


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
        stop_reason = _why_stop(
            list(itertools.compress(times_s, undisturbed)), time.monotonic() - start, settings
        )
    counted = list(itertools.compress(times_s, undisturbed))
    if len(counted) < settings.min_batches:
        counted = times_s
    return TimeMeasurement(
        statistics.median(counted),
        tuple(times_s),
        tuple(undisturbed),
        iterations,
        statistics.median(enqueue_s).value,
        stop_reason,
    )


def _why_stop(times_s: list[float], elapsed_s: float, settings: MeasurementSettings) -> str:
    """The reason to stop timing, or "" to go on."""
    if len(times_s) >= settings.min_batches and elapsed_s >= settings.min_time_s:
        half_width = statistics.median(times_s).relative_half_width
        if half_width is not None and half_width <= settings.time_relative_ci:
            return "converged"
    return "time_budget" if elapsed_s >= settings.max_time_s else ""


def measure_power(
    workload: Workload,
    device: Device,
    meter: Meter,
    iteration_s: float,
    settings: MeasurementSettings,
) -> PowerMeasurement:
    """Mean power over `power_window_s` of load, with the device's idle power before it.

    Raises MeterUnavailable when the meter gives out.
    """
    device.synchronise()
    with recording(meter) as idle:
        time.sleep(settings.power_lead_in_s)
    iterations = max(1, round(_LOAD_CHUNK_S / iteration_s))

    def load(seconds: float) -> None:
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            workload.run(iterations)
            device.synchronise()

    load(settings.power_lead_in_s)
    with recording(meter) as record:
        load(settings.power_window_s)
    if record.failure or not record.powers_w:
        raise MeterUnavailable(record.failure or "the meter gave no reading")
    idle_w = None if idle.failure else _time_weighted(idle).value
    return PowerMeasurement(_time_weighted(record), record, idle_w, meter.name)


def find_flags(
    timing: TimeMeasurement, power: PowerMeasurement | None, device: Device
) -> list[str]:
    """What a reader should know before trusting the numbers."""
    flags = []
    counted = list(itertools.compress(timing.batch_times_s, timing.undisturbed))
    if len(counted) < len(timing.undisturbed) / 2:
        flags.append("disturbed")
    if statistics.drifts(counted):
        flags.append("drifting")
    on_gpu = device.torch_device.type == "cuda"
    if on_gpu and timing.enqueue_s >= _LAUNCH_BOUND_SHARE * timing.estimate.value:
        flags.append("launch_bound")
    if power is not None and power.record.counter_power_w is not None:
        tolerance = REFRESH_S / power.record.window_s + _COUNTER_TOLERANCE
        difference = abs(power.record.counter_power_w / power.estimate.value - 1)
        if difference > tolerance:
            flags.append("counter_disagrees")
    return flags


def _time_weighted(record: PowerRecord) -> Estimate:
    """Mean power with Student's interval over the sensor's refreshes."""
    refreshes = record.refreshes()
    seconds = sum(held_s for held_s, _ in refreshes)
    average = sum(held_s * power_w for held_s, power_w in refreshes) / seconds
    spread = statistics.mean([power_w for _, power_w in refreshes])
    if spread.low is None or spread.high is None:
        return Estimate(average, None, None)
    margin = (spread.high - spread.low) / 2
    return Estimate(average, average - margin, average + margin)


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
