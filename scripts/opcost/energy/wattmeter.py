"""A wattmeter of the whole machine: a command, a serial line or a pipe that prints watts.

A line is a number. The interval is that of the first lines. How the reading follows the power is
found as for other sensors (characterization.py).
"""

import atexit
import os
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from opcost.energy.characterization import Document, responses
from opcost.energy.load import SYSTEM_CLOCK, Clock, Load
from opcost.energy.meter import DeviceState, Implausible, Meter, MeterUnavailable, plausible_w
from opcost.energy.sensor import SCHEMA_VERSION, Sensor, read_document, sensor_of_document

_FIRST_LINES, _FIRST_S = 4, 20.0
_LEAST_S, _LATE, _SILENT_S = 0.001, 3, 5.0
_BACKLOG_S = 0.1
"""Lines that come this soon from a pipe or a serial line may have waited there."""

_FLUSH = "have it flush each line (stdbuf -oL, python -u)"
_MOST_SHOWN = 60
_USUAL_S = 0.1
_SLOWER = (1, 5)
"""A delay of many intervals is found as if the interval were longer."""


class Wattmeter(Meter):
    """The newest line that a source has printed. `source` is a command, the path of a character
    device or a named pipe, or a file that `characterise_wattmeter` describes.

    Raises MeterUnavailable if it prints no watts within 20 s.
    """

    name = "wattmeter"
    shared_by_time = None

    def __init__(self, source: str) -> None:
        document = read_document(Path(source)) if source.endswith(".json") else None
        self.source = source if document is None else document["source"]
        self._lines: deque[tuple[float, str]] = deque(maxlen=_FIRST_LINES)
        self._ended: str | None = None
        self.missing = {"energy counter": "a wattmeter prints power"}
        self._process: subprocess.Popen[str] | None = None
        threading.Thread(target=self._read, args=(self._open(),), daemon=True).start()
        self.assumed = self._of_first_lines()
        self.overlap = "measures the whole machine: add no other to it"
        if document is not None:
            self.assumed = sensor_of_document(document, self.name, self.assumed)
        if self.assumed.source != "measured":
            self.overlap += ". Its delay is unknown: opcost wattmeter finds it"

    def power_w(self) -> float:
        """The newest line, in watts."""
        time_s, text = self._lines[-1] if self._lines else (0.0, "")
        silent_s = time.monotonic() - time_s
        if self._ended is not None:
            raise MeterUnavailable(f"{self._who} has ended ({self._ended}) after {text!r}")
        if silent_s > max(_SILENT_S, 2 * _LATE * self.assumed.refresh_s):
            raise MeterUnavailable(f"{self._who} has printed nothing for {silent_s:.0f} s")
        if silent_s > _LATE * self.assumed.refresh_s:
            raise Implausible(f"{self._who} is late")
        return self._number(text)

    def counter_j(self) -> None:
        """None: it prints power."""

    def state(self) -> DeviceState:
        """All None."""
        return DeviceState(missing=self.missing)

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """The only reading, `power_w`."""
        return {self.name: self.power_w}

    @property
    def _who(self) -> str:
        return f"the wattmeter {self.source!r}"

    def _number(self, text: str) -> float:
        try:
            return plausible_w(float(text))
        except ValueError as error:
            raise MeterUnavailable(
                f"{self._who} prints {text!r}: it must print watts, a number on each line"
            ) from error

    def _open(self) -> IO[str]:
        try:
            mode = os.stat(self.source).st_mode if os.path.exists(self.source) else 0
            if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
                # Both ways: a pipe then has no end if its writer is exchanged, or not there yet.
                access = os.O_RDWR if stat.S_ISFIFO(mode) else os.O_RDONLY
                return open(os.open(self.source, access | os.O_NOCTTY), errors="replace")
            self._process = subprocess.Popen(
                shlex.split(self.source),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except PermissionError as error:
            raise MeterUnavailable(
                f"{self._who} may not be read: run as root (sudo), or join the group that owns it, "
                "such as dialout"
            ) from error
        except (OSError, ValueError, IndexError) as error:
            raise MeterUnavailable(f"{self._who} cannot be started: {error}") from error
        atexit.register(self._kill, self._process.pid)
        assert self._process.stdout is not None
        return self._process.stdout

    @staticmethod
    def _kill(group: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def _read(self, stream: IO[str]) -> None:
        """Keep the newest lines, in a thread, until the end."""
        with suppress(OSError):  # a serial line that was unplugged
            new_s = 0.0
            if self._process is None:
                new_s = time.monotonic() + _BACKLOG_S
                stream.readline()  # the rest of a line
            for line in stream:
                if time.monotonic() > new_s and (text := line.strip()[:_MOST_SHOWN]):
                    self._lines.append((time.monotonic(), text))
        code = self._process.wait() if self._process else None
        self._ended = "end of file" if code is None else f"exit code {code}"

    def _of_first_lines(self) -> Sensor:
        latest_s = time.monotonic() + _FIRST_S
        while len(self._lines) < _FIRST_LINES and self._ended is None:
            if time.monotonic() > latest_s:
                raise MeterUnavailable(
                    f"{self._who} printed {len(self._lines)} lines within {_FIRST_S:g} s, not "
                    f"{_FIRST_LINES}: {_FLUSH}"
                )
            time.sleep(0.005)
        lines = list(self._lines)
        for _, text in lines:
            self._number(text)
        if len(lines) < _FIRST_LINES:
            raise MeterUnavailable(f"{self._who} has ended ({self._ended}): it must keep printing")
        refresh_s = float(np.median(np.diff([time_s for time_s, _ in lines])))
        if refresh_s < _LEAST_S:
            raise MeterUnavailable(f"{self._who} prints several lines at once: {_FLUSH}")
        return Sensor(refresh_s, averaging_s=refresh_s, counter_refresh_s=None)


def characterise_wattmeter(meter: Wattmeter, load: Load, clock: Clock = SYSTEM_CLOCK) -> Document:
    """The interval, averaging window, delay and rise time of a wattmeter in seconds, as the
    document of a sensor file with its `source`, from a random load on this machine.

    Takes 150 intervals, or 900 if the delay is of many. Raises MeterUnavailable if it fails.
    """
    for slower in _SLOWER:
        reasons: dict[str, str] = {}
        factor = slower * meter.assumed.refresh_s / _USUAL_S
        readings, _ = responses(meter, load, clock, reasons, factor)
        if readings[meter.name]["averaging_s"] is not None:
            break
    return {
        "schema_version": SCHEMA_VERSION,
        "source": meter.source,
        "meter": meter.name,
        "meter_reason": None,
        "readings": readings,
        "counter": {"refresh_s": None},
        "idle_power_w": meter.power_w(),
        "reasons": reasons,
    }
