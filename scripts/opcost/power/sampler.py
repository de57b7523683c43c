"""The sampler: a process that reads meters and appends to a recording, until its parent ends.

    python -m opcost.power.sampler FOLDER SETTINGS

It is a separate process, so that it does not compete for the interpreter with the measured program.
It reads commands from standard input (sampler_process.py): `now` reads all meters at once, `flush
NUMBER` writes all readings, and answers with the number. It ends with the input, and when its
parent changes: forks of the parent may keep the input open. It ignores signals that end a whole
process group, so that it ends after its parent.
"""

import fcntl
import json
import math
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from opcost.energy.meter import Implausible, Meter, MeterUnavailable
from opcost.errors import reported
from opcost.power.attribution import NOBODY, User
from opcost.power.recording import SAMPLE, STATE, Recording
from opcost.power.sources import Source, described, open_sources

SOON_S = 0.003
"""Meters are read again this long after an edge: a counter that has not changed by then is slow."""

_FLUSH_S = 1.0
_STATE_S = 1.0
_AGAIN_S = 1.0
"""How long a meter that has failed is not read."""

_POLLS_PER_REFRESH = 4
_FASTEST_S, _SLOWEST_S = 0.01, 0.1


class Sampler:
    """Reads the sources, and appends records to a recording; `user` is the process whose use of
    the devices is recorded separately, or NOBODY.
    """

    def __init__(self, recording: Recording, sources: list[Source], user: int) -> None:
        self._recording, self._sources = recording, sources
        self._user, self._nobody = User(user, without=os.getpid()), user == NOBODY
        self.lost: dict[str, str] = {}
        self._again_s: dict[str, float] = {}
        self._records: list[tuple[Any, ...]] = []
        self._state_due_s = -math.inf
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(recording.samples_file, flags, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def read(self, with_state: bool = False) -> None:
        """Read all meters. A failure is recorded, and the meter read again after a while."""
        with_state = with_state or time.monotonic() >= self._state_due_s
        if with_state:
            self._state_due_s = time.monotonic() + _STATE_S
        for number, source in enumerate(self._sources):
            if time.monotonic() < self._again_s.get(source.name, -math.inf):
                continue
            try:
                use = self._use(source.meter) if with_state else (math.nan, math.nan)
                self._records.append((*_record(number, source, with_state), *use))
            except MeterUnavailable as reason:
                self._lose(source.name, str(reason))
            else:
                self._find(source.name)

    def _lose(self, name: str, reason: str) -> None:
        self._again_s[name] = time.monotonic() + _AGAIN_S
        if name not in self.lost:
            self._recording.note({"lost": name, "reason": reason})
        self.lost[name] = reason

    def _find(self, name: str) -> None:
        if self.lost.pop(name, None) is not None:
            del self._again_s[name]
            self._recording.note({"back": name})

    def _use(self, meter: Meter) -> tuple[float, float]:
        """Use of a device by the user with its descendants, and by all processes."""
        if meter.shared_by_time:
            own, every = self._user.processor_time_s()
        elif held := meter.memory_by_process():
            own, every = self._user.memory_bytes(held)
        else:
            own = every = math.nan
        return math.nan if self._nobody else own, every

    def flush(self) -> None:
        """Append all readings to the file, where they survive this process."""
        content = memoryview(np.array(self._records, SAMPLE).tobytes())
        self._records.clear()
        complete = os.fstat(self._file).st_size
        try:
            while content:
                content = content[os.write(self._file, content) :]
        except OSError:
            os.ftruncate(self._file, complete)  # a partial record would misalign all later ones
            raise


def period_of(sources: list[Source]) -> float:
    """Seconds between readings: several for each refresh of the fastest sensor."""
    refreshes_s = [source.sensor.refresh_s for source in sources]
    wanted_s = min(refreshes_s, default=_SLOWEST_S) / _POLLS_PER_REFRESH
    return min(max(wanted_s, _FASTEST_S), _SLOWEST_S)


def run(sampler: Sampler, period_s: float, parent: int, answers: int) -> None:
    """Read every `period_s`, and execute commands, until the input or the parent ends."""
    due_s = flush_s = time.monotonic()
    commands = b""
    while os.getppid() == parent:
        wait_s = max(0.0, due_s - time.monotonic())
        readable, _, _ = select.select([0], [], [], wait_s)
        if readable:
            found = os.read(0, 4096)
            if not found:
                sampler.read()  # windows may have just ended
                return
            *complete, commands = (commands + found).split(b"\n")
            sampler.read(with_state=b"now" in complete)  # once for all of them
            if b"now" in complete:
                due_s = min(due_s, time.monotonic() + SOON_S)
            if flushes := [each for each in complete if each.startswith(b"flush ")]:
                sampler.flush()
                number = int(flushes[-1].removeprefix(b"flush "))
                _answer(answers, {"flushed": number, "lost": sampler.lost})
        now_s = time.monotonic()
        if now_s >= due_s:
            sampler.read()
            due_s = max(due_s + period_s, now_s + period_s / 2)
        if now_s >= flush_s:
            sampler.flush()
            flush_s = now_s + _FLUSH_S


def main() -> None:
    """Record until the input ends; the first line of the output is the description."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    with reported():
        _record_until_the_end(Recording(folder), settings)


def _record_until_the_end(recording: Recording, settings: Mapping[str, Any]) -> None:
    try:
        sources, missing = open_sources(settings["devices"])
        period_s = settings["period_s"] or period_of(sources)
        about = {"sources": described(sources), "missing": missing, "period_s": period_s}
        recording.begin({**about, "labels": settings["labels"]})
        user = settings["parent"] if settings["user"] is None else settings["user"]
        sampler = Sampler(recording, sources, user)
        sampler.read()
        _answer(settings["answers"], about)
        try:
            run(sampler, period_s, settings["parent"], settings["answers"])
        finally:
            sampler.flush()
    finally:
        if settings["temporary"]:  # the parent may have been killed
            shutil.rmtree(recording.folder, ignore_errors=True)


def _answer(answers: int, document: Mapping[str, Any]) -> None:
    with suppress(BrokenPipeError):  # the parent has ended: run() notices next
        os.write(answers, json.dumps(document).encode() + b"\n")


def _record(number: int, source: Source, with_state: bool) -> tuple[Any, ...]:
    meter = source.meter
    power_w = math.nan if meter.reads_since_last else _power_w(meter)
    counter_j = meter.counter_j()
    time_s = time.monotonic()
    state = meter.state() if with_state else None
    values = (getattr(state, name, None) for name in STATE)
    return (
        time_s,
        number,
        power_w,
        math.nan if counter_j is None else counter_j,
        *(math.nan if value is None else value for value in values),
    )


def _power_w(meter: Meter) -> float:
    try:
        return meter.power_w()
    except Implausible:
        return math.nan


if __name__ == "__main__":
    main()
