"""Measure a workload's time: calibrate, warm up, time batches until the median is converged.

An operator's time is that of the device alone: each batch is launched while the device is held
back, so that it never waits for its host. The time that the host needs to launch it is a quantity
of its own. A workload that is timed in use, such as a whole model, runs with its host instead; what
the host needs to launch it is timed in batches between those.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from opcost import statistics
from opcost.devices.device import BlockTime, Device
from opcost.devices.disturbance import Watch
from opcost.energy.load import SYSTEM_CLOCK, Clock
from opcost.errors import OpcostError
from opcost.rows.flags import (
    DISTURBED,
    DRIFTING,
    LAUNCH_BOUND,
    SENTINEL_QUICKER,
    WAITS_FOR_DEVICE,
)
from opcost.rows.quantities import HOST_TIME, TIME
from opcost.statistics import Estimate
from opcost.study import MeasurementSettings

_FIRST_USE_S = 1.0
_TRIES = 3
"""A host that is interrupted lets its device wait, too, but not each time."""

_LEAD_SHARE = 0.25
"""Iterations before a batch of a workload in use, as a share of the batch."""

NO_HOST = "a processor runs its operators itself"
WAITS = "the operator waits for the device, or launches more kernels than its queue holds"
MODEL_WAITS = "the model waits for the device, or launches more kernels than its queue holds"


class Workload(Protocol):
    """Something to iterate; each iteration uses the next operand set.

    `rotation` is the number of iterations until the first operands are used again. A workload
    `in_use` is timed with its host, one that is not without.
    """

    rotation: int
    in_use: bool

    def run(self, iterations: int) -> None:
        """Start that many iterations, without waiting for the device."""


@dataclass(frozen=True)
class TimeMeasurement:
    """Seconds per iteration, and the batches.

    The estimate is that of the undisturbed batches or, with `counts_disturbed`, of all batches in
    which the device did not wait, because fewer than `min_batches` were undisturbed. `host` is None
    for `host_reason`. If `in_use`, the estimate is of device and host together.
    """

    estimate: Estimate
    block_times_s: tuple[float, ...]
    undisturbed: tuple[bool, ...]
    counts_disturbed: bool
    block_iterations: int
    host: Estimate | None
    host_reason: str | None
    stop_reason: str
    in_use: bool = False

    @property
    def converged(self) -> bool:
        """Whether the confidence interval is as narrow as requested."""
        return self.stop_reason == "converged"

    @property
    def launch_bound(self) -> bool:
        """Whether the host is slower than the device; False if these were timed together."""
        if self.in_use or self.host is None:
            return False
        return self.host.value >= self.estimate.value

    def columns(self) -> dict[str, Any]:
        """The columns of time and its measurement."""
        return {
            **TIME.columns(self.estimate),
            **HOST_TIME.columns(self.host),
            "host_time_reason": self.host_reason,
            "block_time_s": list(self.block_times_s),
            "block_undisturbed": list(self.undisturbed),
            "block_iterations": self.block_iterations,
            "converged": self.converged,
            "stop_reason": self.stop_reason,
        }


@dataclass(frozen=True)
class Timer:
    """How batches of a workload are timed, and why its host's time cannot be had, or None."""

    batch: Callable[[int], BlockTime]
    host_reason: str | None
    in_use: bool = False


def timer_of(workload: Workload, device: Device, batch_s: float) -> Timer:
    """The timer that fits a workload. Runs it: the first call also loads and selects kernels."""
    workload.run(1)
    device.synchronise()
    if device.kind.host_sets_pace:
        return Timer(_alone(workload, device), NO_HOST)
    if workload.in_use:
        return _timer_in_use(workload, device, batch_s)
    alone = Timer(_alone(workload, device), None)
    return Timer(_with_host(workload, device), WAITS) if _patient(alone, 1).waited else alone


def _timer_in_use(workload: Workload, device: Device, batch_s: float) -> Timer:
    """Times each batch with its host, and then the host in a batch that the device is held behind.

    The first iteration after a pause takes the host longer: one leads that batch if the queue has
    room for it. It is slower for some milliseconds after it has waited for that batch: another one
    is run and does not count.
    """
    with_host = _with_host(workload, device)
    for lead in (1, 0):
        alone = Timer(_alone(workload, device, lead), None)
        if not _patient(alone, 1).waited:
            break
    else:
        return Timer(with_host, MODEL_WAITS, in_use=True)
    launched = calibrate(alone, batch_s)

    def both(iterations: int) -> BlockTime:
        with_host(iterations)
        device_s = with_host(iterations).device_s
        return BlockTime(device_s, _patient(alone, launched).host_s / launched * iterations)

    return Timer(both, None, in_use=True)


def _alone(workload: Workload, device: Device, lead: int = 0) -> Callable[[int], BlockTime]:
    return lambda iterations: device.time(
        partial(workload.run, iterations), partial(workload.run, lead)
    )


def _with_host(workload: Workload, device: Device) -> Callable[[int], BlockTime]:
    def batch(iterations: int) -> BlockTime:
        lead = max(1, round(_LEAD_SHARE * iterations))
        return device.time_in_use(partial(workload.run, lead), partial(workload.run, iterations))

    return batch


def time_workload(
    workload: Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> TimeMeasurement:
    """Calibrate, warm up and time a workload.

    Raises OpcostError if it gives the device nothing to do.
    """
    timer = timer_of(workload, device, settings.batch_s)
    if timer.in_use:  # the host is part of it
        watch = device.host_watch(watch.baseline_s)
    iterations = calibrate(timer, settings.batch_s)
    warm_up(workload, device, iterations, settings.warm_up_s, clock)
    timing = measure_time(timer, watch, iterations, settings, clock)
    if timing.estimate.value <= 0:
        raise OpcostError("the device had nothing to do: no kernel was launched")
    return timing


def calibrate(timer: Timer, batch_s: float) -> int:
    """The iterations of a batch: double them until device or host need half of `batch_s` for them,
    and scale up.

    A device's queue may hold fewer; then, the most that it was seen to hold.
    """
    iterations = 1
    while True:
        batch = _patient(timer, iterations)
        if batch.waited:
            return max(1, iterations // 2)
        longer_s = max(batch.device_s, batch.host_s)
        if longer_s >= batch_s / 2:
            break
        iterations *= 2
    scaled = max(1, round(batch_s / (longer_s / iterations)))
    return iterations if scaled > iterations and _patient(timer, scaled).waited else scaled


def _patient(timer: Timer, iterations: int) -> BlockTime:
    """A batch that was not interrupted, if there is one in some."""
    for _ in range(_TRIES):
        batch = timer.batch(iterations)
        if not batch.waited:
            break
    return batch


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
        workload.run(iterations)
        device.synchronise()
        done += iterations
        elapsed_s = clock.now_s() - start_s


def measure_time(
    timer: Timer,
    watch: Watch,
    iterations: int,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> TimeMeasurement:
    """Time batches until the median has converged or the time budget is spent.

    Batches during which the watch noticed interference, or the device waited for its host, are
    recorded but do not count.
    """
    times_s: list[float] = []
    hosts_s: list[float] = []
    behind: list[bool] = []
    undisturbed: list[bool] = []
    watch.look()
    start_s = clock.now_s()
    stop_reason = ""
    while not stop_reason:
        batch = timer.batch(iterations)
        times_s.append(batch.device_s / iterations)
        hosts_s.append(batch.host_s / iterations)
        behind.append(not batch.waited)
        undisturbed.append(watch.look() and not batch.waited)
        counted = list(itertools.compress(times_s, undisturbed))
        stop_reason = _why_stop(counted, len(times_s), clock.now_s() - start_s, settings)
    host = None
    if timer.host_reason is None:
        host = statistics.median(list(itertools.compress(hosts_s, undisturbed)) or hosts_s)
    counts = undisturbed
    if len(counted) < settings.min_batches:
        counts = behind if any(behind) else [True] * len(behind)
    estimate = statistics.median(list(itertools.compress(times_s, counts)))
    return TimeMeasurement(
        estimate,
        tuple(times_s),
        tuple(undisturbed),
        sum(undisturbed) < settings.min_batches,
        iterations,
        host,
        timer.host_reason,
        stop_reason,
        timer.in_use,
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


def find_flags(timing: TimeMeasurement, watch: Watch) -> list[str]:
    """The flags of a time measurement."""
    flags = []
    counted = list(itertools.compress(timing.block_times_s, timing.undisturbed))
    few = len(counted) < len(timing.undisturbed) / 2
    if few or timing.counts_disturbed:
        flags.append(DISTURBED)
    if watch.lower_baseline_s() is not None:
        flags.append(SENTINEL_QUICKER)
    if statistics.drifts(counted):
        flags.append(DRIFTING)
    if timing.launch_bound:
        flags.append(LAUNCH_BOUND)
    if timing.host_reason == WAITS:
        flags.append(WAITS_FOR_DEVICE)
    return flags
