"""Operating points: power limit and locked clocks of a GPU, the highest frequency of a processor.

A point is set while the lock of the device is held, by a guard, which is a process of its own
(`python -m opcost.devices.operating_point TASK`). It restores the previous settings when the
process that started it asks it to, or ends in any way: it ignores signals that end a process group.
It also holds the lock, so that no other process gets the device before. The settings to restore are
in a file beside the lock, the record: if the guard is killed as well, the next process that takes
the lock has another guard restore them. What another program has set meanwhile stays.

The process that measures does not call NVML, because a hanging driver would hold it up. The guard
answers on standard output, a line of JSON when the point is set and one when it is restored, with
`notes` for the user or an `error`.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any, Protocol, cast

from opcost.devices.kinds import kind_locked_as
from opcost.devices.machine import python_path
from opcost.errors import OpcostError
from opcost.files import first_line
from opcost.target import OperatingPoint
from opcost.terminal import announce, tell

_ANSWER_S = 180.0
"""Seconds until a driver counts as hanging: loading it takes some, settling up to `_SETTLE_S`."""

_STEADY_S, _SETTLE_S = 10.0, 60.0
"""After a switch, the device's temperature must be steady for the first time; ASSUME that waiting
longer than the second changes little."""

_STEADY_C = 1.0
"""A temperature is steady if it changes by at most this."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Identifies the start of the machine: drivers forget settings when it restarts."""

AS_IT_IS = OperatingPoint()


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
        """The file with the settings to restore."""
        return self.path.with_suffix(".point")


class Settable(Protocol):
    """Reads and sets the parts of operating points on a device; made from the key of its lock."""

    def temperature_c(self) -> float | None:
        """Degrees Celsius; None if the device does not report it."""

    def check(self, point: OperatingPoint) -> None:
        """Raise OpcostError if the device does not allow a point."""

    def present(self, name: str) -> Any:
        """The present value of a part, as JSON; None if it cannot be read."""

    def set(self, name: str, value: float) -> None:
        """Set a part. Raises OpcostError, with nothing changed, if it cannot be set."""

    def restore(self, name: str, before: Any, value: float) -> str | None:
        """Restore what `present` returned before `value` was set. Raises OpcostError if it cannot
        be restored. What something else has set since stays, and is returned.
        """


@contextmanager
def applied(held: Held, point: OperatingPoint, settle: bool = False) -> Iterator[None]:
    """Set an operating point in this block; afterwards, restore the previous settings, except those
    that another program has changed meanwhile.

    With `settle`, and if the previous holder of the lock measured at another point, first waits
    until the temperature of the device is steady. Clocks that were locked before cannot be read:
    they are released. If restoring fails, this prints an error, and the next process that takes the
    lock tries again.

    Raises OpcostError, with nothing changed, if the device does not allow a value, if this user
    may not set it, and if the device then reports another one.
    """
    switched = settle and held.point_before != str(point)
    if switched:
        to = str(point) or "as it is without one"
        announce(f"[operating point] {to}: waiting until the temperature is steady")
    if not point and not switched:
        yield
        return
    guard = _start_guard(held, point, settle=switched)
    try:
        _first_answer(guard)
        yield
    finally:
        _end(guard, held)


def restore_left(held: Held) -> None:
    """Restore settings that a process left behind when it was killed with its guard, and announce
    that. Raises OpcostError if they cannot be restored.
    """
    if not os.path.lexists(held.record):
        return
    guard = _start_guard(held, AS_IT_IS, settle=False)
    try:
        for note in _first_answer(guard):
            announce(note)
    finally:
        guard.communicate()


def _start_guard(held: Held, point: OperatingPoint, *, settle: bool) -> subprocess.Popen[str]:
    task = {
        **{"key": held.key, "record": str(held.record), "parent": os.getpid()},
        **{"point": asdict(point), "settle_s": [_STEADY_S, _SETTLE_S] if settle else None},
    }
    # -P: a file in this folder may be named like a standard module.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "opcost.devices.operating_point", json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it may outlive the readers of this process's stderr
        text=True,
        pass_fds=[held.descriptor],
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,  # not for signals of the terminal
    )


def _first_answer(guard: subprocess.Popen[str]) -> list[str]:
    """The notes of the guard's first answer. Raises OpcostError with its error."""
    output = cast(IO[str], guard.stdout)
    ready, _, _ = select.select([output], [], [], _ANSWER_S)
    if not (said := output.readline() if ready else ""):
        guard.kill()
        raise OpcostError(
            f"the guard of the operating point was killed (exit code {guard.wait()}), or the "
            f"driver has not answered for {_ANSWER_S:g} s. Check that `nvidia-smi` responds, else "
            "reload the driver or restart the machine"
        )
    return _notes(said)


def _end(guard: subprocess.Popen[str], held: Held) -> None:
    """Have the guard restore the device; if it was killed, another one does. Prints errors: what
    was measured is valid.
    """
    try:
        try:
            said, _ = guard.communicate("restore\n", timeout=_ANSWER_S)
        except subprocess.TimeoutExpired:  # the driver hangs
            guard.kill()
            said, _ = guard.communicate()
        if guard.returncode:
            restore_left(held)
        elif said:  # of a guard that was interrupted while it set the point, both answers
            for note in _notes(said.splitlines()[-1]):
                tell(f"opcost: {note}")
    except OpcostError as error:
        tell(f"opcost: {error}")


def _notes(answer: str) -> list[str]:
    document = json.loads(answer)
    if "error" in document:
        raise OpcostError(document["error"])
    return list(document["notes"])


def main() -> None:
    """The guard: do the task that the first argument describes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    task = json.loads(sys.argv[1])
    record, point, parent = Path(task["record"]), OperatingPoint(**task["point"]), task["parent"]
    try:
        device: Settable = resolve_name(kind_locked_as(task["key"]).settable)(task["key"])
        notes = _restore_left(device, record)
        before = _set(device, point, record, parent)
        if task["settle_s"]:
            _settle(device, parent, *task["settle_s"])
        _say({"notes": notes})
        if point:
            _ended(parent)
            _say({"notes": _restore(device, before, asdict(point), record)})
    except Exception as error:  # without an answer, the parent would assume that it was killed
        ours = isinstance(error, OpcostError)
        fault = str(error) if ours else f"the guard failed: {type(error).__name__}: {error}"
        left = f". The device is not as it was: {record} says what the next run restores"
        _say({"error": fault + (left if os.path.lexists(record) else "")})


def _set(device: Settable, point: OperatingPoint, record: Path, parent: int) -> dict[str, Any]:
    """Set a point, and write the record before. Returns the previous values by name."""
    wanted = {name: value for name, value in asdict(point).items() if value is not None}
    if not wanted:
        return {}
    device.check(point)
    before = {name: device.present(name) for name in wanted}
    head = {"boot": first_line(_BOOT), "process": parent, "point": str(point), "set": wanted}
    _write(record, head, before)
    done = {}
    try:
        for name, value in wanted.items():
            device.set(name, value)
            done[name] = before[name]
    except Exception:
        _restore(device, done, wanted, record)
        raise
    return before


def _restore(
    device: Settable, before: Mapping[str, Any], values: Mapping[str, Any], record: Path
) -> list[str]:
    """Restore what was before these values, as far as possible, and delete the record. Returns
    notes on what stays, because something else has set it since.
    """
    faults, stays = [], []
    for name, value in before.items():
        try:
            if other := device.restore(name, value, values[name]):
                stays.append(f"{name} stays {other}, which another program or the driver has set")
        except OpcostError as error:
            faults.append(f"{name} could not be restored{_watts(name, value)}: {error}")
    if faults:
        raise OpcostError("; ".join(faults))
    record.unlink(missing_ok=True)
    return stays


def _restore_left(device: Settable, record: Path) -> list[str]:
    """Restore what a record says that was left behind. Returns notes for the user."""
    try:
        if record.lstat().st_uid not in (os.geteuid(), 0):
            return [
                f"{record} is another user's, and is not used: a study of theirs may have left the "
                "device at another power limit, clock or frequency. Have them run opcost on it"
            ]
        known = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError:  # the disk was full, or the writer was killed
        record.unlink()
        return ["an earlier process ended before it had set an operating point"]
    left = (
        f"process {known['process']} had left the device at another operating point "
        f"({known['point']})"
    )
    if known["boot"] != first_line(_BOOT):
        record.unlink()
        return [f"{left}; the machine has restarted since, and forgot it"]
    stays = _restore(device, known["before"], known["set"], record)
    watts = "".join(_watts(*each) for each in known["before"].items())
    done = "; ".join(stays) or f"restored{watts}"
    return [f"{left}, because it was killed, or its guard: {done}"]


def _write(record: Path, head: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Write a new record to disk, which only this user may write."""
    try:
        record.touch(0o644, exist_ok=False)
        with record.open("w", encoding="utf-8") as file:
            json.dump({**head, "before": before}, file)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if not isinstance(error, FileExistsError):
            record.unlink(missing_ok=True)
        raise OpcostError(
            f"{record}, which is to say what must be restored of the device, cannot be written: "
            f"{error.strerror}. This user must be able to write to {record.parent}, where its disk "
            "must have space, and no other user may have left this file; then run again"
        ) from error


def _watts(name: str, value: Any) -> str:
    return f" (power limit {value:g} W)" if name == "power_limit_w" else ""


def _settle(device: Settable, parent: int, steady_s: float, most_s: float) -> None:
    """Wait until the temperature has been steady for `steady_s`, for at most `most_s`, and not
    after the parent ends, or for a device that reports no temperature.
    """
    before_c = device.temperature_c()
    for _ in range(int(most_s / steady_s)):
        if before_c is None or _ended(parent, steady_s):
            return
        now_c = device.temperature_c()
        if now_c is None or abs(now_c - before_c) <= _STEADY_C:
            return
        before_c = now_c


def _ended(parent: int, within_s: float | None = None) -> bool:
    """Wait until the parent asks for the end, or ends. Returns whether that was within the time."""
    try:
        end = os.pidfd_open(parent)
    except ProcessLookupError:
        return True
    try:
        return os.getppid() != parent or bool(select.select([0, end], [], [], within_s)[0])
    finally:
        os.close(end)


def _say(answer: Mapping[str, Any]) -> None:
    with suppress(OSError):  # the parent may have ended
        os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
