"""The sampler: a process that reads meters and appends to a recording, until its parent ends.

    python -m opcost.power.sampler FOLDER SETTINGS

It is a separate process, so that it does not compete for the interpreter with the measured program.
SIGUSR1 has it read all meters at once, as at the edges of windows, and SIGUSR2 ends it: a program
may close its pipes, and a meter that hangs must not hold it up. It ignores signals that end a whole
process group, so that it ends after its parent.
"""

import errno
import fcntl
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opcost.energy.meter import Implausible, Meter, MeterUnavailable
from opcost.energy.meters import every_meter, open_meter, unseen, unseen_kinds
from opcost.errors import FULL, OpcostError, closest, reported
from opcost.power.attribution import CHILDREN, MEMORY, NOBODY, PROCESSOR_TIME, User
from opcost.power.machine import Machine
from opcost.power.recording import END, READ, SAMPLE, STATE, Recording

SOON_S = 0.003
"""Meters are read again this long after an edge: a counter that has not changed by then is slow."""

_STATE_S = 1.0
_AGAIN_S = 1.0
"""How long a meter that has failed is not read, and how often the parent is looked for."""

_SHARED = {True: PROCESSOR_TIME, False: MEMORY, None: None}
_POLLS_PER_REFRESH = 4
_FASTEST_S, _SLOWEST_S = 0.01, 0.1
_UNKNOWN = (math.nan,) * (len(STATE) + 5)


@dataclass(frozen=True)
class Source:
    """An open meter, and the name of its device: `cuda:0`, `cpu` as in targets; `cpu:psys`."""

    name: str
    meter: Meter

    @property
    def described(self) -> Mapping[str, object]:
        """The source as JSON data."""
        return {
            "name": self.name,
            "meter": self.meter.name,
            "reads_since_last": self.meter.reads_since_last,
            "by": _SHARED[self.meter.shared_by_time],
            "overlap": self.meter.overlap,
            "sensor": vars(self.meter.assumed),
        }


def open_sources(names: Sequence[str] | None) -> tuple[list[Source], dict[str, str]]:
    """The named devices, by default all that this process may see; and why others are not read.

    Raises OpcostError for a name that is not a device.
    """
    known, missing = every_meter()
    chosen = [*known, *missing] if names is None else list(dict.fromkeys(names))
    sources, reasons = [], {}
    for name in chosen:
        kind, identity = known.get(name, (name.partition(":")[0], None))
        if name not in known and kind not in missing:
            because = f": {reason}" if (reason := unseen(kind)) else ""
            raise OpcostError(
                f"{name!r} is no device of this machine{because}. {closest(name, known)}"
            )
        if name not in known:
            reasons[name] = missing[kind]
            continue
        try:
            sources.append(Source(name, open_meter(kind, identity)))
        except MeterUnavailable as unavailable:
            reasons[name] = str(unavailable)
    return sources, reasons


class Sampler:
    """Reads the sources, and appends records to a recording; `user` is the process whose use of
    the devices is recorded separately, or CHILDREN of the parent, or NOBODY.
    """

    def __init__(self, recording: Recording, sources: list[Source], user: int) -> None:
        self._recording, self._sources = recording, sources
        own = os.getppid() if user == CHILDREN else user
        self._user, self._nobody = User(own, os.getpid(), user == CHILDREN), user == NOBODY
        self._machine = Machine(None if self._nobody else self._user)
        self._again_s: dict[str, float] = {}
        self._state_due_s = -math.inf
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(recording.samples_file, flags, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def read(self, with_state: bool = False) -> None:
        """Read all meters. A failure is recorded, and the meter read again after a while."""
        with_state = with_state or time.monotonic() >= self._state_due_s
        if with_state:
            self._state_due_s = time.monotonic() + _STATE_S
        records = [
            self._record(number, source, with_state) for number, source in enumerate(self._sources)
        ]
        if with_state:
            records += self._machine.records(len(self._sources))
        content = np.array(records, SAMPLE).tobytes()
        if os.write(self._file, content) < len(content):  # part of a record would misalign others
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._recording.folder))

    def _record(self, number: int, source: Source, with_state: bool) -> tuple[Any, ...]:
        was_lost = source.name in self._again_s
        if was_lost and time.monotonic() < self._again_s[source.name]:
            return (time.monotonic(), number, *_UNKNOWN)
        try:
            found = self._values(number, source.meter, with_state)
        except MeterUnavailable as reason:
            if not was_lost:
                self._recording.note({"lost": source.name, "reason": str(reason)})
            self._again_s[source.name] = time.monotonic() + _AGAIN_S
            return (time.monotonic(), number, *_UNKNOWN)
        if was_lost:
            del self._again_s[source.name]
            self._recording.note({"back": source.name})
        return found

    def _values(self, number: int, meter: Meter, with_state: bool) -> tuple[Any, ...]:
        power_w = math.nan if meter.reads_since_last else _power_w(meter)
        counter_j = meter.counter_j()
        time_s = time.monotonic()
        state = meter.state() if with_state else None
        use = self._use(meter) if with_state else (None, None)
        values = (counter_j, *(getattr(state, name, None) for name in STATE), *use)
        known = (math.nan if value is None else value for value in values)
        return (time_s, number, power_w, *known, math.nan)

    def _use(self, meter: Meter) -> tuple[float | None, float | None]:
        """Use of a device by the user with its descendants, and by all processes."""
        if self._nobody:
            return None, None
        if meter.shared_by_time:
            return self._user.processor_time_s()
        held = meter.memory_by_process()
        return self._user.memory_bytes(held) if held else (None, None)


def _power_w(meter: Meter) -> float:
    try:
        return meter.power_w()
    except Implausible:
        return math.nan


def period_of(sources: list[Source]) -> float:
    """Seconds between readings: several for each refresh of the fastest sensor."""
    refreshes_s = [source.meter.assumed.refresh_s for source in sources]
    wanted_s = min(refreshes_s, default=_SLOWEST_S) / _POLLS_PER_REFRESH
    return min(max(wanted_s, _FASTEST_S), _SLOWEST_S)


def run(sampler: Sampler, period_s: float, parent: int) -> None:
    """Read every `period_s`, and when told to, until the end of the parent or its command."""
    due_s = time.monotonic()
    while os.getppid() == parent:
        wait_s = min(max(0.0, due_s - time.monotonic()), _AGAIN_S)
        told = signal.sigtimedwait({READ, END}, wait_s)
        now_s = time.monotonic()
        if told is not None:
            sampler.read(with_state=True)
            if told.si_signo == END:
                return
            due_s = min(due_s, now_s + SOON_S)
        elif now_s >= due_s:
            sampler.read()
            due_s = max(due_s + period_s, now_s + period_s / 2)


def main() -> None:
    """Record until the end of the parent, which has blocked READ and END for this process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    recording, settings = Recording(Path(sys.argv[1])), json.loads(sys.argv[2])
    with reported():
        try:
            sources, missing = open_sources(settings["devices"])
            period_s = settings["period_s"] or period_of(sources)
            parent, user = settings["parent"], settings["user"]
            sampler = Sampler(recording, sources, parent if user is None else user)
            sampler.read()
            why_none = unseen_kinds() if not sources and settings["devices"] is None else []
            known = {"missing": missing, "period_s": period_s, "labels": settings["labels"]}
            described = [each.described for each in sources]
            known["cores"] = os.cpu_count()
            recording.begin({"sources": described, "unseen": why_none, **known})
            run(sampler, period_s, parent)
        except OSError as error:
            if error.errno not in FULL:
                raise
            sys.exit(error.errno)  # the file of its error output is on the same disk
        finally:
            if settings["temporary"] and os.getppid() != settings["parent"]:  # it was killed
                shutil.rmtree(recording.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
