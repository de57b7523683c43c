"""Operating points: power limit and locked clocks of a GPU, the highest frequency of a processor.

They are set while the lock of the device is held, by a guard that restores the previous settings
however this process ends.

The guard (point_guard.py) is a separate process. It also holds the lock of the device, so that no
other process gets the device before it is restored. The settings to restore are in a file beside
the lock (point_record.py): if the guard is killed, the next process that takes the lock restores
them. This process does not call NVML, because a hanging driver would hold it up.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol, cast

import opcost
from opcost.devices.point_record import is_empty, new_record
from opcost.errors import OpcostError
from opcost.target import OperatingPoint
from opcost.terminal import announce, tell

_ANSWER_S = 180.0
"""Seconds until a driver counts as hanging: loading it takes some, settling up to `_SETTLE_S`."""

_STEADY_S, _SETTLE_S = 10.0, 60.0
"""After a switch, the device's temperature must be steady for the first time; ASSUME that waiting
longer than the second changes little."""


AS_IT_IS = OperatingPoint()


class HeldLock(Protocol):
    """The lock of a device that this process holds: `devices.lock.exclusive` yields one."""

    @property
    def key(self) -> str:
        """The hash of a GPU's UUID, or the name of the processor."""

    @property
    def descriptor(self) -> int:
        """The descriptor of the locked file."""

    @property
    def point_before(self) -> str:
        """The operating point of the previous holder; empty if it set none."""

    @property
    def record(self) -> Path:
        """The file with the settings to restore."""


@contextmanager
def applied(held: HeldLock, point: OperatingPoint) -> Iterator[None]:
    """Set an operating point in this block; afterwards, restore the previous settings.

    Clocks that were locked before cannot be read: they are released. If restoring fails, this
    prints an error, and the next process that takes the lock tries again.

    Raises OpcostError, with nothing changed, if the device does not allow a value, if this user
    may not set it, and if the device then reports another one.
    """
    if not point:
        yield
        return
    with new_record(held.record) as record:
        guard = _Guard(held, {"point": asdict(point)}, record)
        try:
            guard.answer(f"setting the operating point ({point})")
            yield
        finally:
            guard.end()


def settle(held: HeldLock, point: OperatingPoint) -> None:
    """If the previous holder of the lock measured at another point, wait until the temperature of
    the device is steady, so that its heat does not affect this measurement.
    """
    if held.point_before != str(point):
        to = str(point) or "as it is without one"
        announce(f"[operating point] {to}: waiting until the temperature is steady")
        with suppress(OpcostError):  # any user may have written that; the device may be gone
            _Guard(held, {"settle": [_STEADY_S, _SETTLE_S]}).ask("waiting for its temperature")


def restore_left(held: HeldLock) -> None:
    """Restore settings that a process left behind when it was killed with its guard, and announce
    that.

    Raises OpcostError if they cannot be restored, or if that process or its guard still runs after
    its lock was deleted: measurements would be at that operating point.
    """
    if os.path.lexists(held.record):
        _restore_by(_Guard(held, {}))


def _restore_by(guard: "_Guard") -> None:
    announce(guard.ask("restoring the operating point that was left behind")["restored"])


class _Guard:
    """A guard, as seen by the process that starts it. Forks of that process do not use it."""

    def __init__(self, held: HeldLock, task: dict[str, Any], record: int | None = None) -> None:
        """`record` is the descriptor of this process's record, if it has one."""
        self._held, self._record, self._owner = held, record, os.getpid()
        known: dict[str, Any] = {"key": held.key, "record": str(held.record)}
        known |= {"descriptor": record, "parent": self._owner}
        # -P: a file in this folder may be named like a standard module.
        command = [sys.executable, "-P", "-m", "opcost.devices.point_guard"]
        self._process = subprocess.Popen(
            [*command, json.dumps({**known, **task})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may outlive the readers of this process's stderr
            # It holds both locks until it has restored the device.
            pass_fds=[held.descriptor, *([] if record is None else [record])],
            env={**os.environ, "PYTHONPATH": _python_path()},
            start_new_session=True,  # not for signals of the terminal
        )

    def ask(self, task: str) -> dict[str, Any]:
        """Its only answer. Raises as `answer` does."""
        try:
            return self.answer(task)
        finally:
            self._process.communicate()

    def answer(self, task: str, *, last: bool = False) -> dict[str, Any]:
        """Its next answer, or its last. Raises OpcostError with its error message, or if it does
        not answer.
        """
        said = self._heard(last)
        if not said.endswith(b"\n"):
            self._process.kill()
            code = self._process.wait()
            raise _NoAnswer(
                f"{task}: the process that does it has ended (exit code {code}), or the driver "
                f"has not answered for {_ANSWER_S:g} s. Check that `nvidia-smi` responds, else "
                "reload the driver or restart the machine"
            )
        document: dict[str, Any] = json.loads(said.splitlines()[-1])
        if "error" in document:
            raise OpcostError(document["error"])
        return document

    def end(self) -> None:
        """Have it restore the device. If it was killed, another guard does that, from this
        process's descriptor of the record: its file may have been deleted.
        """
        if os.getpid() != self._owner:
            return
        with suppress(BrokenPipeError):
            cast(IO[bytes], self._process.stdin).close()
        try:
            with suppress(_NoAnswer):
                found = self.answer("restoring the operating point", last=True)
                for note in found.get("notes", []):
                    tell(f"opcost: {note}")
            if (
                self._process.wait() != 0
                and self._record is not None
                and not is_empty(self._record)
            ):
                _restore_by(_Guard(self._held, {}, self._record))
        except OpcostError as error:
            tell(f"opcost: {error}")  # earlier measurements are valid
        self._process.wait()
        cast(IO[bytes], self._process.stdout).close()

    def _heard(self, last: bool) -> bytes:
        """Its next line, or its whole remaining output; an incomplete line if it ends or takes too
        long.
        """
        answers = cast(IO[bytes], self._process.stdout).fileno()
        said, end_s = b"", time.monotonic() + _ANSWER_S
        while (last or not said.endswith(b"\n")) and (left_s := end_s - time.monotonic()) > 0:
            if select.select([answers], [], [], left_s)[0]:
                if not (some := os.read(answers, 65536)):
                    break
                said += some
        return said


class _NoAnswer(OpcostError):
    """A guard has ended, or does not answer."""


def _python_path() -> str:
    """PYTHONPATH with which the guard imports this opcost."""
    here = str(Path(opcost.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return os.pathsep.join([here, *([others] if others else [])])
