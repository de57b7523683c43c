"""The load whose power is measured, and the clock that times it."""

from collections.abc import Callable
from time import monotonic, sleep  # bound here: a model may replace those in `time`
from typing import Protocol

import numpy as np


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


class ProcessorLoad:
    """Matrix products on all cores, by NumPy."""

    may_wait = False

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).random((500, 500))
        begun_s = monotonic()
        self.start(20)
        self.iteration_s = (monotonic() - begun_s) / 20

    def start(self, iterations: int) -> "Done":
        """Do that many products."""
        for _ in range(iterations):
            _ = self._matrix @ self._matrix
        return lambda: True


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
