"""Free memory of this machine, the memory of a process, and the limits of control groups.

Imports only the standard library: the light process that supervises a job imports it.
"""

import math
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNLIMITED = 2**63
_UNITS = {
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(["", "k", "M", "G", "T"])},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(["K", "M", "G", "T"], 1)},
}
_SIZE = re.compile(rf"(\d+(?:\.\d+)?) *({'|'.join(_UNITS)})")
_MEMORY = Path("/proc/meminfo")
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
_VERSION_2 = "memory.max", "memory.current", "inactive_file"
"""The files of a group's limit and usage, and the statistic of its inactive file pages."""


def free_bytes() -> int:
    """Bytes that can be allocated now: MemAvailable of Linux, within the control group's limit."""
    return min(_available(), _control_group_room())


def free_bytes_of(node: Path) -> int:
    """Bytes that can be allocated now on a NUMA node with that folder in Linux, without active file
    pages, because Linux does not report which of them are free.
    """
    listed = _listed_bytes(node / "meminfo", "MemFree:", "Inactive(file):")
    return UNLIMITED if listed is None else listed


def allowed_cores() -> float:
    """Cores that control groups allow this process by a quota of time; infinite without a limit."""
    return min((_cores(*group) for group in _control_groups("cpu")), default=math.inf)


def bytes_in_huge_pages() -> int:
    """Memory of this process in huge pages; 0 if unknown."""
    return _listed_bytes(Path("/proc/self/smaps_rollup"), "AnonHugePages:") or 0


def resident_bytes(process: int) -> int:
    """Memory of a process without file pages; 0 if unknown."""
    return _listed_bytes(Path(f"/proc/{process}/status"), "RssAnon:", "RssShmem:") or 0


@contextmanager
def limited_to(free: int) -> Iterator[None]:
    """Make allocations beyond free memory fail in this process; no limit if it is unknown."""
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    held = _listed_bytes(Path("/proc/self/status"), "VmData:")
    room = UNLIMITED if held is None else held + free
    if room < UNLIMITED and (before == resource.RLIM_INFINITY or room < before):
        resource.setrlimit(resource.RLIMIT_DATA, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def gib(size: float) -> str:
    """Bytes in readable form: 1.5 GiB."""
    return f"{size / 2**30:,.3g} GiB" if size < 1000 * 2**30 else f"{size / 2**30:,.0f} GiB"


def memory_size(text: str) -> int:
    """Bytes of a text such as 2GiB. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not size:
        raise ValueError(
            f"{text!r} is no size of memory: give a number above 0 and a unit "
            f"({', '.join(_UNITS)}), such as 2GiB or 500MB"
        )
    return size


def _available() -> int:
    found = _listed_bytes(_MEMORY, "MemAvailable:")
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if found is None else found


def _listed_bytes(path: Path, *names: str) -> int | None:
    """The sum of these entries in a list of the kernel, in bytes; None if there are none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        words = [line.split() for line in lines]
        sizes = [int(each[-2]) * 1024 for each in words if {*each} & {*names}]
    except (OSError, ValueError, IndexError):  # no /proc, or not Linux's
        return None
    return sum(sizes) if sizes else None


def _control_group_room() -> int:
    """Bytes that this process's control groups, of either version, leave. Inactive file pages count
    as free.
    """
    files = {1: _VERSION_1, 2: _VERSION_2}
    rooms = [_room(group, *files[version]) for group, version in _control_groups("memory")]
    return min(rooms, default=UNLIMITED)


def _control_groups(controller: str) -> Iterator[tuple[Path, int]]:
    """This process's control groups, and all groups above them, with their version: a cluster
    limits a job by a group above it.
    """
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, version = _CONTROL_GROUP, 2
        elif controller in controllers.split(","):
            top, version = _CONTROL_GROUP / controller, 1
        else:
            continue
        own = Path(path.strip("/"))
        yield from ((top / each, version) for each in (own, *own.parents))


def _room(group: Path, limit: str, used: str, inactive: str) -> int:
    """Bytes that a group leaves; unlimited without a limit, or if its files are hidden."""
    try:
        most, held = ((group / name).read_text(encoding="utf-8").strip() for name in (limit, used))
        room = UNLIMITED if most == "max" else int(most) - int(held) + _statistic(group, inactive)
    except (OSError, ValueError):
        return UNLIMITED
    return max(0, room)


def _cores(group: Path, version: int) -> float:
    names = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    try:
        words = [word for name in names for word in (group / name).read_text("utf-8").split()]
        quota, period = map(int, words)
    except (OSError, ValueError):  # not shown, or `max`
        return math.inf
    return quota / period if quota > 0 else math.inf


def _statistic(group: Path, name: str) -> int:
    """A statistic of a group in bytes; 0 if it is hidden."""
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        return int(dict(line.split() for line in lines)[name])
    except (OSError, ValueError, KeyError):
        return 0
