"""Measure a workload's time: calibrate, warm up, time batches until the median is converged."""

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from opcost import statistics
from opcost.devices.device import Device
from opcost.devices.disturbance import Watch
from opcost.energy.load import SYSTEM_CLOCK, Clock
from opcost.rows.flags import DISTURBED, DRIFTING, LAUNCH_BOUND, SENTINEL_QUICKER
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_LAUNCH_BOUND_SHARE = 0.95
_FIRST_USE_S = 1.0


class Workload(Protocol):
    """Something to iterate; each iteration uses the next operand set."""

    rotation: int
    """Iterations until the first operands are used again."""

    def run(self, iterations: int) -> None:
        """Start that many iterations, without waiting for the device."""


@dataclass(frozen=True)
class TimeMeasurement:
    """Seconds per iteration, and the batches.

    The estimate is that of the undisturbed batches or, with `counts_disturbed`, of all batches,
    because fewer than `min_batches` were undisturbed.
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
        """Whether the confidence interval is as narrow as requested."""
        return self.stop_reason == "converged"

    def columns(self) -> dict[str, Any]:
        """The columns of time and its measurement."""
        return {
            **TIME.columns(self.estimate),
            "enqueue_time_s": self.enqueue_s,
            "batch_time_s": list(self.batch_times_s),
            "batch_undisturbed": list(self.undisturbed),
            "batch_iterations": self.batch_iterations,
            "converged": self.converged,
            "stop_reason": self.stop_reason,
        }


def time_workload(
    workload: Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> TimeMeasurement:
    """Calibrate, warm up and time a workload."""
    iteration_s = calibrate(workload, device, settings.batch_s)
    iterations = max(1, round(settings.batch_s / iteration_s))
    warm_up(workload, device, iterations, settings.warm_up_s, clock)
    return measure_time(workload, device, watch, iterations, settings, clock)


def calibrate(workload: Workload, device: Device, batch_s: float) -> float:
    """Seconds per iteration, roughly: double the iterations until they last half a batch."""
    device.time(lambda: workload.run(1))  # the first call also loads and selects kernels
    iterations = 1
    while True:
        seconds = device.time(partial(workload.run, iterations)).device_s
        if seconds >= batch_s / 2:
            return seconds / iterations
        iterations *= 2


def warm_up(
    workload: Workload,
    device: Device,
    iterations: int,
    warm_up_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Iterate for `warm_up_s` seconds, and over all operands within at most one second.

    The first use of memory is slow, for some tenths of a second.
    """
    start_s, elapsed_s, done = clock.now_s(), 0.0, 0
    while elapsed_s < warm_up_s or (done < workload.rotation and elapsed_s < _FIRST_USE_S):
        device.time(lambda: workload.run(iterations))
        done += iterations
        elapsed_s = clock.now_s() - start_s


def measure_time(
    workload: Workload,
    device: Device,
    watch: Watch,
    iterations: int,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> TimeMeasurement:
    """Time batches until the median has converged or the time budget is spent.

    Batches during which the watch noticed interference are recorded but do not count.
    """
    times_s: list[float] = []
    enqueue_s: list[float] = []
    undisturbed: list[bool] = []
    watch.look()
    start_s = clock.now_s()
    stop_reason = ""
    while not stop_reason:
        batch = device.time(lambda: workload.run(iterations))
        times_s.append(batch.device_s / iterations)
        enqueue_s.append(batch.enqueue_s / iterations)
        undisturbed.append(watch.look())
        counted = list(itertools.compress(times_s, undisturbed))
        stop_reason = _why_stop(counted, len(times_s), clock.now_s() - start_s, settings)
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
    """The flags of a time measurement."""
    flags = []
    counted = list(itertools.compress(timing.batch_times_s, timing.undisturbed))
    few = len(counted) < len(timing.undisturbed) / 2
    if few or timing.counts_disturbed:
        flags.append(DISTURBED)
    if watch.lower_baseline_s() is not None:
        flags.append(SENTINEL_QUICKER)
    if statistics.drifts(counted):
        flags.append(DRIFTING)
    host_ahead = not device.kind.host_sets_pace
    if host_ahead and timing.enqueue_s >= _LAUNCH_BOUND_SHARE * timing.estimate.value:
        flags.append(LAUNCH_BOUND)
    return flags
