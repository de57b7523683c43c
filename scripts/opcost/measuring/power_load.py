"""The load of a trial's power phase: the workload, kept busy.

A window of power lasts seconds, in which a host that is slower than its device would leave it idle
for most of the time. The workload is then captured and replayed without its host, if possible.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from opcost.devices.device import Device, NotCapturable
from opcost.energy.load import Done, Load
from opcost.measuring.timing import TimeMeasurement, Workload

_SLOW_HOST = 0.8
"""Ratio of the host's time to the device's from which the power phase, in which the host also reads
the meter, replays captured work."""

_REPLAY_S = 2e-3
_MOST_CALLS = 2**14


@dataclass(frozen=True)
class WorkloadLoad:
    """A workload as the load of a power measurement."""

    workload: Workload
    device: Device
    iteration_s: float

    @property
    def may_wait(self) -> bool:
        """Whether the device may wait for its host."""
        return not self.device.kind.host_sets_pace

    def start(self, iterations: int) -> Done:
        """Start that many iterations on the device."""
        return self.device.start(partial(self.workload.run, iterations))


class Replays:
    """Captured work as the load; each replay runs `iterations`, on the next operands."""

    may_wait = True

    def __init__(
        self,
        replays: Sequence[Callable[[], None]],
        iterations: int,
        device: Device,
        iteration_s: float,
    ) -> None:
        self.iteration_s = iteration_s
        self._next, self._iterations = itertools.cycle(replays), iterations
        self._device, self._owed = device, 0

    def start(self, iterations: int) -> Done:
        """Start that many iterations, except part of a replay, which the next start adds."""
        count, self._owed = divmod(self._owed + iterations, self._iterations)

        def replay() -> None:
            for each in itertools.islice(self._next, count):
                each()

        return self._device.start(replay)


def load_of(workload: Workload, device: Device, timing: TimeMeasurement) -> Load:
    """The workload as the load of the power phase, at its timed pace."""
    iteration_s = timing.estimate.value
    plain = WorkloadLoad(workload, device, iteration_s)
    slow = timing.host is not None and timing.host.value >= _SLOW_HOST * iteration_s
    if workload.in_use or not slow:
        return plain
    iterations = max(1, round(_REPLAY_S / iteration_s))
    count = math.ceil(min(workload.rotation, _MOST_CALLS) / iterations)
    try:
        replays = device.capture([partial(workload.run, iterations)] * count)
    except NotCapturable:
        return plain
    return Replays(replays, iterations, device, iteration_s)
