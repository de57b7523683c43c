"""The guard: a process that sets the operating point of a device, and restores what was set before.

    python -m opcost.devices.point_guard TASK

It holds the locks of the device and of the record, inherited from its parent. Other tasks restore
settings that were left behind, or wait until the temperature is steady. It answers on standard
output, a line of JSON for each step: that the point is set, and later that it is restored, with
`notes` for the user, or an `error`. It restores when its input or its parent ends: forks of the
parent may keep the input open. It ignores signals that end a whole process group, so that it ends
after its parent.
"""

import json
import math
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from opcost.devices.kinds import kind_locked_as
from opcost.devices.point_record import (
    ForeignRecord,
    PointRecord,
    is_deleted,
    is_in_use,
    open_record,
    read_record,
    remove_record,
    this_boot,
    write_record,
)
from opcost.errors import OpcostError
from opcost.target import OperatingPoint

_LOOKS, _STEADY_C = 10, 1.0
"""The temperature is read this many times, and is steady if it changes by at most this."""


class Settable(Protocol):
    """Sets operating points of a kind of device; made from the key of a lock."""

    def temperature_c(self) -> float | None:
        """Degrees Celsius; None if the device does not report it."""

    def check(self, point: OperatingPoint) -> None:
        """Raise OpcostError if the device does not allow a point."""

    def record(self, point: OperatingPoint, process: int) -> PointRecord:
        """A record of the settings that a point set by a process changes."""

    def set(self, point: OperatingPoint, record: PointRecord) -> Iterator[PointRecord]:
        """Set a point. Yields the record to restore if the next step fails. Raises OpcostError if
        anything cannot be set.
        """

    def restore(self, record: PointRecord) -> list[str]:
        """Restore the settings of a record. Returns notes for the user. Raises OpcostError if a
        setting cannot be restored, after restoring the others.
        """


def main() -> None:
    """Do the task that the first argument describes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    task = json.loads(sys.argv[1])
    key, path = task["key"], Path(task["record"])
    try:
        if "point" in task:
            _keep(key, path, task["descriptor"], OperatingPoint(**task["point"]), task["parent"])
        elif "settle" in task:
            _settle(_device(key), task["parent"], *task["settle"])
            _say({})
        else:
            _say({"restored": _restore_left(key, path, task["descriptor"])})
    except OpcostError as error:
        _say({"error": str(error)})
    except Exception as error:  # without an answer, the parent would assume that it was killed
        _say({"error": f"the process that sets the device failed: {type(error).__name__}: {error}"})


def _keep(key: str, path: Path, descriptor: int, point: OperatingPoint, parent: int) -> None:
    """Set a point until the parent ends. `descriptor` is that of a new record."""
    device = _device(key)
    device.check(point)
    record = undo = device.record(point, parent)
    write_record(path, descriptor, record)
    try:
        for undo in device.set(point, record):  # noqa: B007  used if the next step fails
            pass
    except Exception:
        _restore(device, path, descriptor, undo)
        raise
    _say({})
    _ended(parent)
    _say({"notes": _restore(device, path, descriptor, record)})


def _device(key: str) -> Settable:
    """The device of a lock."""
    found: Settable = resolve_name(kind_locked_as(key).settable)(key)
    return found


def _restore(device: Settable, path: Path, descriptor: int, record: PointRecord) -> list[str]:
    """Restore the settings of a record, and delete it. Returns notes for the user."""
    deleted = is_deleted(descriptor)
    try:
        notes = device.restore(record)
    except OpcostError as error:
        raise OpcostError(
            f"the operating point ({record.point}) could not be restored: {error}. "
            + (
                f"Restore it yourself: {path}, which said what to restore, was deleted"
                if deleted
                else f"The next run tries again, because {path} says what is to be restored"
            )
            + f"; until then, the device is not as it was{_before(record)}"
        ) from error
    remove_record(path, descriptor)
    if deleted:
        notes = [
            *notes,
            f"{path} was deleted while the device was at the operating point ({record.point}), as "
            f"by a cleaner of {path.parent}. If the lock beside it was deleted as well, another "
            "process may have used the device meanwhile, and its power limit, clocks or "
            "frequencies must be checked. Have the cleaner leave opcost-* alone",
        ]
    return notes


def _restore_left(key: str, path: Path, descriptor: int | None) -> str:
    """Restore the settings of a record that was left behind: by the parent, whose first guard was
    killed, if there is a descriptor. Returns a line about it.
    """
    if descriptor is None:
        try:
            descriptor = open_record(path)
        except ForeignRecord as reason:
            return (
                f"{path} is not used: {reason}. If it is another user's, a study of theirs may "
                "have left the device at another power limit, clock or frequency: have them run "
                "opcost on it"
            )
        if is_in_use(descriptor):
            raise _held(path, read_record(path, descriptor))
        if is_deleted(descriptor):  # between opening and locking it
            return "another process has just restored the device"
    record = read_record(path, descriptor)
    if record is None:
        remove_record(path, descriptor)
        return "an earlier process was killed before it had set an operating point"
    if record.boot != this_boot():
        remove_record(path, descriptor)
        return (
            f"process {record.process} had left the device at another operating point "
            f"({record.point}); the machine has restarted since, and forgot it"
        )
    notes = _restore(_device(key), path, descriptor, record)
    line = (
        f"process {record.process} was killed, or its guard, and had left the device at another "
        f"operating point ({record.point}): restored{_before(record)}"
    )
    return ". ".join([line, *notes])


def _held(path: Path, record: PointRecord | None) -> OpcostError:
    process = "another process" if record is None else f"process {record.process}"
    point = "" if record is None else f" ({record.point})"
    return OpcostError(
        f"{process}, or its guard, holds the device at another operating point{point}, although "
        f"its lock was deleted, as by a cleaner of {path.parent}: wait for it or end it, then run "
        "again"
    )


def _before(record: PointRecord) -> str:
    limit = record.power_limit_w
    return "" if limit is None else f" (power limit {limit:g} W)"


def _settle(device: Settable, parent: int, steady_s: float, most_s: float) -> None:
    """Wait until the temperature has been steady for `steady_s`, for at most `most_s`, and not
    after the parent ends, or for a device that reports no temperature.
    """
    seen_c: list[float] = []
    for _ in range(math.ceil(most_s / steady_s * _LOOKS)):
        if (now_c := device.temperature_c()) is None:
            return
        seen_c.append(now_c)
        lately = seen_c[-_LOOKS - 1 :]
        if len(lately) > _LOOKS and max(lately) - min(lately) <= _STEADY_C:
            return
        if _ended(parent, steady_s / _LOOKS):
            return


def _ended(parent: int, within_s: float | None = None) -> bool:
    """Wait until the input or the parent ends. Returns whether that was within the time."""
    try:
        end = os.pidfd_open(parent)
    except ProcessLookupError:
        return True
    try:
        # Nothing is ever written to the input: it is ready when it ends.
        return os.getppid() != parent or bool(select.select([0, end], [], [], within_s)[0])
    finally:
        os.close(end)


def _say(document: Mapping[str, Any]) -> None:
    with suppress(OSError):  # the parent may have ended
        os.write(1, json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    main()
