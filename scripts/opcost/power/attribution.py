"""Which part of a device's use is that of a process and its descendants: an attribution.

A meter measures a whole device. The share of a processor's busy time, or of a GPU's memory in use,
divides its energy between processes by a rule; it does not say what each of them has drawn.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum

import numpy as np
import psutil
from numpy.typing import NDArray

_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests are in user time, too


NOBODY = 0
"""As a user: a machine is measured, and no program."""


class By(StrEnum):
    """What a device is divided by."""

    PROCESSOR_TIME = "busy processor time"
    MEMORY = "memory in use"


def processor_time_s(pid: int, without: int) -> tuple[float, float]:
    """Seconds of processor time that a process and its descendants have used, `without` one of
    them; and those that all processes of the machine have.
    """
    own_s = 0.0
    for process in _tree(pid, without):
        with suppress(psutil.Error):
            # Those of children count once they have ended.
            own_s += sum(process.cpu_times()[:4])
    every = psutil.cpu_times()._asdict()
    return own_s, sum(seconds for name, seconds in every.items() if name not in _NOT_BUSY)


def memory_bytes(held: Mapping[int, int], pid: int, without: int) -> tuple[float, float]:
    """Of the memory that each process holds, that of a process and its descendants, and all."""
    own = {process.pid for process in _tree(pid, without)}
    return float(sum(held[each] for each in own & held.keys())), float(sum(held.values()))


def share(samples: NDArray[np.void], by: By | None, start_s: float, end_s: float) -> float | None:
    """The share of own use in a window; None if it is unknown, or the device was not used."""
    known = samples[~np.isnan(samples["all_use"])]
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


def _tree(pid: int, without: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
    return [process for process in found if process.pid != without]
