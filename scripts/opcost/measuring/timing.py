"""Measure a workload's time: calibrate, warm up, time blocks until the median has converged.

An operator's time is that of the device alone: each block is launched while the device is held
back, so that it never waits for its host. The host's time to launch it is a separate quantity. A
workload that is timed in use, such as a model end to end, runs with its host instead; its launch
time is measured in blocks between those.
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
"""Attempts to time a block in which the device does not wait for an interrupted host."""

_LEAD_SHARE = 0.25
"""Iterations before a block of a workload in use, as a share of the block."""

NO_HOST = "a processor runs its operators itself"
WAITS = "the operator waits for the device, or launches more kernels than its queue holds"
MODEL_WAITS = "the model waits for the device, or launches more kernels than its queue holds"


class Workload(Protocol):
    """Something to iterate; each iteration uses the next operand set.

    `rotation` is the number of iterations until the first operands are used again. A workload
    `in_use` is timed with its host, other workloads without.
    """

    rotation: int
    in_use: bool

    def run(self, iterations: int) -> None:
        """Start that many iterations, without waiting for the device."""


@dataclass(frozen=True)
class TimeMeasurement:
    """Seconds per iteration, and the blocks.

    The estimate is computed from the undisturbed blocks or, with `counts_disturbed`, from all
    blocks in which the device did not wait, because fewer than `min_batches` were undisturbed.
    `host` is None for `host_reason`. If `in_use`, the estimate includes the host.
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
        """Whether the host is slower than the device; False if they were timed together."""
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
    """A function that times blocks of a workload; `host_reason` is why host times are invalid."""

    block: Callable[[int], BlockTime]
    host_reason: str | None
    in_use: bool = False


def timer_of(workload: Workload, device: Device, block_s: float) -> Timer:
    """The timer for a workload. Runs it: the first call also loads and selects kernels."""
    workload.run(1)
    device.synchronise()
    if device.kind.host_sets_pace:
        return Timer(_without_host(workload, device), NO_HOST)
    if workload.in_use:
        return _timer_in_use(workload, device, block_s)
    timer = Timer(_without_host(workload, device), None)
    return Timer(_with_host(workload, device), WAITS) if _patient(timer, 1).waited else timer


def _timer_in_use(workload: Workload, device: Device, block_s: float) -> Timer:
    """Times each block with its host, and then the host in a block before which the device is held.

    The first iteration after a pause takes the host longer, so one precedes the latter block if the
    queue has room for it. The host is slower for some milliseconds after waiting for this block, so
    another block is run that does not count.
    """
    with_host = _with_host(workload, device)
    for lead in (1, 0):
        timer = Timer(_without_host(workload, device, lead), None)
        if not _patient(timer, 1).waited:
            break
    else:
        return Timer(with_host, MODEL_WAITS, in_use=True)
    launched = calibrate(timer, block_s)

    def both(iterations: int) -> BlockTime:
        with_host(iterations)
        device_s = with_host(iterations).device_s
        return BlockTime(device_s, _patient(timer, launched).host_s / launched * iterations)

    return Timer(both, None, in_use=True)


def _without_host(workload: Workload, device: Device, lead: int = 0) -> Callable[[int], BlockTime]:
    return lambda iterations: device.time(
        partial(workload.run, iterations), partial(workload.run, lead)
    )


def _with_host(workload: Workload, device: Device) -> Callable[[int], BlockTime]:
    def block(iterations: int) -> BlockTime:
        lead = max(1, round(_LEAD_SHARE * iterations))
        return device.time_in_use(partial(workload.run, lead), partial(workload.run, iterations))

    return block


def time_workload(
    workload: Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> TimeMeasurement:
    """Calibrate, warm up and time a workload. Raises OpcostError if it launches no kernel."""
    timer = timer_of(workload, device, settings.batch_s)
    if timer.in_use:  # the host is part of it
        watch = device.host_watch(watch.baseline_s)
    iterations = calibrate(timer, settings.batch_s)
    warm_up(workload, device, iterations, settings.warm_up_s, clock)
    timing = measure_time(timer, watch, iterations, settings, clock)
    if timing.estimate.value <= 0:
        raise OpcostError("the device had nothing to do: no kernel was launched")
    return timing


def calibrate(timer: Timer, block_s: float) -> int:
    """The iterations of a block: doubled until device or host need half of `block_s` for them, then
    scaled up; at most as many as the device's queue was seen to hold.
    """
    iterations = 1
    while True:
        block = _patient(timer, iterations)
        if block.waited:
            return max(1, iterations // 2)
        longer_s = max(block.device_s, block.host_s)
        if longer_s >= block_s / 2:
            break
        iterations *= 2
    scaled = max(1, round(block_s / (longer_s / iterations)))
    return iterations if scaled > iterations and _patient(timer, scaled).waited else scaled


def _patient(timer: Timer, iterations: int) -> BlockTime:
    """A block in which the device did not wait, if a few attempts give one."""
    for _ in range(_TRIES):
        block = timer.block(iterations)
        if not block.waited:
            break
    return block


def warm_up(
    workload: Workload,
    device: Device,
    iterations: int,
    warm_up_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Iterate for `warm_up_s` seconds, and over all operands within at most one second, because the
    first use of memory is slow for some tenths of a second.
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
    """Time blocks until the median has converged or the time budget is spent.

    Blocks during which the watch noticed interference, or the device waited for its host, are
    recorded but do not count.
    """
    times_s: list[float] = []
    hosts_s: list[float] = []
    ahead: list[bool] = []
    undisturbed: list[bool] = []
    watch.look()
    start_s = clock.now_s()
    stop_reason = ""
    while not stop_reason:
        block = timer.block(iterations)
        times_s.append(block.device_s / iterations)
        hosts_s.append(block.host_s / iterations)
        ahead.append(not block.waited)
        undisturbed.append(watch.look() and not block.waited)
        counted = list(itertools.compress(times_s, undisturbed))
        stop_reason = _why_stop(counted, len(times_s), clock.now_s() - start_s, settings)
    host = None
    if timer.host_reason is None:
        host = statistics.median(list(itertools.compress(hosts_s, undisturbed)) or hosts_s)
    counts = undisturbed
    if len(counted) < settings.min_batches:
        counts = ahead if any(ahead) else [True] * len(ahead)
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
    times_s: list[float], blocks: int, elapsed_s: float, settings: MeasurementSettings
) -> str:
    """The reason to stop timing, or "" to continue; `times_s` are those of undisturbed blocks."""
    if len(times_s) >= settings.min_batches and elapsed_s >= settings.min_time_s:
        half_width = statistics.median(times_s).relative_half_width
        if half_width is not None and half_width <= settings.time_relative_ci:
            return "converged"
    spent = elapsed_s >= settings.max_time_s and blocks >= settings.min_batches
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
