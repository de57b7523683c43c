"""Attribution of a device's use to a process and its descendants.

A meter measures a whole device. Its energy is divided in proportion to processor time, or to GPU
memory in use; this does not measure what each process draws.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests are in user time, too

NOBODY = 0
"""The `user` of a measurement of the whole machine."""


class By(StrEnum):
    """The quantity in proportion to which energy is attributed."""

    PROCESSOR_TIME = "busy processor time"
    MEMORY = "memory in use"


class _Times(NamedTuple):
    """Parent, CPU time of the process, and CPU time of reaped children (cutime)."""

    parent: int
    own_s: float = 0.0
    ended_s: float = 0.0


class User:
    """A process and its descendants, also those that were reparented, `without` one.

    Processor time accumulates: it includes processes that have ended.
    """

    def __init__(self, pid: int, without: int) -> None:
        self._pid, self._without = pid, without
        self._own_s = 0.0
        self._known: list[psutil.Process] = []
        self._times: dict[psutil.Process, _Times] = {}
        self._counted_s: dict[psutil.Process, float] = defaultdict(float)

    def processor_time_s(self) -> tuple[float, float]:
        """CPU seconds of the user, and of all processes."""
        last, self._times = self._times, self._read()
        self._count_ended(last)
        for process, now in self._times.items():
            before = last.get(process, _Times(now.parent))
            ended_s = now.ended_s - before.ended_s
            counted_s = min(self._counted_s[process], ended_s)
            self._counted_s[process] -= counted_s
            self._own_s += now.own_s - before.own_s + ended_s - counted_s
        every = psutil.cpu_times()._asdict()
        all_s = sum(seconds for name, seconds in every.items() if name not in _NOT_BUSY)
        return self._own_s, all_s

    def memory_bytes(self, held: Mapping[int, int]) -> tuple[float, float]:
        """Memory held by the user, and by all processes."""
        own = {process.pid for process in self._processes()}
        return float(sum(held[each] for each in own & held.keys())), float(sum(held.values()))

    def _count_ended(self, last: Mapping[psutil.Process, _Times]) -> None:
        """Remember the time already counted for ended processes: when they are reaped, it appears
        again in the time of their nearest ancestor.
        """
        by_pid = {process.pid: process for process in last}
        for process in last.keys() - self._times.keys():
            heir = by_pid.get(last[process].parent)
            while heir is not None and heir not in self._times:
                heir = by_pid.get(last[heir].parent)
            if heir is not None:
                self._counted_s[heir] += last[process].own_s + last[process].ended_s
            self._counted_s.pop(process, None)

    def _read(self) -> dict[psutil.Process, _Times]:
        found = {}
        for process in self._processes():
            with suppress(psutil.Error), process.oneshot():
                user_s, system_s, *ended_s = process.cpu_times()[:4]
                found[process] = _Times(process.ppid(), user_s + system_s, sum(ended_s))
        return found

    def _processes(self) -> list[psutil.Process]:
        """Ancestors come before descendants."""
        found: dict[psutil.Process, None] = {}
        with suppress(psutil.Error):
            found |= _tree(psutil.Process(self._pid))
        for known in self._known:
            if known not in found and known.is_running():
                with suppress(psutil.Error):
                    found |= _tree(known)
        self._known = [process for process in found if process.pid != self._without]
        return self._known


def _tree(root: psutil.Process) -> dict[psutil.Process, None]:
    return dict.fromkeys([root, *root.children(recursive=True)])


def share(known: NDArray[np.void], by: By | None, start_s: float, end_s: float) -> float | None:
    """The user's share in a window, from samples with known use; None if there are too few, or the
    device was not used.
    """
    if by is None or len(known) < 2:
        return None
    if by == By.PROCESSOR_TIME:
        own, every = (
            np.diff(np.interp([start_s, end_s], known["time_s"], known[name]))[0]
            for name in ("own_use", "all_use")
        )
    else:
        inside = known[(known["time_s"] >= start_s - 1) & (known["time_s"] <= end_s + 1)]
        own, every = (inside[name].sum() for name in ("own_use", "all_use"))
    return min(max(float(own / every), 0.0), 1.0) if every > 0 else None
