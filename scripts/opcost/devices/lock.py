"""What keeps measurements apart: the lock of a device, and cores of their own.

One measurement at a time uses a device, across all processes and users of this machine. The lock is
a `flock` on a file in `/tmp`, regardless of TMPDIR: users and cluster jobs may share a device but
not a temporary folder. An abstract Unix socket needs no file, but is local to a network namespace,
of which containers usually have their own. Containers exclude each other if they share `/tmp` or
the folder `OPCOST_LOCKS`; otherwise, the scheduler that allocates devices must do so.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from opcost.devices.operating_point import AS_IT_IS, Held, restore_left
from opcost.errors import OpcostError
from opcost.target import OperatingPoint
from opcost.terminal import announce, printable

FOLDER = Path(os.environ.get("OPCOST_LOCKS", "/tmp"))
"""The folder of the lock files."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_AT = ", at the operating point "
_POLL_S = 0.2
_READ = 4096
_SHOWN = 200

_MEASURING = "OPCOST_MEASURING_CORES"
_ALL = "OPCOST_ALL_CORES"


@contextmanager
def exclusive(
    device_key: str, purpose: str, timeout_s: float = 3600, point: OperatingPoint = AS_IT_IS
) -> Iterator[Held]:
    """Hold the host-wide lock of a device, which the kernel releases when the process ends.

    Announces the holder while waiting. If a killed process has left the device at another operating
    point, restores it first. `point` is the caller's, written for the next holder. Raises
    OpcostError if the device cannot be restored, after `timeout_s`, and if the lock file cannot be
    used.
    """
    path = FOLDER / f"opcost-{device_key}.lock"
    descriptor = _open(path)
    try:
        _lock(path, descriptor, timeout_s)
        before = os.pread(descriptor, _READ, 0).decode(errors="replace")
        where = f"{_AT}{point}" if point else ""
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # on a full disk, only those who wait miss the text
            os.pwrite(descriptor, f"process {os.getpid()}, {purpose}{where}".encode(), 0)
        held = Held(device_key, descriptor, path, before.partition(_AT)[2])
        restore_left(held)
        yield held
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the file, which all users must be able to lock; create it if needed."""
    mask = os.umask(0)
    try:
        with suppress(FileNotFoundError):  # with O_CREAT, a sticky folder refuses files of others
            return os.open(path, _FLAGS)
        return os.open(path, _FLAGS | os.O_CREAT, 0o666)
    except OSError as error:
        raise OpcostError(
            f"the lock of the device, {path}, cannot be opened: {error.strerror}. All users of "
            f"this machine must be able to write to it and to {path.parent}: have its owner or the "
            "administrator delete it, or set OPCOST_LOCKS to another folder; then run again"
        ) from error
    finally:
        os.umask(mask)


def _lock(path: Path, descriptor: int, timeout_s: float) -> None:
    """Lock an open file. Announces and waits for its holder."""
    deadline_s = time.monotonic() + timeout_s
    announced = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            text = os.pread(descriptor, _SHOWN, 0).decode(errors="replace")
            holder = printable(text) or "another process"
        except OSError as error:  # file systems without locks
            raise OSError(error.errno, error.strerror, str(path)) from error
        if time.monotonic() > deadline_s:
            raise OpcostError(
                f"the device has been held for {timeout_s:.0f} s by {holder} (lock {path}): "
                "wait for it or end it, then run again"
            )
        if not announced:
            announce(f"waiting for the device, held by {holder}")
            announced = True
        time.sleep(_POLL_S)


def reserve(threads: Mapping[str, int]) -> None:
    """Keep this process and its children off the cores that measurements need.

    `threads` is the number of cores for each device; devices get different cores. Nothing is
    reserved if no core would be left, or if the system does not support pinning.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    free, reserved = list(cores), {}
    for device, count in sorted(threads.items()):
        free, reserved[device] = free[:-count], free[-count:]
    if not free:
        return
    os.environ[_ALL] = json.dumps(cores)
    os.environ[_MEASURING] = json.dumps(reserved)
    os.sched_setaffinity(0, free)


def reserved_for(device: str) -> list[int] | None:
    """The cores that are reserved for measurements on a device, if any."""
    cores: list[int] | None = json.loads(os.environ.get(_MEASURING, "{}")).get(device)
    return cores


def measure_here(device: str) -> None:
    """Pin this process to the cores that are reserved for a device, if any."""
    if reserved := reserved_for(device):
        os.sched_setaffinity(0, reserved)


def work_anywhere() -> None:
    """Let this process use all cores; only while no measurement runs."""
    if cores := os.environ.get(_ALL):
        os.sched_setaffinity(0, json.loads(cores))
