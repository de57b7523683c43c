"""A running sampler, and the energy of windows of its recording."""

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import opcost
from opcost.energy.sensor import Sensor
from opcost.errors import OpcostError
from opcost.power.attribution import By
from opcost.power.device_energy import DeviceEnergy, device_energy
from opcost.power.export import check_table, finish, recording_beside
from opcost.power.recording import Recording

_START_S = 30.0
_ANSWER_S = 10.0
_AROUND_S = 5.0
"""How much of the recording before a window tells the range of power."""

_REFRESHES_BEFORE, _REFRESHES_AFTER = 3, 3
_POLL_S = 0.01

_kept: list[Recording] = []


def kept_recordings() -> list[Recording]:
    """The recordings that this process's open monitors keep."""
    return list(_kept)


class Monitor:
    """A process that records the power of devices, while it is open.

    `devices` are named as in targets (`cuda:0`, `cpu`); by default, all that this process may see.
    `period_s` is the time between readings, by default that which suits the sensors. The recording
    is kept if a `folder` is given, which must be new or empty, or an `output`, a new .parquet or
    .csv file that is written when the monitor is closed. `user` is the process whose use of
    the devices is told from that of others, with its descendants; by default, this one.

    Raises OpcostError for an unknown device, and a folder that holds something else.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        *,
        period_s: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        user: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if period_s is not None and not 0.001 <= period_s <= 60:
            raise OpcostError(f"period_s is {period_s!r}; allowed: seconds from 0.001 to 60")
        self._output = None if output is None else Path(output)
        if self._output is not None:
            if folder is not None:
                raise OpcostError("give a folder or an output, not both")
            check_table(self._output, append=False)
            folder = recording_beside(self._output)
        self._temporary = folder is None
        path = Path(tempfile.mkdtemp(prefix="opcost-power-") if folder is None else folder)
        path = path.absolute()  # the program may change its directory
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise OpcostError(f"{path} exists and is not an empty folder: name another")
        path.mkdir(parents=True, exist_ok=True)
        self.recording = Recording(path)
        self.process_id = os.getpid()
        self._asking = threading.Lock()
        self._ended = False
        settings = {
            "devices": devices,
            "period_s": period_s,
            "labels": dict(labels or {}),
            "user": user,
            "temporary": self._temporary,
        }
        command = [sys.executable, "-m", "opcost.power.sampler", str(path), json.dumps(settings)]
        self._sampler = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # signals of the terminal are not for it
        )
        try:
            about = json.loads(self._line(_START_S))
        except (OpcostError, ValueError):
            message = self._end()
            self._discard()
            raise OpcostError(message or "the sampler of power did not start") from None
        atexit.register(self._close_at_exit)
        if not self._temporary:
            _kept.append(self.recording)
        self.missing: dict[str, str] = about["missing"]
        self.period_s: float = about["period_s"]
        self._sources: list[Mapping[str, Any]] = about["sources"]
        self._sensors = [Sensor(**source["sensor"]) for source in self._sources]
        time.sleep(self._shown_after_s(_REFRESHES_BEFORE))  # a window needs a change before it

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._ended

    @property
    def is_running(self) -> bool:
        """Whether it reads the meters."""
        return not self._ended and self._sampler.poll() is None

    @property
    def devices(self) -> list[str]:
        """The devices that are read."""
        return [source["name"] for source in self._sources]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the recording; a temporary one is deleted, and the `output` is written."""
        atexit.unregister(self._close_at_exit)
        if self._output is not None and not self._ended:
            time.sleep(self._shown_after_s(_REFRESHES_AFTER))  # windows may have just ended
        self._end()
        self._discard()
        if self.recording in _kept:
            _kept.remove(self.recording)
            if self._output is not None:
                finish(self._output)

    def _discard(self) -> None:
        if self._temporary:
            shutil.rmtree(self.recording.folder, ignore_errors=True)

    def _close_at_exit(self) -> None:
        if os.getpid() == self.process_id:  # not in a fork
            self.close()

    def mark(self) -> float:
        """Have all meters read now. Returns the moment, of the monotonic clock."""
        now_s = time.monotonic()
        self._command(b"now\n")
        return now_s

    def energy(self, start_s: float, end_s: float) -> dict[str, DeviceEnergy]:
        """What each device used between two moments of the monotonic clock.

        Waits until the sensors have shown the end, for a few of their periods.
        """
        ready_s = end_s + self._shown_after_s(_REFRESHES_AFTER)
        while (left_s := ready_s - time.monotonic()) > 0 and self._sampler.poll() is None:
            time.sleep(min(left_s, _POLL_S))
        try:
            samples, fault = self._flushed(start_s - _AROUND_S), self._fault()
        except OpcostError as silent:
            names = [*self.devices, *self.missing]
            return {
                name: DeviceEnergy.without(self.missing.get(name, str(silent))) for name in names
            }
        found = {}
        lost = {
            event["lost"]: event["reason"] for event in self.recording.events() if "lost" in event
        }
        for number, (source, sensor) in enumerate(zip(self._sources, self._sensors, strict=True)):
            own = samples[samples["source"] == number]
            found[source["name"]] = device_energy(
                own,
                sensor,
                source["reads_since_last"],
                By.PROCESSOR_TIME if source["shared_by_time"] else By.MEMORY,
                start_s,
                end_s,
                lost.get(source["name"], fault),
                source["overlap"],
            )
        for name, reason in self.missing.items():
            found[name] = DeviceEnergy.without(reason)
        return found

    def _shown_after_s(self, refreshes: int) -> float:
        """Seconds in which all sensors are refreshed so often, and show what was before."""
        slowest_s = max((each.refresh_s + each.lag_s for each in self._sensors), default=0.0)
        averaging_s = max((each.averaging_s for each in self._sensors), default=0.0)
        return refreshes * slowest_s + averaging_s / 2

    def _fault(self) -> str | None:
        """Why the sampler ended."""
        if self._ended:
            return "the monitor was closed before"
        code = self._sampler.poll()
        if code is None:
            return None
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process that reads the meters has ended ({how})"

    def _flushed(self, since_s: float) -> NDArray[np.void]:
        """The samples from a moment on."""
        with self._asking:  # threads may ask at the same time
            if self._command(b"flush\n"):
                self._line(_ANSWER_S)
        samples = self.recording.mapped()
        return np.array(samples[np.searchsorted(samples["time_s"], since_s) :])

    def _command(self, command: bytes) -> bool:
        """Whether the sampler still runs to obey."""
        if self._sampler.stdin is None or self._sampler.poll() is not None:
            return False
        try:
            os.write(self._sampler.stdin.fileno(), command)
        except BrokenPipeError:
            return False
        return True

    def _line(self, within_s: float) -> str:
        assert self._sampler.stdout is not None
        readable, _, _ = select.select([self._sampler.stdout], [], [], within_s)
        line = self._sampler.stdout.readline().decode() if readable else ""
        if not line:
            raise OpcostError("the sampler of power does not answer")
        return line

    def _end(self) -> str:
        """End the sampler. Returns the last line of what it complained about."""
        self._ended = True
        if self._sampler.stdin is not None and not self._sampler.stdin.closed:
            self._sampler.stdin.close()
        try:
            self._sampler.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._sampler.kill()
            self._sampler.wait()
        if self._sampler.stderr is None or self._sampler.stderr.closed:
            return ""
        said = self._sampler.stderr.read().decode(errors="replace").strip()
        self._sampler.stderr.close()
        if self._sampler.stdout is not None:
            self._sampler.stdout.close()
        return said.splitlines()[-1].removeprefix("opcost: ") if said else ""


def _environment() -> dict[str, str]:
    """That of this process, in which the sampler finds this opcost."""
    here = str(Path(opcost.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *([others] if others else [])])}
