"""The settings to restore after an operating point: a file beside the lock of the device.

The process that sets a point and its guard keep the record locked (`flock`) by one descriptor that
they share. Restoring requires that lock. The lock of the device does not suffice: if a cleaner of
`/tmp` deletes its file, a second process can lock a new one. A deleted record can still be read by
the descriptor.

Any user can create the file, so it is not trusted: links are not followed, only a regular file with
one name is used, that of this user or root, which nobody else may write. Its values are compared
with what the device allows before they are set.
"""

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError
from opcost.files import first_line, parse_json
from opcost.values import BOOLEAN, PRINTABLE, Rule, check_values, number, optional, whole_number

_MODE = 0o644
_MOST_BYTES = 1 << 20
"""Machines with hundreds of cores have a frequency for each."""

_EXIT_S, _POLL_S = 3.0, 0.1
"""ASSUME that a killed process takes no longer to close the record after the lock of the device:
the kernel closes files one after another, and those of a GPU may take a second.
"""

_POLICY = re.compile(r"policy\d+", re.ASCII)
_FREQUENCIES = Rule(
    "an object of frequencies in kHz by the name of a policy",
    lambda value: (
        isinstance(value, dict)
        and all(_POLICY.fullmatch(name) for name in value)
        and all(type(each) is int and each > 0 for each in value.values())
    ),
)


def _checked(rule: Rule, *, default: Any = MISSING) -> Any:
    """A field whose value in a file is checked by the rule."""
    return field(default=default, metadata={"rule": rule})


class ForeignRecord(Exception):
    """The record is not this user's, or not a file as opcost writes it; the message says why."""


@dataclass(frozen=True)
class PointRecord:
    """The settings that a `process` changed to a `point` after the start of the machine, `boot`:
    the power limit to restore, None if it was not changed; the clocks that were locked and must be
    released; and the highest frequencies to restore, by the name of cpufreq's policy.
    """

    boot: str = _checked(PRINTABLE)
    process: int = _checked(whole_number(1))
    point: str = _checked(PRINTABLE)
    power_limit_w: float | None = _checked(optional(number(0, 100_000, above=True)), default=None)
    sm_clock_locked: bool = _checked(BOOLEAN, default=False)
    memory_clock_locked: bool = _checked(BOOLEAN, default=False)
    max_frequencies_khz: Mapping[str, int] | None = _checked(optional(_FREQUENCIES), default=None)


def this_boot() -> str:
    """Identifies the present start of the machine: drivers forget settings when it restarts."""
    return first_line(Path("/proc/sys/kernel/random/boot_id")) or "unknown"


@contextmanager
def new_record(path: Path) -> Iterator[int]:
    """Create an empty record, locked, and yield its descriptor; afterwards, delete it if it is
    still empty. The lock lasts until all processes that share the descriptor have closed it.

    Raises OpcostError if the record cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _MODE)
    except FileExistsError as error:
        remedy = "Inspect it; its owner or the administrator must delete it"
        raise _failed(path, "created", error, remedy) from error
    except OSError as error:
        raise _failed(path, "created", error, _space(path)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        if is_empty(descriptor):
            remove_record(path, descriptor)
        os.close(descriptor)


def write_record(path: Path, descriptor: int, record: PointRecord) -> None:
    """Write a new record to disk. Raises OpcostError, with the record empty, if it cannot be
    written completely.
    """
    try:
        overwrite(descriptor, json.dumps(asdict(record)).encode())
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, 0)
        raise _failed(path, "written", error, _space(path)) from error


def overwrite(descriptor: int, content: bytes) -> None:
    """Replace the content of a file. Raises OSError, with the file empty, unless all is written."""
    os.ftruncate(descriptor, 0)
    try:
        written = 0
        while written < len(content):  # on a full disk, the first of two writes may be short
            written += os.pwrite(descriptor, content[written:], written)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise


def is_empty(descriptor: int) -> bool:
    """Whether a record is still empty: then nothing has been set."""
    return os.fstat(descriptor).st_size == 0


def is_deleted(descriptor: int) -> bool:
    """Whether an open record was deleted."""
    return os.fstat(descriptor).st_nlink == 0


def remove_record(path: Path, descriptor: int) -> None:
    """Delete an open record; a file that has replaced it belongs to another process, and stays.

    Raises OpcostError if it cannot be deleted.
    """
    try:
        if os.path.samestat(path.lstat(), os.fstat(descriptor)):
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OpcostError(
            f"{path}, whose device is restored, cannot be deleted: {error.strerror}. Delete it"
        ) from error


def open_record(path: Path) -> int:
    """The descriptor of a record. Raises ForeignRecord if it cannot be trusted."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ForeignRecord(os.strerror(error.errno or 0)) from error
    if reason := _fault(os.fstat(descriptor)):
        os.close(descriptor)
        raise ForeignRecord(reason)
    return descriptor


def is_in_use(descriptor: int) -> bool:
    """Whether the process that made an open record, or its guard, still runs. If not, locks it."""
    end_s = time.monotonic() + _EXIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                return True
            time.sleep(_POLL_S)
        else:
            return False


def read_record(path: Path, descriptor: int) -> PointRecord | None:
    """The content of an open record; None for an empty one, whose writer has set nothing yet.

    Raises OpcostError if it is damaged.
    """
    content = os.pread(descriptor, _MOST_BYTES, 0)
    if not content:
        return None
    remedy = (
        "check the power limit and the clocks of the GPU (opcost power-limit, nvidia-smi -q "
        "-d CLOCK,POWER) or the frequencies of the processor "
        "(cpupower frequency-info), delete this file, and run again"
    )
    document = parse_json(content.decode(errors="replace"), path, remedy)
    known = fields(PointRecord)
    check_values(document, {each.name: each.metadata["rule"] for each in known}, path, remedy)
    return PointRecord(**{each.name: document[each.name] for each in known})


def _failed(path: Path, what: str, error: OSError, remedy: str) -> OpcostError:
    return OpcostError(
        f"{path}, which is to say what must be restored of the device, cannot be {what}: "
        f"{error.strerror}. {remedy}; then run again"
    )


def _space(path: Path) -> str:
    return f"This user must be able to write to {path.parent}, and its disk must have space"


def _fault(found: os.stat_result) -> str | None:
    """Why an open file is not trusted, or None."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_nlink > 1:
        return "it has a second name (a hard link)"
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write it"
    return None
