"""One measurement at a time on a device, across all processes and users of this machine.

The lock is a `flock` on a file in `/tmp`, regardless of TMPDIR: users and cluster jobs may share a
device but not a temporary folder. An abstract Unix socket needs no file, but is local to a network
namespace, of which containers usually have their own, and would not exclude earlier versions of
opcost, which lock the same file. Containers exclude each other if they share `/tmp` or the folder
`OPCOST_LOCKS`; otherwise, the scheduler that allocates devices must do so.

Any user can create the file, so it is not trusted: links are not followed, only a regular file with
one name is used, and only if it is empty or has opcost's content, which is shown as a literal. Any
user can hold the lock, which only delays measurements.
"""

import fcntl
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opcost.devices.operating_point import AS_IT_IS, restore_left
from opcost.devices.point_record import overwrite
from opcost.errors import OpcostError
from opcost.target import OperatingPoint
from opcost.terminal import announce

FOLDER = Path(os.environ.get("OPCOST_LOCKS", "/tmp"))
"""The folder of the lock files."""

_MODE = 0o666
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KEY = re.compile(r"[\w:.-]{1,100}", re.ASCII)
_SHOWN = 200
_READ = 4096
_AT = ", at the operating point "
_POLL_S = 0.2


@dataclass(frozen=True)
class Held:
    """The lock of a device that this process holds: the device's key, and the locked file with its
    descriptor.
    """

    key: str
    descriptor: int
    path: Path
    point_before: str
    """The operating point that the previous holder wrote; empty if it had none."""

    @property
    def record(self) -> Path:
        """The file with the settings to restore (point_record.py)."""
        return self.path.with_suffix(".point")


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
    if not _KEY.fullmatch(device_key):
        raise OpcostError(
            f"the device file names the lock {device_key!r}, but only letters, digits and _:.- are "
            "allowed; delete the device file and run again"
        )
    path = FOLDER / f"opcost-{device_key}.lock"
    descriptor = _locked(path, timeout_s)
    try:
        before = os.pread(descriptor, _READ, 0).decode(errors="replace")
        where = f"{_AT}{point}" if point else ""
        try:
            overwrite(descriptor, f"process {os.getpid()}, {purpose}{where}".encode())
        except OSError as error:
            raise OpcostError(
                f"the lock of the device, {path}, cannot be written: {error.strerror}. Free space "
                f"in {path.parent}, then run again"
            ) from error
        held = Held(device_key, descriptor, path, before.partition(_AT)[2])
        restore_left(held)
        yield held
    finally:
        os.close(descriptor)


def _locked(path: Path, timeout_s: float) -> int:
    """The descriptor of the locked file."""
    deadline_s = time.monotonic() + timeout_s
    announced = False
    while True:
        descriptor = _open(path)
        holder = _lock(path, descriptor)
        if holder is None and _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)
        if holder is None:  # the file was deleted meanwhile, as by a cleaner of /tmp
            continue
        if time.monotonic() > deadline_s:
            raise OpcostError(
                f"the device has been held for {timeout_s:.0f} s by {holder} (lock {path}): "
                "wait for it or end it, then run again"
            )
        if not announced:
            announce(f"waiting for the device, held by {holder}")
            announced = True
        time.sleep(_POLL_S)


def _lock(path: Path, descriptor: int) -> str | None:
    """Lock an open file. Returns None, or the holder according to the file's untrusted content."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, _SHOWN, 0).decode(errors="replace")
        if re.fullmatch(r"process \d+, [ -~]*", text):
            return text
        return repr(text) if text else "another process"
    except OSError as error:  # file systems without locks
        raise OSError(error.errno, error.strerror, str(path)) from error
    return None


def _open(path: Path) -> int:
    """Open the file, creating it if needed, and check that it can be a lock."""
    try:  # opening another user's file with O_CREAT fails in a sticky folder
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return _create(path)
    except OSError as error:
        raise _unusable(path, os.strerror(error.errno or 0)) from error
    reason = _fault(descriptor)
    if reason is not None:
        os.close(descriptor)
        raise _unusable(path, reason)
    return descriptor


def _create(path: Path) -> int:
    mask = os.umask(0)  # other users must be able to lock the file
    try:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        return _open(path)
    except OSError as error:
        raise OpcostError(
            f"the lock of the device, {path}, cannot be created: {error.strerror}. All users of "
            f"this machine must be able to write to {path.parent}"
        ) from error
    finally:
        os.umask(mask)


def _fault(descriptor: int) -> str | None:
    """Why an open file cannot be used as a lock, or None."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_nlink > 1:
        return "it has a second name (a hard link)"
    text = os.pread(descriptor, 8, 0)
    return None if not text or text == b"process " else "opcost did not write its content"


def _unusable(path: Path, reason: str) -> OpcostError:
    try:
        found = path.lstat()
    except OSError:
        owner = "unknown"
    else:
        owner = f"{_user(found.st_uid)}, mode {stat.filemode(found.st_mode)}"
    return OpcostError(
        f"the lock of the device, {path}, cannot be used: {reason} (owner {owner}). Inspect it; "
        "its owner or the administrator must delete it; then run again"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
