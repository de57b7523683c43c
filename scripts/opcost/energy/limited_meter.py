"""A meter that must answer: a driver may hang, and nothing within its process can end that."""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from opcost.energy.meter import DeviceState, Meter

_LONGEST_S = 20.0
_Answer = TypeVar("_Answer")


def open_limited(open_meter: Callable[[], Meter]) -> "LimitedMeter":
    """Open a meter that must answer, and soon. Raises what `open_meter` raises."""
    return LimitedMeter(_soon(open_meter))


class LimitedMeter(Meter):
    """Another meter, each reading of which must come soon."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.name = meter.name
        self.assumed = meter.assumed
        self.missing = meter.missing
        self.reads_since_last = meter.reads_since_last

    def power_w(self) -> float:
        """As the other meter reads it."""
        return _soon(self._meter.power_w)

    def counter_j(self) -> float | None:
        """As the other meter counts it."""
        return _soon(self._meter.counter_j)

    def state(self) -> DeviceState:
        """As the other meter knows it."""
        return _soon(self._meter.state)

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """Those of the other meter."""
        return {name: partial(_soon, read) for name, read in self._meter.readings().items()}


def _soon(read: Callable[[], _Answer]) -> _Answer:
    """What `read` gives; SIGALRM ends this process, which another one outlives, if it hangs."""
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        return read()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
