"""Detect interference while a measurement runs.

Another tenant's thread on the same physical core, invisible to a virtual machine, slows this one by
up to 1.8 times, for tenths of a second to seconds. A sentinel detects it: a fixed convolution that
fits the private cache and is slow only while the core is shared. Whether a block counts is decided
by the sentinel before and after it, and by the time that its thread waited for the processor, never
by the block's own time, which would bias the result.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Bound here: a model may replace those in `time`.
from time import perf_counter, process_time, thread_time

import torch

_SLOWER = 1.25
_MAX_WAITING = 0.005
_CALLS = 3
_BASELINE_S = 3.0
_BASELINE_QUANTILE = 0.1
_MIN_LOOKS = 10


class Watch:
    """Detects whether other tenants or processes use the device: this one never, as for a device
    that no other tenant shares.
    """

    baseline_s: float | None = None
    """The sentinel's seconds on an undisturbed device, or None without a sentinel."""

    def look(self) -> bool:
        """Whether there was no interference since the last look."""
        return True

    def sentinel_times_s(self) -> list[float]:
        """The sentinel's time at each undisturbed look."""
        return []

    def lower_baseline_s(self) -> float | None:
        """The present baseline, if it is clearly lower than `baseline_s`; else None.

        In that case `baseline_s` was measured under interference, which then goes unnoticed.
        """
        return None


class CoreWatch(Watch):
    """Watches the core of this process."""

    baseline_s: float

    def __init__(
        self,
        baseline_s: float,
        sentinel: Callable[[], float] | None = None,
        clocks: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        self.baseline_s = baseline_s
        self._limit_s = _SLOWER * baseline_s
        self._sentinel = sentinel or core_sentinel()
        self._clocks = clocks or elapsed_and_waited_s
        self._looks_s: list[float] = []
        self._times_s: list[float] = []
        self._undisturbed = False
        self._now_s = self._waited_s = 0.0

    def look(self) -> bool:
        """Whether the sentinel was fast at this and the last look, and the thread never waited."""
        was_undisturbed = self._undisturbed
        elapsed_s, waiting_s = self._since_last_look()
        seconds = self._sentinel()
        self._looks_s.append(seconds)
        self._undisturbed = seconds <= self._limit_s
        self._since_last_look()
        ran = waiting_s <= _MAX_WAITING * elapsed_s
        undisturbed = was_undisturbed and self._undisturbed and ran
        if undisturbed:
            self._times_s.append(seconds)
        return undisturbed

    def _since_last_look(self) -> tuple[float, float]:
        """Elapsed seconds, and seconds for which the thread waited for a processor."""
        now_s, waited_s = self._clocks()
        elapsed = now_s - self._now_s, waited_s - self._waited_s
        self._now_s, self._waited_s = now_s, waited_s
        return elapsed

    def sentinel_times_s(self) -> list[float]:
        """The sentinel's time at each undisturbed look."""
        return self._times_s

    def lower_baseline_s(self) -> float | None:
        """The first decile of all looks, if lower than the baseline by the factor of the limit."""
        if len(self._looks_s) < _MIN_LOOKS:
            return None
        found_s = _first_decile(self._looks_s)
        return found_s if found_s * _SLOWER < self.baseline_s else None


class ThreadWatch(Watch):
    """Watches this thread on the host of a GPU: whether other processes used its core."""

    def __init__(self, clocks: Callable[[], tuple[float, float]] | None = None) -> None:
        self._clocks = clocks or elapsed_and_missed_s
        self._now_s = self._missed_s = 0.0

    def look(self) -> bool:
        """Whether other processes hardly used the thread's core since the last look."""
        now_s, missed_s = self._clocks()
        elapsed_s, missing_s = now_s - self._now_s, missed_s - self._missed_s
        self._now_s, self._missed_s = now_s, missed_s
        return missing_s <= _MAX_WAITING * elapsed_s


def elapsed_and_waited_s() -> tuple[float, float]:
    """Seconds of the clock, and seconds for which this thread was ready but not running.

    The latter is 0 where Linux does not report it.
    """
    try:
        counts = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except OSError:
        return perf_counter(), 0.0
    return perf_counter(), int(counts[1]) * 1e-9


def elapsed_and_waited_by_all_s() -> tuple[float, float]:
    """The same, for which threads of this process were: where several share the work, all of them
    wait for the one that does not run.
    """
    waited_ns = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # of a thread that has ended, or not reported
            waited_ns += int(path.read_text(encoding="ascii").split()[1])
    return perf_counter(), waited_ns * 1e-9


def elapsed_and_missed_s() -> tuple[float, float]:
    """Elapsed seconds, and seconds for which other processes used the core of this thread.

    A thread of this process that shares the core is part of the work, as autograd's thread,
    which runs the backward pass of a GPU: time of other threads counts as work. If they ran on
    another core, the second clock misses that much, and may run backwards.
    """
    elapsed_s, waited_s = elapsed_and_waited_s()
    return elapsed_s, waited_s - (process_time() - thread_time())


def core_sentinel() -> Callable[[], float]:
    """A function that returns the sentinel's time in seconds: the minimum of three warm calls.

    A cold cache slows the first calls, after a model about five; a slow core slows all of them.
    """
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, 64, 28, 28, generator=generator)
    weight = torch.randn(64, 64, 3, 3, generator=generator)

    def time_once() -> float:
        start = perf_counter()
        torch.conv2d(image, weight, padding=1)
        return perf_counter() - start

    def sentinel() -> float:
        seconds = time_once()
        while (next_s := time_once()) < seconds:
            seconds = next_s
        return min(time_once() for _ in range(_CALLS))

    return sentinel


def find_baseline_s(seconds: float = _BASELINE_S) -> float:
    """The sentinel's time on an undisturbed core: the first decile over `seconds`.

    ASSUME that the core is undisturbed for a tenth of that time.
    """
    sentinel = core_sentinel()
    times_s = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        times_s.append(sentinel())
    return _first_decile(times_s)


def _first_decile(times_s: list[float]) -> float:
    return sorted(times_s)[int(len(times_s) * _BASELINE_QUANTILE)]
