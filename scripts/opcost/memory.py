"""Free memory of this machine, and the memory of a process.

Standard library only: the light process that watches a job imports it.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNLIMITED = 2**63
_MEMORY = Path("/proc/meminfo")
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Bytes that can be allocated now: MemAvailable of Linux, within the control group's limit."""
    return min(_available(), _control_group_room())


def resident_bytes(process: int) -> int:
    """Memory that a process holds, without file pages; 0 if unknown."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(
        _kibibytes(line) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem"))
    )


@contextmanager
def limited_to_free_bytes() -> Iterator[None]:
    """Make allocations beyond free memory fail in this process; no limit if it is unknown."""
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    held = _data_bytes()
    room = UNLIMITED if held is None else held + free_bytes()
    if room < UNLIMITED and (before == resource.RLIM_INFINITY or room < before):
        resource.setrlimit(resource.RLIMIT_DATA, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def gib(size: float) -> str:
    """Bytes as people read them: 1.5 GiB."""
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"


def _data_bytes() -> int | None:
    """Memory that this process has allocated, in use or not."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((_kibibytes(line) * 1024 for line in lines if line.startswith("VmData:")), None)


def _available() -> int:
    try:
        lines = _MEMORY.read_text(encoding="utf-8").splitlines()
        [available] = [_kibibytes(line) for line in lines if line.startswith("MemAvailable:")]
        return available * 1024
    except (OSError, ValueError, IndexError):  # no /proc, or not Linux's
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kibibytes(line: str) -> int:
    return int(line.split()[1])


def _control_group_room() -> int:
    try:
        limit = (_CONTROL_GROUP / "memory.max").read_text(encoding="utf-8").strip()
        used = int((_CONTROL_GROUP / "memory.current").read_text(encoding="utf-8"))
        return UNLIMITED if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return UNLIMITED
