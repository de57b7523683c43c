"""What keeps a device busy while its power is measured, and the clock that goes with it."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock, in seconds."""

    def now_s(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


Done = Callable[[], bool]
"""Whether the device has finished work that was started."""


class Load(Protocol):
    """Work that can be repeated for as long as power is measured."""

    @property
    def iteration_s(self) -> float:
        """Seconds per iteration."""

    def start(self, iterations: int) -> Done:
        """Start that many iterations, if the device allows without waiting for them."""
