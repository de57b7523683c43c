"""Attribution of a device's use to a process and its descendants.

A meter measures a whole device. Its energy is divided in proportion to processor time, or to GPU
memory in use; this does not measure what each process draws.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests are in user time, too

PROCESSOR_TIME, MEMORY = "busy processor time", "memory in use"
"""The quantities in proportion to which energy is attributed."""

NOBODY, CHILDREN = 0, -1
"""The `user` of a measurement of the whole machine, and of one of the children of the process that
measures, whose own memory does not count.
"""


def busy_s() -> float:
    """CPU seconds of all processes up to now."""
    every = psutil.cpu_times()._asdict()
    return sum(seconds for name, seconds in every.items() if name not in _NOT_BUSY)


class _Used(NamedTuple):
    """The parent of a process; CPU seconds of it and of its children that have been waited for."""

    parent: int
    seconds: float


class User:
    """A process and its descendants, also those that were reparented, `without` one; of their
    resident memory, with `only_children`, that of the descendants.
    """

    def __init__(self, pid: int, without: int, only_children: bool = False) -> None:
        self._pid, self._without, self._only_children = pid, without, only_children
        self._known: list[psutil.Process] = []
        self._last: dict[int, _Used] = {}
        self._ended_s = 0.0

    def processor_time_s(self) -> tuple[float, float]:
        """CPU seconds of the user up to now, and of all processes."""
        found: dict[int, _Used] = {}
        for process in self._processes():
            with suppress(psutil.Error), process.oneshot():
                found[process.pid] = _Used(process.ppid(), sum(process.cpu_times()[:4]))
        for pid in self._last.keys() - found.keys():
            heir = self._last[pid].parent
            while heir in self._last and heir not in found:
                heir = self._last[heir].parent
            if heir not in found:  # otherwise an ancestor that waited for it has its time
                self._ended_s += self._last[pid].seconds
        self._last = found
        return self._ended_s + sum(each.seconds for each in found.values()), busy_s()

    def resident_bytes(self) -> float:
        """Memory of the machine that the user's processes hold; shared pages count for each. NaN
        without a process.
        """
        found = []
        for process in self._processes():
            with suppress(psutil.Error):
                if process.pid != self._pid or not self._only_children:
                    found.append(process.memory_info().rss)
        return float(sum(found)) if found else math.nan

    def memory_bytes(self, held: Mapping[int, int]) -> tuple[float, float]:
        """Memory held by the user, and by all processes."""
        own = {process.pid for process in self._processes()}
        return float(sum(held[each] for each in own & held.keys())), float(sum(held.values()))

    def _processes(self) -> list[psutil.Process]:
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


def share(samples: NDArray[np.void], by: str, start_s: float, end_s: float) -> float | None:
    """The user's share in a window; None if too few samples know it, or the device was unused."""
    known = samples[~np.isnan(samples["all_use"]) & ~np.isnan(samples["own_use"])]
    if len(known) < 2:
        return None
    if by == PROCESSOR_TIME:
        own, every = (
            np.diff(np.interp([start_s, end_s], known["time_s"], known[name]))[0]
            for name in ("own_use", "all_use")
        )
    else:
        inside = known[(known["time_s"] >= start_s - 1) & (known["time_s"] <= end_s + 1)]
        own, every = (inside[name].sum() for name in ("own_use", "all_use"))
    return min(max(float(own / every), 0.0), 1.0) if every > 0 else None
