"""Monitors: a running sampler, and the energy of windows from its recording."""

import atexit
import math
import os
import shutil
import tempfile
import time
import warnings
from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from opcost.energy.sensor import Sensor
from opcost.errors import OpcostError
from opcost.power.attribution import NOBODY, By
from opcost.power.descriptor import Descriptor
from opcost.power.device_energy import DeviceEnergy
from opcost.power.export import finish, prepare_table, recording_beside
from opcost.power.recording import Recording, claim
from opcost.power.recording import around as recordings_around
from opcost.power.sampler_process import SamplerProcess
from opcost.power.shown import Shown, around
from opcost.values import number, whole_number

_REFRESHES_BEFORE, _REFRESHES_AFTER = 3, 3
_POLL_S = 0.01
_PERIOD, _PROCESS = number(0.001, 60), whole_number(0)
_AFTER_CLOSE = "the monitor was closed before the window was over: call its stop() first"

_kept: list[Recording] = []


def kept_recordings() -> list[Recording]:
    """The recordings of this process's open monitors that outlast them."""
    return list(_kept)


class _Window(Protocol):
    """The part of a window that a monitor uses."""

    name: str


class _Left(NamedTuple):
    """Readings that a closed monitor keeps, in a deleted file, for windows whose energy may still
    be asked; when they end, and why they had already ended, if so.
    """

    samples: NDArray[np.void]
    end_s: float
    fault: str | None


class _Near(NamedTuple):
    """Samples around a window, by source: the range of samples and edges, and the edges."""

    place: tuple[int, int, int, int]
    shown: list[Shown]
    edges_s: NDArray[np.float64]


class Monitor:
    """A process that records the power of devices, while it is open.

    `devices` are named as in targets (`cuda:0`, `cpu`); by default, all that this process may see.
    `period_s` is the time between readings, by default chosen for the sensors. The recording is
    kept in `folder`, which must be new or empty, or written to `output`, a new .parquet or .csv
    file, when the monitor is closed. With `append`, a .parquet `output` may exist, and gets another
    segment. `labels` are stored in the recording. `user` is the process to which use of the devices
    is attributed, with its descendants; by default this process, 0 for none.

    Raises OpcostError for an unknown device, and for a folder that contains something else.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        *,
        period_s: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        append: bool = False,
        user: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        _check(devices, period_s, labels, user)
        if append and output is None:
            raise OpcostError("append continues an output: give its name")
        self._user = user
        self._output = None if output is None else Path(output).resolve()  # follows a link
        if self._output is not None:  # absolute: the program may change its directory
            if folder is not None:
                raise OpcostError("give a folder or an output, not both")
            prepare_table(self._output, append)
            folder = recording_beside(self._output)
        self._temporary = folder is None
        if labels and (self._temporary or (self._output and self._output.suffix == ".csv")):
            raise OpcostError(
                "labels are kept in a recording: name a .parquet file for it (--output, in Python "
                "output=...)"
            )
        path, self._claim, is_new = _claimed(folder)
        self.recording = Recording(path)
        self.is_closed = False
        self._begun: set[_Window] = set()
        self._unasked: WeakSet[_Window] = WeakSet()
        self._left: _Left | None = None
        self._edges_s = array("d")  # ascending
        self._flushed_s = -math.inf
        self._kept_near: _Near | None = None
        self.written: int | None = None
        settings = {
            "devices": None if devices is None else list(devices),
            "period_s": period_s,
            "labels": dict(labels or {}),
            "user": user,
            "temporary": self._temporary,
        }
        try:
            self._sampler = SamplerProcess(path, settings)
        except BaseException:
            if is_new:
                shutil.rmtree(path, ignore_errors=True)
            self._claim.close()
            raise
        atexit.register(self._end_at_exit)
        if not self._temporary:
            _kept.append(self.recording)
        about = self._sampler.about
        self.missing: dict[str, str] = about["missing"]
        self.period_s: float = about["period_s"]
        self._sources: list[Mapping[str, Any]] = about["sources"]
        self._sensors = [Sensor(**source["sensor"]) for source in self._sources]
        time.sleep(self._shown_after_s(_REFRESHES_BEFORE))  # a window needs a change before it

    @property
    def is_running(self) -> bool:
        """Whether the sampler runs."""
        return self._sampler.is_running

    @property
    def is_own(self) -> bool:
        """Whether this process opened the monitor, rather than a parent of this fork."""
        return self._sampler.is_own

    @property
    def devices(self) -> list[str]:
        """The names of the devices that are read."""
        return [source["name"] for source in self._sources]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the recording. A temporary one is deleted; `output` is written, and `written` is then
        its number of readings. Windows that are over can still be asked for their energy; windows
        that are not cause a warning.

        A fork of the process that opened it leaves it open. Raises OpcostError, and keeps the
        recording, if there is another file at `output` by now.
        """
        if self.is_own:
            self._warn_of_begun()
        self._end(keep=not self._temporary)

    def discard(self) -> None:
        """End the recording, and delete it."""
        self._end(keep=False)

    def _end_at_exit(self) -> None:
        self._unasked.clear()  # nobody can ask at exit
        self.close()

    def _end(self, keep: bool) -> None:
        atexit.unregister(self._end_at_exit)
        if self.is_closed or not self.is_own:
            return
        self.is_closed = True
        if self._unasked or (self._output is not None and keep):
            self._wait_for(time.monotonic())  # windows may have just ended
            with suppress(OpcostError):
                self._sampler.flush()
        if self._unasked:  # the sampler deletes a temporary file at its end
            samples, fault = self.recording.mapped(), self._sampler.fault()
            self._left = _Left(samples, time.monotonic(), fault)
        self._sampler.end()
        if not self._temporary:
            _kept.remove(self.recording)
        try:
            if not keep:
                shutil.rmtree(self.recording.folder, ignore_errors=True)
            elif self._output is not None:
                self.written = finish(self._output)
        finally:
            self._claim.close()

    def _warn_of_begun(self) -> None:
        while self._begun:
            warnings.warn(
                f"opcost: the window {self._begun.pop().name!r} has no energy and is in no "
                "recording: its monitor was closed, or the program ended, before its stop()",
                stacklevel=3,
            )

    def begins(self, window: _Window) -> None:
        """Note that a window of this monitor has begun."""
        self._begun.add(window)

    def forget(self, window: _Window) -> None:
        """Discard a window whose work did not start."""
        self._begun.discard(window)

    def is_over(self, window: _Window) -> None:
        """Note that a window is over, and may be asked for its energy."""
        self._begun.discard(window)
        if not self.is_closed:
            self._unasked.add(window)

    def note(self, event: Mapping[str, Any]) -> None:
        """Write an event to the recordings that outlast this process: its own, if it is kept, and
        those that it runs in.
        """
        if self.is_own:  # and not that of the parent of this fork
            own = [] if self._temporary or self.is_closed else [self.recording]
            for recording in (*own, *recordings_around()):
                recording.note(event)

    def was_asked(self, window: _Window) -> None:
        """Note that a window has its energy: it needs no more readings."""
        self._unasked.discard(window)
        if self.is_closed and not self._unasked:
            self._left = self._kept_near = None

    def mark(self) -> float:
        """Have all meters read now. Returns the time of the monotonic clock."""
        now_s = time.monotonic()
        self._sampler.read_now()
        return now_s

    def edge(self) -> float:
        """As `mark`, at the edge of a window, where the work of the program changes."""
        now_s = self.mark()
        insort(self._edges_s, now_s)  # those of other threads may be later
        return now_s

    def energy(self, start_s: float, end_s: float) -> dict[str, DeviceEnergy]:
        """The energy of each device between two times of the monotonic clock.

        Waits a few periods, until the sensors have shown the end.
        """
        if not self.is_own and (of_fork := self._sampler.fault()):
            return self._without(of_fork)
        if self.is_closed:
            if self._left is None or end_s > self._left.end_s:
                return self._without(_AFTER_CLOSE)
            samples, _, fault = self._left
        else:
            self._wait_for(end_s)
            try:
                self._flush_once(self._ready_s(end_s))
            except OpcostError as silent:
                return self._without(str(silent))
            samples, fault = self.recording.mapped(), self._sampler.fault()
        near = self._near(samples, start_s, end_s)
        lost, found = self._sampler.lost, {}
        for source, shown in zip(self._sources, near.shown, strict=True):
            found[source["name"]] = shown.energy(
                start_s,
                end_s,
                by=self._by(source),
                lost=lost.get(source["name"], fault),
                overlap=source["overlap"],
                edges_s=near.edges_s,
            )
        for name, reason in self.missing.items():
            found[name] = DeviceEnergy.without(reason)
        return found

    def _near(self, samples: NDArray[np.void], start_s: float, end_s: float) -> "_Near":
        """The samples around a window, cached because the next window mostly needs the same."""
        times_s = samples["time_s"]  # bisect reads only a few of them from the file
        span_s = around(start_s, end_s, self.period_s)
        first, last = (bisect_left(times_s, moment_s) for moment_s in span_s)
        first_edge, last_edge = (bisect_left(self._edges_s, moment_s) for moment_s in span_s)
        place = (first, last, first_edge, last_edge)
        if self._kept_near is None or self._kept_near.place != place:
            # One more edge on either side bounds the stretches there.
            edges_s = np.unique(self._edges_s[max(first_edge - 1, 0) : last_edge + 1])
            shown = Shown.of_sources(samples[first:last], self._sources)
            self._kept_near = _Near(place, shown, edges_s)
        return self._kept_near

    def _flush_once(self, moment_s: float) -> None:
        """Have the sampler write all readings up to a moment, if it has not. Raises OpcostError if
        it does not answer.
        """
        if moment_s > self._flushed_s:
            now_s = time.monotonic()
            self._sampler.flush()
            self._flushed_s = now_s

    def _ready_s(self, end_s: float) -> float:
        """When the sensors have shown the power before a moment."""
        return end_s + self._shown_after_s(_REFRESHES_AFTER)

    def _wait_for(self, end_s: float) -> None:
        """Wait until the sensors have shown the power before a moment."""
        ready_s = self._ready_s(end_s)
        while (left_s := ready_s - time.monotonic()) > 0 and self._sampler.is_running:
            time.sleep(min(left_s, _POLL_S))

    def _by(self, source: Mapping[str, Any]) -> By | None:
        if self._user == NOBODY:
            return None
        return By.PROCESSOR_TIME if source["shared_by_time"] else By.MEMORY

    def _without(self, reason: str) -> dict[str, DeviceEnergy]:
        """All devices, without energy for that reason."""
        return {
            name: DeviceEnergy.without(self.missing.get(name, reason))
            for name in [*self.devices, *self.missing]
        }

    def _shown_after_s(self, refreshes: int) -> float:
        """Seconds until all sensors have been refreshed so often, averages included."""
        slowest_s = max((each.refresh_s + each.lag_s for each in self._sensors), default=0.0)
        averaging_s = max((each.averaging_s for each in self._sensors), default=0.0)
        return refreshes * slowest_s + averaging_s / 2


def _claimed(folder: str | os.PathLike[str] | None) -> tuple[Path, Descriptor, bool]:
    """The folder of a recording, by default temporary, the lock on it, and whether it is new.

    Raises OpcostError for a folder that contains something else or cannot be made.
    """
    path = None
    try:
        path = Path(tempfile.mkdtemp(prefix="opcost-power-") if folder is None else folder)
        path = path.absolute()
        is_new = folder is None or not path.exists()
        if path.exists() and not path.is_dir():
            raise OpcostError(f"{path} exists and is not an empty folder: name another")
        held = Descriptor(claim(path))
        if any(path.iterdir()):
            held.close()
            raise OpcostError(f"{path} exists and is not an empty folder: name another")
    except OSError as error:
        if folder is None and path is not None:
            path.rmdir()
        name = path or "the folder for temporary files"
        raise OpcostError(f"{name} cannot be used: {error.strerror}") from error
    return path, held, is_new


def _check(
    devices: Sequence[str] | None,
    period_s: float | None,
    labels: Mapping[str, str] | None,
    user: int | None,
) -> None:
    """Raise OpcostError for invalid arguments of a monitor."""
    if period_s is not None and not _PERIOD.holds(period_s):
        raise OpcostError(f"period_s is {period_s!r}; allowed: seconds from 0.001 to 60")
    if user is not None and not _PROCESS.holds(user):
        raise OpcostError(f"user is {user!r}; allowed: the id of a process, or 0 for none")
    names = [] if devices is None else devices
    known = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    if isinstance(names, str) or not known:
        raise OpcostError(f"devices is {devices!r}: give a list of names, such as ['cuda:0']")
    if labels is not None and not isinstance(labels, Mapping):
        raise OpcostError(f"labels is {labels!r}: give names and texts, such as {{'batch': '8'}}")
    for name, text in (labels or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OpcostError(f"the label {name!r} is {text!r}: names and values are text")
        if not f"{name}{text}".isprintable():
            raise OpcostError(f"the label {name!r} is {text!r}: give text that can be printed")
