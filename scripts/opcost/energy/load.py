"""The load whose power is measured, and the clock that times it."""

from collections.abc import Callable
from time import monotonic, sleep  # bound here: a model may replace those in `time`
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, in seconds."""

    def now_s(self) -> float:
        """Seconds since a fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Wait that long."""


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""
        return monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        sleep(seconds)


SYSTEM_CLOCK = SystemClock()


Done = Callable[[], bool]
"""Whether the device has finished the work that was started."""


class Load(Protocol):
    """Work that can be repeated for as long as power is measured."""

    @property
    def iteration_s(self) -> float:
        """Seconds per iteration."""

    @property
    def may_wait(self) -> bool:
        """Whether a slower pace means that the device waits, rather than works more slowly."""

    def start(self, iterations: int) -> Done:
        """Start that many iterations, without waiting for them if the device is asynchronous."""
