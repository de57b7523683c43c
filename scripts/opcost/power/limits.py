"""The power limit of a GPU: read, set, reset, and swept for the least energy x time squared."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opcost.devices import lock
from opcost.devices.gpu_settings import TOLERANCE_W, Gpu, PowerLimits
from opcost.devices.kinds import wait_for_devices
from opcost.devices.lock import Held, exclusive
from opcost.devices.machine import hashed_uuid
from opcost.devices.operating_point import applied
from opcost.energy.meter import MeterUnavailable
from opcost.energy.nvml import all_visible, device_uuids, visible_uuid
from opcost.errors import OpcostError
from opcost.power.monitor import Monitor
from opcost.power.windows import start
from opcost.rows.quantities import ED2P, ENERGY, TIME
from opcost.statistics import Estimate, energy_delay, least, mean, ratio
from opcost.target import OperatingPoint
from opcost.text import joules, table, watts, with_interval
from opcost.text import seconds as seconds_text
from opcost.values import number

if TYPE_CHECKING:
    import pandas as pd

_LIMITS = 8
_BINDS = 0.9
"""A limit does not bind if a step draws less than this share of it."""
_BLOCKS = 20
_SECONDS = number(0.1)
_SWEEP = "a sweep of power limits"
_SETTLE_SHARE = 0.3
"""Before a window, the step runs for this share of its time: clocks and temperature settle."""

_sweeps: set[tuple[int, str]] = set()
"""Process and GPU of each sweep; a fork is another process."""

Step = Callable[[], object]


def power_limits() -> dict[str, PowerLimits | str]:
    """The power limits of each visible GPU by name, such as `cuda:0`, or why they are unknown.
    Raises OpcostError if NVML finds no GPU.
    """
    found: dict[str, PowerLimits | str] = {}
    for index, uuid in enumerate(_uuids()):
        try:
            found[f"cuda:{index}"] = Gpu(hashed_uuid(uuid)).power_limits()
        except OpcostError as error:
            found[f"cuda:{index}"] = str(error)
    return found


def pending(gpu: str) -> str | None:
    """What the record of a GPU's operating point says; None without one."""
    record = lock.FOLDER / f"opcost-{hashed_uuid(_uuid_of(gpu))}.point"
    with suppress(OSError, ValueError, KeyError):
        known = json.loads(record.read_text(encoding="utf-8"))
        set_by = f"process {known['process']} set the {known['point']}"
        return f"{set_by}: it or the next opcost process ends that, as {record} says"
    return None


def set_power_limit(watts: float, gpu: int | str = 0) -> float:
    """Set the power limit of a GPU, in watts, until it is set again or the driver is unloaded.
    Returns the previous limit in watts.

    `gpu` is its CUDA index, or the beginning of its UUID. Waits for a study that measures on it.
    Raises OpcostError for a limit outside the range that the GPU allows, without permission (root,
    or the capability CAP_SYS_ADMIN), and if there is no such GPU.
    """
    if isinstance(watts, bool) or not isinstance(watts, int | float):
        raise OpcostError(f"the power limit is {watts!r}: give a number of watts")
    with _held(gpu, f"setting the power limit to {watts:g} W") as held:
        return _set(Gpu(held.key), watts)


def reset_power_limit(gpu: int | str = 0) -> float:
    """Set the power limit of a GPU to its default. Returns the previous limit in watts.

    Arguments and errors are those of `set_power_limit`.
    """
    with _held(gpu, "resetting the power limit") as held:
        known = Gpu(held.key)
        return _set(known, known.power_limits().default_w)


def _set(gpu: Gpu, limit_w: float) -> float:
    gpu.check(OperatingPoint(limit_w))
    before_w = gpu.power_limit_w()
    gpu.set_power_limit(limit_w)
    return before_w


def set_power_cap(gpu_num: int, cap: "float | LimitSweep") -> None:
    """`set_power_limit`, called as in SustainableML: `cap` is in watts, or what
    `power_cap_profiler` returned. Raises OpcostError also if that has no best limit.
    """
    if isinstance(cap, LimitSweep):
        if cap.best is None:
            raise OpcostError(f"no limit is the best, because none has an energy:\n{cap}")
        cap = cap.best.limit_w
    set_power_limit(cap, gpu_num)


def reset_power_cap(gpu_num: int = 0) -> None:
    """`reset_power_limit`, called as in SustainableML."""
    reset_power_limit(gpu_num)


@contextmanager
def _held(gpu: int | str, purpose: str) -> Iterator[Held]:
    """Hold the lock of a GPU, as jobs of a study do. Raises OpcostError within a sweep of it by
    this process, which would wait for itself.
    """
    mine = os.getpid(), hashed_uuid(_uuid_of(gpu))
    if mine in _sweeps:
        raise OpcostError(f"{purpose}: {_SWEEP} runs in this process: wait for its end")
    with exclusive(mine[1], purpose) as held:
        if purpose == _SWEEP:
            _sweeps.add(mine)
        try:
            yield held
        finally:
            _sweeps.discard(mine)


def name_of(gpu: int | str) -> str:
    """The name of a GPU in targets and monitors, such as `cuda:0`. Raises OpcostError if there is
    no such GPU.
    """
    return f"cuda:{_uuids().index(_uuid_of(gpu))}"


def _uuid_of(gpu: int | str) -> str:
    if isinstance(gpu, bool) or not isinstance(gpu, int | str) or str(gpu) == "":
        raise OpcostError(f"gpu is {gpu!r}: give its number, such as 0, or its UUID")
    with _known():
        return visible_uuid(str(gpu), device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _uuids() -> list[str]:
    with _known():
        return all_visible(device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))


@contextmanager
def _known() -> Iterator[None]:
    try:
        yield
    except MeterUnavailable as error:
        raise OpcostError(f"the power limit of a GPU is not known: {error}") from error


@dataclass(frozen=True)
class AtLimit:
    """A step at a power limit in watts: its time in seconds, and its energy in joules or the
    `reason` why there is none, with 95 % intervals; the number of measured `steps`, and flags of
    the energy. The error of the sensor's gain is common to all limits and in no interval. Without a
    time as well, another limit was in force meanwhile.
    """

    limit_w: float
    time: Estimate | None
    energy: Estimate | None
    reason: str | None
    mean_power_w: float | None
    steps: int
    flags: tuple[str, ...] = ()

    @property
    def ed2p(self) -> Estimate | None:
        """Energy x time squared, in J s²."""
        return energy_delay(self.time, self.energy, 2)


@dataclass(frozen=True)
class LimitSweep:
    """A step at several power limits of a GPU, from the highest to the lowest. `present_w` is the
    limit in watts before and after.
    """

    gpu: str
    points: tuple[AtLimit, ...]
    present_w: float | None = None

    @property
    def best(self) -> AtLimit | None:
        """The measured limit with the least energy x time squared; None if no limit has an energy.
        Limits between the measured ones, and intervals, are not considered.
        """
        best, _ = least([point.ed2p for point in self.points])
        return None if best is None else self.points[best]

    @property
    def saved(self) -> dict[str, Estimate] | None:
        """What the best limit saves against the present one: shares of `time`, `energy` and `ed2p`
        with their 95 % intervals, negative for more; the error of the sensor's gain cancels. None
        without a best limit, or an energy at the present one.
        """
        present = [each for each in self.points if each.limit_w == self.present_w]
        if self.best is None or not present or present[0].ed2p is None:
            return None
        return {
            str(of): _less(getattr(self.best, str(of)), getattr(present[0], str(of)))
            for of in (TIME, ENERGY, ED2P)
        }

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each limit: watts, seconds, joules and J s², with the ends of intervals."""
        import pandas as pd

        rows = [
            {
                "limit_w": point.limit_w,
                **TIME.columns(point.time),
                **ENERGY.columns(point.energy),
                "mean_power_w": point.mean_power_w,
                **ED2P.columns(point.ed2p),
                "steps": point.steps,
                "flags": list(point.flags),
                "reason": point.reason,
            }
            for point in self.points
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        header = ("limit", "time/step", "energy/step", "mean power", "energy x time²")
        cells = [
            (
                f"{point.limit_w:g} W",
                with_interval(point.time, seconds_text),
                with_interval(point.energy, joules),
                "-" if point.mean_power_w is None else watts(point.mean_power_w),
                with_interval(point.ed2p, ED2P.show),
            )
            for point in self.points
        ]
        lines = table(header, cells)
        reasons = {point.reason for point in self.points if point.reason is not None}
        lines += [f"no energy: {reason}" for reason in sorted(reasons)]
        if self.best is not None:
            _, within_noise = least([point.ed2p for point in self.points])
            alike = ", ".join(f"{self.points[each].limit_w:g} W" for each in within_noise)
            similar = f"; not distinguishable from it: {alike}" if alike else ""
            lines.append(f"Least energy x time² among these: {self.best.limit_w:g} W{similar}.")
            if self.saved is not None and self.best.limit_w != self.present_w:
                shares = " and ".join(f"{_more(self.saved[of])} {of}" for of in ("time", "energy"))
                lines.append(f"Against the present limit of {self.present_w:g} W: {shares}.")
        drawn = [each.mean_power_w for each in self.points if each.mean_power_w is not None]
        if drawn and max(drawn) < _BINDS * min(each.limit_w for each in self.points):
            lines.append(f"The step draws at most {max(drawn):.3g} W: none of the limits binds.")
        return "\n".join(lines)


def _less(part: Estimate, whole: Estimate) -> Estimate:
    """The share of `whole` by which `part` is less."""
    if part is whole:
        return Estimate(0.0, 0.0, 0.0)
    rest = ratio(part, whole)
    if rest.low is None or rest.high is None:
        return Estimate(1 - rest.value, None, None)
    return Estimate(1 - rest.value, 1 - rest.high, 1 - rest.low)


def _more(saved: Estimate) -> str:
    if saved.low is None or saved.high is None:
        return f"{-saved.value:+.1%}"
    return f"{-saved.value:+.1%} [{-saved.high:+.1%}, {-saved.low:+.1%}]"


def sweep_limits(
    step: Step,
    limits: Iterable[float] | None = None,
    *,
    seconds: float = 10.0,
    gpu: int | str = 0,
) -> LimitSweep:
    """Measure a step, as of training or inference, at several power limits of a GPU.

    `step` runs on that GPU repeatedly: for about `seconds` at each limit, after a third of that
    time in which clocks and temperature settle. `limits` are in watts, by default eight from the
    highest to the lowest that the GPU allows. `gpu` is its CUDA index, or the beginning of its
    UUID; the lock that studies use is held meanwhile.

    The previous limit is restored whatever happens (docs/how_to/gpu.md), unless another program has
    set one meanwhile: then that stays, and the point has neither time nor energy. Raises
    OpcostError before anything is measured if a limit is outside the range that the GPU allows,
    without permission (root, or the capability CAP_SYS_ADMIN), and if there is no such GPU.
    """
    if not _SECONDS.holds(seconds):
        raise OpcostError(f"seconds is {seconds!r}; allowed is {_SECONDS.allowed}")
    name = name_of(gpu)
    with _held(gpu, _SWEEP) as held:
        known = Gpu(held.key)
        present_w = known.power_limit_w()
        chosen = _evenly(known) if limits is None else _in_order(limits)
        for limit_w in chosen:
            known.check(OperatingPoint(limit_w))
        with Monitor([name]) as monitor:
            points = []
            for limit_w in chosen:
                with applied(held, OperatingPoint(limit_w)):
                    points.append(_at_limit(step, limit_w, seconds, monitor))
    return LimitSweep(name, tuple(points), present_w)


def _evenly(gpu: Gpu) -> list[float]:
    limits = gpu.power_limits()
    apart_w = (limits.most_w - limits.least_w) / (_LIMITS - 1)
    return [round(limits.most_w - number * apart_w, 3) for number in range(_LIMITS)]


def _in_order(limits: Iterable[float]) -> list[float]:
    if not isinstance(limits, Iterable):
        raise OpcostError(f"limits is {limits!r}: give a list of watts, such as [500, 400, 300]")
    found = list(limits)
    for limit_w in found:
        if isinstance(limit_w, bool) or not isinstance(limit_w, int | float):
            raise OpcostError(f"limits has {limit_w!r}: give numbers of watts")
    if not found:
        raise OpcostError("limits is empty: give some in watts, or None for eight of the GPU's")
    return sorted({float(limit_w) for limit_w in found}, reverse=True)


def _at_limit(step: Step, limit_w: float, seconds: float, monitor: Monitor) -> AtLimit:
    """Measure the step at a limit that is already set."""
    step_s = _settled_s(step, _SETTLE_SHARE * seconds)
    in_block = max(1, round(seconds / _BLOCKS / step_s))
    begun_s = time.monotonic()
    window = start(f"{limit_w:g} W", monitor=monitor)
    times_s: list[float] = []
    while len(times_s) < 2 or window.time_s < seconds:
        times_s.append(_block_s(step, in_block))
    window.stop()
    [found] = window.devices.values()
    steps = in_block * len(times_s)
    samples = monitor.recording.samples()
    limits_w = samples["power_limit_w"][samples["time_s"] >= begun_s]
    if others_w := set(limits_w[abs(limits_w - limit_w) > TOLERANCE_W].tolist()):
        others = " and ".join(f"{each_w:g} W" for each_w in sorted(others_w))
        reason = (
            f"the power limit was set to {limit_w:g} W, and was {others} meanwhile: have no other "
            "program set it, and sweep again"
        )
        return AtLimit(limit_w, None, None, reason, None, steps)
    energy = found.energy and found.energy.times(1 / steps)
    per_step = mean([block_s / in_block for block_s in times_s])
    return AtLimit(limit_w, per_step, energy, found.reason, found.mean_power_w, steps, found.flags)


def _settled_s(step: Step, seconds: float) -> float:
    """Run the step for `seconds`, at least twice: the first may take longer. Returns its time."""
    begun_s = time.monotonic()
    step_s = _block_s(step, 1)
    while True:
        step_s = _block_s(step, 1)
        if time.monotonic() - begun_s >= seconds:
            return max(step_s, 1e-6)


def _block_s(step: Step, count: int) -> float:
    begun_s = time.monotonic()
    for _ in range(count):
        step()
    wait_for_devices()
    return time.monotonic() - begun_s
