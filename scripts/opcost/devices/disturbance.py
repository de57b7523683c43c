"""What disturbs a measurement from outside, noticed while it runs.

Another tenant's thread on the same physical core, which no virtual machine can see, slows its
neighbour by up to 1.8, for tenths of a second to seconds. A sentinel tells: a fixed convolution
that fits the cache nearest to the core and takes long only if the core is shared at that moment.
Whether a batch counts is decided by the sentinel before and after it and by how long the operating
system let the thread wait for the processor meanwhile, never by the batch's own time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from time import perf_counter  # bound here: a model may replace the one in `time`

import torch

_SLOWER = 1.25
_MOST_WAITING = 0.005
_CALLS = 3
_QUIET_S = 3.0
_QUIET_QUANTILE = 0.1
_FEWEST_LOOKS = 10


class Watch(ABC):
    """Looks whether the device is this process's alone."""

    quiet_s: float | None
    """Seconds of the sentinel on an undisturbed device, or None without a sentinel."""

    @abstractmethod
    def look(self) -> bool:
        """Whether nothing has disturbed the device since the last look."""

    @abstractmethod
    def sentinel_times_s(self) -> list[float]:
        """What the sentinel took at each undisturbed look."""

    @abstractmethod
    def quieter_s(self) -> float | None:
        """What the sentinel takes undisturbed, if that is clearly less than `quiet_s`; else None.

        Then something disturbed the device all the time in which `quiet_s` was found, and
        disturbances pass for silence.
        """


class CoreWatch(Watch):
    """Watches the processor core that this process runs on."""

    quiet_s: float

    def __init__(
        self,
        quiet_s: float,
        sentinel: Callable[[], float] | None = None,
        clocks: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        self.quiet_s = quiet_s
        self._limit_s = _SLOWER * quiet_s
        self._sentinel = sentinel or core_sentinel()
        self._clocks = clocks or elapsed_and_waited_s
        self._looks_s: list[float] = []
        self._times_s: list[float] = []
        self._alone = False
        self._now_s = self._waited_s = 0.0

    def look(self) -> bool:
        """Whether the sentinel was quick now and at the last look, and the thread could run."""
        was_alone = self._alone
        elapsed_s, waiting_s = self._since_last_look()
        seconds = self._sentinel()
        self._looks_s.append(seconds)
        self._alone = seconds <= self._limit_s
        self._since_last_look()
        ran = waiting_s <= _MOST_WAITING * elapsed_s
        undisturbed = was_alone and self._alone and ran
        if undisturbed:
            self._times_s.append(seconds)
        return undisturbed

    def _since_last_look(self) -> tuple[float, float]:
        """Seconds that passed, and those of them that the thread had to wait for a processor."""
        now_s, waited_s = self._clocks()
        elapsed = now_s - self._now_s, waited_s - self._waited_s
        self._now_s, self._waited_s = now_s, waited_s
        return elapsed

    def sentinel_times_s(self) -> list[float]:
        """What the sentinel took at each undisturbed look."""
        return self._times_s

    def quieter_s(self) -> float | None:
        """The first decile of all looks, if it is as much quicker as a shared core is slower."""
        if len(self._looks_s) < _FEWEST_LOOKS:
            return None
        found_s = _first_decile(self._looks_s)
        return found_s if found_s * _SLOWER < self.quiet_s else None


class NoWatch(Watch):
    """For a device that no other tenant shares: a GPU without partitions."""

    quiet_s = None

    def look(self) -> bool:
        """Always."""
        return True

    def sentinel_times_s(self) -> list[float]:
        """None was timed."""
        return []

    def quieter_s(self) -> None:
        """Nothing to compare."""


def elapsed_and_waited_s() -> tuple[float, float]:
    """Seconds of the clock, and those in which this thread was ready and another one ran.

    The latter is 0 where Linux does not count them.
    """
    try:
        counts = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except OSError:
        return perf_counter(), 0.0
    return perf_counter(), int(counts[1]) * 1e-9


def core_sentinel() -> Callable[[], float]:
    """A function that times the sentinel, in seconds: the best of three calls after one to warm up.

    The best of three, because a cold cache slows one call and a shared core all of them.
    """
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, 64, 28, 28, generator=generator)
    weight = torch.randn(64, 64, 3, 3, generator=generator)

    def time_once() -> float:
        start = perf_counter()
        torch.conv2d(image, weight, padding=1)
        return perf_counter() - start

    def sentinel() -> float:
        time_once()
        return min(time_once() for _ in range(_CALLS))

    return sentinel


def find_quiet_s(seconds: float = _QUIET_S) -> float:
    """What the sentinel takes on an undisturbed core: its first decile over `seconds`.

    ASSUME that the core is undisturbed for a tenth of that time.
    """
    sentinel = core_sentinel()
    times_s = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        times_s.append(sentinel())
    return _first_decile(times_s)


def _first_decile(times_s: list[float]) -> float:
    return sorted(times_s)[int(len(times_s) * _QUIET_QUANTILE)]
