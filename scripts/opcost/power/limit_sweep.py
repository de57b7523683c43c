"""Time and energy of a step at several power limits of a GPU."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opcost.devices.gpu_settings import Gpu
from opcost.devices.kinds import wait_for_devices
from opcost.devices.operating_point import applied
from opcost.errors import OpcostError
from opcost.power.monitor import Monitor
from opcost.power.power_limit import held, name_of
from opcost.power.windows import start
from opcost.rows.quantities import ED2P, ENERGY, TIME
from opcost.statistics import Estimate, energy_delay, least, mean
from opcost.target import OperatingPoint
from opcost.text import joules, table, with_interval
from opcost.text import seconds as seconds_text

if TYPE_CHECKING:
    import pandas as pd

_LIMITS = 8
_BINDS = 0.9
"""A limit does not bind if a step draws less than this share of it."""
_BLOCKS = 20
_SETTLE_SHARE = 0.3
"""Before a window, the step runs for this share of its time: clocks and temperature settle."""

Step = Callable[[], object]


@dataclass(frozen=True)
class AtLimit:
    """A step at a power limit in watts: its time in seconds, and its energy in joules or the
    `reason` why there is none, with 95 % intervals; the number of measured `steps`, and flags of
    the energy. The error of the sensor's gain is common to all limits and in no interval.
    """

    limit_w: float
    time: Estimate
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
    """A step at several power limits of a GPU, from the highest to the lowest."""

    gpu: str
    points: tuple[AtLimit, ...]

    @property
    def best(self) -> AtLimit | None:
        """The measured limit with the least energy x time squared; None if no limit has an energy.
        Limits between the measured ones, and intervals, are not considered.
        """
        best, _ = least([point.ed2p for point in self.points])
        return None if best is None else self.points[best]

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each limit: watts, seconds, joules and J s², with the ends of intervals."""
        import pandas as pd

        return pd.DataFrame([_row(point) for point in self.points])

    def __str__(self) -> str:
        header = ("limit", "time/step", "energy/step", "mean power", "energy x time²")
        lines = table(header, [_cells(point) for point in self.points])
        reasons = {point.reason for point in self.points if point.reason is not None}
        lines += [f"no energy: {reason}" for reason in sorted(reasons)]
        if self.best is not None:
            _, within_noise = least([point.ed2p for point in self.points])
            alike = ", ".join(f"{self.points[each].limit_w:g} W" for each in within_noise)
            similar = f"; not distinguishable from it: {alike}" if alike else ""
            lines.append(f"Least energy x time² among these: {self.best.limit_w:g} W{similar}.")
        drawn = [each.mean_power_w for each in self.points if each.mean_power_w is not None]
        if drawn and max(drawn) < _BINDS * min(each.limit_w for each in self.points):
            lines.append(f"The step draws at most {max(drawn):.3g} W: none of the limits binds.")
        return "\n".join(lines)


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

    The previous limit is restored whatever happens (docs/how_to/gpu.md). Raises
    OpcostError before anything is measured if a limit is outside the range that the GPU allows,
    without permission (root, or the capability CAP_SYS_ADMIN), and if there is no such GPU.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0.1:
        raise OpcostError(f"seconds is {seconds!r}: give a number of seconds, at least 0.1")
    name = name_of(gpu)
    with held(gpu, "a sweep of power limits") as lock:
        known = Gpu(lock.key)
        chosen = _evenly(known) if limits is None else _in_order(limits)
        for limit_w in chosen:
            known.check(OperatingPoint(limit_w))
        with Monitor([name]) as monitor:
            points = []
            for limit_w in chosen:
                with applied(lock, OperatingPoint(limit_w)):
                    points.append(_at_limit(step, limit_w, seconds, monitor))
    return LimitSweep(name, tuple(points))


def _evenly(gpu: Gpu) -> list[float]:
    limits = gpu.power_limits()
    apart_w = (limits.most_w - limits.least_w) / (_LIMITS - 1)
    return [round(limits.most_w - number * apart_w, 3) for number in range(_LIMITS)]


def _in_order(limits: Iterable[float]) -> list[float]:
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
    window = start(f"{limit_w:g} W", monitor=monitor)
    times_s: list[float] = []
    while len(times_s) < 2 or window.time_s < seconds:
        times_s.append(_block_s(step, in_block))
    window.stop()
    [found] = window.devices.values()
    steps = in_block * len(times_s)
    energy = None
    if (total := found.energy) is not None:
        low, high = (None if each is None else each / steps for each in (total.low, total.high))
        energy = Estimate(total.value / steps, low, high)
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


def _row(point: AtLimit) -> dict[str, Any]:
    return {
        "limit_w": point.limit_w,
        **TIME.columns(point.time),
        **ENERGY.columns(point.energy),
        "mean_power_w": point.mean_power_w,
        **ED2P.columns(point.ed2p),
        "steps": point.steps,
        "flags": list(point.flags),
        "reason": point.reason,
    }


def _cells(point: AtLimit) -> Sequence[str]:
    power_w, ed2p = point.mean_power_w, point.ed2p
    return (
        f"{point.limit_w:g} W",
        with_interval(point.time, seconds_text),
        with_interval(point.energy, joules),
        "-" if power_w is None else f"{power_w:.4g} W",
        with_interval(ed2p, ED2P.show),
    )
