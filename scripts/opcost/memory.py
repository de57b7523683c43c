"""How much memory this machine has free, and how much of it a process uses.

Standard library alone: the light process that watches a job imports it.
"""

import os
from pathlib import Path

UNLIMITED = 2**63


def free_bytes() -> int:
    """What can be allocated now: as Linux estimates it, within a control group's limit."""
    return min(_available(), _control_group_room())


def resident_bytes(process: int) -> int:
    """The memory that a process holds, without file pages; 0 where that is not known."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(
        _kibibytes(line) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem"))
    )


def gib(size: float) -> str:
    """Bytes as people read them: 1.5 GiB."""
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return _kibibytes(line) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kibibytes(line: str) -> int:
    return int(line.split()[1])


def _control_group_room() -> int:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8"))
    except OSError:
        return UNLIMITED
    return UNLIMITED if limit == "max" else max(0, int(limit) - used)
