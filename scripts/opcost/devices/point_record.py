"""What is to be restored of a device whose operating point was set: a file beside its lock.

Any user can create the file, so it is not trusted: links are not followed, only a regular file with
one name is used, that of this user or root, which nobody else may write. Its values are compared
with what the device allows before they are set.
"""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError
from opcost.files import first_line, parse_json
from opcost.values import BOOLEAN, PRINTABLE, Rule, check_values, number, optional, whole_number

_MODE = 0o644
_MOST_BYTES = 4096
_FREQUENCIES = Rule(
    "an object of whole numbers",
    lambda value: isinstance(value, dict) and all(type(each) is int for each in value.values()),
)
_RULES = {
    "boot": PRINTABLE,
    "process": whole_number(1),
    "point": PRINTABLE,
    "power_limit_w": optional(number(0, 100_000, above=True)),
    "sm_clock_locked": BOOLEAN,
    "memory_clock_locked": BOOLEAN,
    "max_frequencies_khz": optional(_FREQUENCIES),
}
_ABSENT: Mapping[str, Any] = {"max_frequencies_khz": None}
"""Keys of later versions, with their values in files without them."""


class ForeignRecord(Exception):
    """The record is not this user's, or no file as opcost writes it; the message says what."""


@dataclass(frozen=True)
class PointRecord:
    """The start of the machine, `boot`, after which a `process` set a `point`, for messages; the
    power limit to restore, None if it was not changed; which clocks were locked and are to be
    released; and the highest frequencies to restore, by the name of cpufreq's policy.
    """

    boot: str
    process: int
    point: str
    power_limit_w: float | None = None
    sm_clock_locked: bool = False
    memory_clock_locked: bool = False
    max_frequencies_khz: Mapping[str, int] | None = None


def this_boot() -> str:
    """What identifies the present start of the machine: with it, drivers forget what was set."""
    return first_line(Path("/proc/sys/kernel/random/boot_id")) or "unknown"


def write_record(path: Path, record: PointRecord) -> None:
    """Write a record that is not there yet, to disk. Raises OpcostError if it cannot be written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _MODE)
    except OSError as error:
        raise OpcostError(
            f"{path}, which is to say what must be restored of the device, cannot be created: "
            f"{error.strerror}. Inspect it; its owner or the administrator must delete it, and "
            f"this user must be able to write to {path.parent}; then run again"
        ) from error
    try:
        os.write(descriptor, json.dumps(asdict(record)).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_record(path: Path) -> PointRecord | None:
    """The record; None for an empty one, whose writer has set nothing yet.

    Raises ForeignRecord if it cannot be trusted, and OpcostError if it is damaged.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ForeignRecord(os.strerror(error.errno or 0)) from error
    try:
        if reason := _fault(os.fstat(descriptor)):
            raise ForeignRecord(reason)
        content = os.pread(descriptor, _MOST_BYTES, 0)
    finally:
        os.close(descriptor)
    if not content:
        return None
    remedy = (
        "check the power limit and the clocks of the GPU (opcost power-limit, nvidia-smi -q "
        "-d CLOCK,POWER) or the frequencies of the processor "
        "(cpupower frequency-info), delete this file, and run again"
    )
    document = parse_json(content.decode(errors="replace"), path, remedy)
    document = {**_ABSENT, **document}
    check_values(document, _RULES, path, remedy)
    return PointRecord(**{name: document[name] for name in _RULES})


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
