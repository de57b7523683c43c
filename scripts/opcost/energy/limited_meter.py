"""A meter with a time limit: a driver may hang in a way that its own process cannot interrupt."""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from opcost.energy.meter import DeviceState, Meter

_TIMEOUT_S = 20.0
_Result = TypeVar("_Result")


def open_limited(open_meter: Callable[[], Meter]) -> "LimitedMeter":
    """Open a meter within the time limit. Raises what `open_meter` raises."""
    return LimitedMeter(_limited(open_meter))


class LimitedMeter(Meter):
    """Another meter, with a time limit on each reading."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.name = meter.name
        self.assumed = meter.assumed
        self.missing = meter.missing
        self.reads_since_last = meter.reads_since_last
        self.overlap = meter.overlap
        self.shared_by_time = meter.shared_by_time

    def power_w(self) -> float:
        """Power of the wrapped meter, in watts."""
        return _limited(self._meter.power_w)

    def counter_j(self) -> float | None:
        """Energy counter of the wrapped meter, in joules."""
        return _limited(self._meter.counter_j)

    def state(self) -> DeviceState:
        """State of the wrapped meter."""
        return _limited(self._meter.state)

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """Readings of the wrapped meter, with the time limit."""
        return {name: partial(_limited, read) for name, read in self._meter.readings().items()}

    def memory_by_process(self) -> Mapping[int, int]:
        """Memory by process of the wrapped meter."""
        return _limited(self._meter.memory_by_process)


def _limited(read: Callable[[], _Result]) -> _Result:
    """Call `read`. If it hangs, SIGALRM ends this process, which another process supervises."""
    signal.setitimer(signal.ITIMER_REAL, _TIMEOUT_S)
    try:
        return read()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
