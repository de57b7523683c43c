"""Monitors: a running sampler, and the energy of windows from its recording."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from opcost.devices.machine import python_path
from opcost.energy.sensor import Sensor
from opcost.errors import FULL, OpcostError
from opcost.power.attribution import NOBODY
from opcost.power.energy import DeviceEnergy
from opcost.power.readings import EDGE_S, WindowEnergies, machine_in
from opcost.power.recording import (
    END,
    IDLE,
    READ,
    Recording,
    around,
    finish,
    new_recording,
)
from opcost.values import number

if TYPE_CHECKING:
    from opcost.power.windows import Window

_REFRESHES = 3
"""Refreshes of a sensor until it has shown what was before."""

_POLL_S = 0.01
_START_S, _ANSWER_S = 30.0, 10.0
_IMPATIENT_S = 0.5
"""How long to wait for a sampler that has once not answered."""

_AFTER_CLOSE = "the monitor was closed before the window was over: call its stop() first"
_PERIOD, _IDLE = number(0.001, 60), number(0, 3600)

_kept: list[Recording] = []


def kept_recordings() -> list[Recording]:
    """The recordings of this process's open monitors that outlast them."""
    return list(_kept)


class Monitor:
    """A process that records the power of devices, while it is open.

    `devices` are named as in targets (`cuda:0`, `cpu`); by default, all that this process may see.
    `period_s` is the time between readings, by default chosen for the sensors. The recording is
    written to `output`, a new .parquet file, when the monitor is closed, with `labels`. During its
    first `idle_s`, nothing may run: windows then also have their energy above idle; without a
    meter, this does not wait. `user` is the process to which use of the devices is attributed, with
    its descendants; by default this process, 0 for none, -1 for its children, whose memory alone
    is then recorded.

    Raises OpcostError for an unknown device, and for an output that exists.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        *,
        period_s: float | None = None,
        output: str | os.PathLike[str] | None = None,
        user: int | None = None,
        labels: Mapping[str, str] | None = None,
        idle_s: float = 0.0,
    ) -> None:
        _check(devices, period_s, output, labels)
        if not _IDLE.holds(idle_s):
            raise OpcostError(f"idle_s is {idle_s!r}; allowed is {_IDLE.allowed}")
        # A link is followed; the program may change its directory.
        self._output = None if output is None else Path(output).resolve()
        self.recording = _temporary() if self._output is None else new_recording(self._output)
        self._owner, self._user = os.getpid(), user
        self._over: WeakSet[Window] = WeakSet()
        self._is_silent = self.is_closed = False
        self.written: int | None = None
        settings = {
            "devices": None if devices is None else list(devices),
            "period_s": period_s,
            "labels": dict(labels or {}),
            "user": user,
            "parent": self._owner,
            "temporary": self._output is None,
        }
        try:
            self._sampler = _started(self.recording, settings)
            about = self.recording.about
        except BaseException:
            shutil.rmtree(self.recording.folder, ignore_errors=True)
            raise
        atexit.register(self._end_at_exit)
        if self._output is not None:
            _kept.append(self.recording)
        self.missing: dict[str, str] = about["missing"]
        self.unseen: list[str] = about["unseen"]
        self.devices: list[str] = [source["name"] for source in about["sources"]]
        self.period_s: float = about["period_s"]
        self._energies, self._about = WindowEnergies(about), about
        sensors = [Sensor(**source["sensor"]) for source in about["sources"]]
        slowest_s = max((each.refresh_s + each.lag_s for each in sensors), default=0.0)
        averaging_s = max((each.averaging_s for each in sensors), default=0.0)
        self._shown_after_s = _REFRESHES * slowest_s + averaging_s / 2
        time.sleep(self._shown_after_s)  # a window needs a change before it
        self._idle: dict[str, DeviceEnergy] = {}
        if idle_s and self.devices:
            start_s = self.edge()
            time.sleep(idle_s)
            end_s = self.edge()
            self.recording.note({"window": IDLE, "start_s": start_s, "end_s": end_s})
            self._idle = self.energy(start_s, end_s)

    @property
    def is_running(self) -> bool:
        """Whether this process opened the monitor, rather than a parent of this fork, and its
        sampler runs.
        """
        return self._is_own and not self.is_closed and self._sampler.poll() is None

    @property
    def _is_own(self) -> bool:
        return os.getpid() == self._owner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the recording, and write the output: `written` is then its number of readings.
        Windows that are over keep their energy.

        A fork of the process that opened it leaves it open. Raises OpcostError, and keeps the
        recording, if there is another file at `output` by now.
        """
        if not self._may_end:
            return
        for window in list(self._over):  # it may still be asked for its energy
            _ = window.devices, window.machine
        self._end(keep=True)

    def discard(self) -> None:
        """End the recording, and delete it."""
        if self._may_end:
            self._end(keep=False)

    @property
    def _may_end(self) -> bool:
        return self._is_own and not self.is_closed

    def _end_at_exit(self) -> None:
        self._over.clear()  # nobody can ask at exit
        self.close()

    def _end(self, keep: bool) -> None:
        atexit.unregister(self._end_at_exit)
        if self._output is not None and keep:
            self._wait_for(time.monotonic())  # windows may have just ended
        self.is_closed = True
        self._tell(END)
        try:
            self._sampler.wait(_IMPATIENT_S if self._is_silent else _ANSWER_S)
        except subprocess.TimeoutExpired:
            self._sampler.kill()  # it may hang in a system call
        if self._output is not None:
            _kept.remove(self.recording)
        if self._output is not None and keep:
            self.written = finish(self.recording, self._output)
        else:
            shutil.rmtree(self.recording.folder, ignore_errors=True)

    def is_over(self, window: "Window") -> None:
        """Note that a window is over: its energy can be asked for after the monitor is closed."""
        if not self.is_closed:
            self._over.add(window)

    def note(self, event: Mapping[str, Any]) -> None:
        """Write an event to the recordings that outlast this process: its own, if it is kept, and
        those that it runs in.
        """
        if self._is_own:  # and not that of the parent of this fork
            own = [self.recording] if self.recording in _kept else []
            for recording in (*own, *around()):
                recording.note(event)

    def edge(self) -> float:
        """Have all meters read now. Returns the time of the monotonic clock."""
        now_s = time.monotonic()
        self._tell(READ)
        return now_s

    def energy(self, start_s: float, end_s: float) -> dict[str, DeviceEnergy]:
        """The energy of each device between two times of the monotonic clock.

        Waits a few periods, until the sensors have shown the end.
        """
        if not self._is_own:
            fork = f"process {self._owner} began this, a fork of it cannot go on: begin another"
            return self._without(f"{fork} here")
        if self.is_closed:
            return self._without(_AFTER_CLOSE)
        fault = self._wait_for(end_s)

        def lost() -> dict[str, str]:
            faults = {} if fault is None else dict.fromkeys(self.devices, fault)
            return {**faults, **self.recording.lost()}

        samples, attributed = self.recording.samples(), self._user != NOBODY
        found = self._energies.of(samples, start_s, end_s, lost, attributed)
        missing = {name: DeviceEnergy(None, reason) for name, reason in self.missing.items()}
        with_idle = {name: each.with_idle(self._idle.get(name)) for name, each in found.items()}
        return {**with_idle, **missing}

    def machine(self, start_s: float, end_s: float) -> dict[str, float | None]:
        """What `Window.machine` has, between two times of the monotonic clock."""
        latest_s = time.monotonic() + _IMPATIENT_S
        while not self._is_read_until(end_s - EDGE_S) and time.monotonic() < latest_s:
            time.sleep(_POLL_S)
        return machine_in(self.recording.samples(), self._about, start_s, end_s)

    def _wait_for(self, end_s: float) -> str | None:
        """Wait until the sensors have shown the power before a moment. Returns why they have not,
        or None.
        """
        ready_s = end_s + self._shown_after_s
        patience_s = _IMPATIENT_S if self._is_silent else _ANSWER_S
        latest_s = max(ready_s, time.monotonic()) + self.period_s + patience_s
        was_told = False
        while self.devices and not self._is_read_until(ready_s):
            if not was_told and time.monotonic() > ready_s:  # the next reading may be far away
                was_told = self._tell(READ)
            if (code := self._sampler.poll()) is not None:
                said = _said(self.recording, code)
                return f"the process that reads the meters has ended ({said})"
            self._is_silent = time.monotonic() > latest_s
            if self._is_silent:
                return "the process that reads the meters does not answer"
            time.sleep(_POLL_S)
        self._is_silent = False
        return None

    def _is_read_until(self, moment_s: float) -> bool:
        samples = self.recording.samples()
        return bool(len(samples) and samples["time_s"][-1] >= moment_s)

    def _tell(self, number: signal.Signals) -> bool:
        """Signal the sampler, unless it belongs to a parent of this fork."""
        if self._is_own:
            self._sampler.send_signal(number)
        return self._is_own

    def _without(self, reason: str) -> dict[str, DeviceEnergy]:
        """All devices, without energy for that reason."""
        every = {**dict.fromkeys(self.devices, reason), **self.missing}
        return {name: DeviceEnergy(None, why) for name, why in every.items()}


def _temporary() -> Recording:
    try:
        return Recording(Path(tempfile.mkdtemp(prefix="opcost-power-")))
    except OSError as error:
        raise OpcostError(f"power cannot be read: {error.strerror}") from error


def _started(recording: Recording, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """A sampler that has begun its recording. Raises OpcostError with its error message."""
    # -P: a file in this folder may be named like a standard module.
    command = [sys.executable or "python3", "-P", "-m", "opcost.power.sampler"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {READ, END})  # of all its threads
    try:
        with open(recording.folder / "errors", "wb") as errors:
            sampler = subprocess.Popen(
                [*command, str(recording.folder), json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                start_new_session=True,  # not for signals of the terminal
            )
    except OSError as error:  # too many open files or processes
        raise OpcostError(f"power cannot be read: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    latest_s = time.monotonic() + _START_S
    try:
        while not recording.is_begun:
            if (code := sampler.poll()) is not None:
                raise OpcostError(f"power cannot be read: {_said(recording, code)}")
            if time.monotonic() > latest_s:
                raise OpcostError(f"power cannot be read: no meter has answered for {_START_S:g} s")
            time.sleep(_POLL_S)
    except BaseException:  # as of the handler of a signal
        sampler.kill()
        sampler.wait()
        raise
    return sampler


def _said(recording: Recording, code: int) -> str:
    """Why a sampler has ended: a signal, a full disk, the last line of its error output."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    if code in FULL:
        return os.strerror(code)
    with suppress(OSError, IndexError):
        said = (recording.folder / "errors").read_text(errors="replace")
        return said.strip().splitlines()[-1].removeprefix("opcost: ")
    return f"exit code {code}"


def _check(devices: Sequence[str] | None, period_s: float | None, output: Any, labels: Any) -> None:
    """Raise OpcostError for arguments of another kind."""
    if isinstance(devices, str) or not all(isinstance(each, str) for each in devices or ()):
        raise OpcostError(f"devices is {devices!r}: give a list of names, such as ['cuda:0']")
    if period_s is not None and not _PERIOD.holds(period_s):
        raise OpcostError(f"period_s is {period_s!r}; allowed: seconds from 0.001 to 60")
    if labels and output is None:
        raise OpcostError("labels are kept in a recording: name a .parquet file for it (output)")
    for name, label in dict(labels or {}).items():
        texts = (name, label)
        if not all(isinstance(each, str) and each.isprintable() for each in texts):
            raise OpcostError(f"the label {name!r} is {label!r}: give text that can be printed")
