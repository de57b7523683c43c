"""The machine beside the power: its processor and the memory of the program, and a log of all."""

import csv
import math
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from opcost.errors import OpcostError
from opcost.power.attribution import User, busy_s
from opcost.power.monitor import Monitor
from opcost.power.recording import SAMPLE
from opcost.power.windows import Window
from opcost.terminal import tell

_THERMOMETERS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Linux's drivers of thermometers in processors: of Intel, AMD (two), Arm."""

_LEAST_S, _SLOW_S = 0.1, 1.0
"""How often to read at most, as edges of windows come close together; and what takes long to read:
processes and thermometers."""


class Machine:
    """Reads processor time and temperature, and the memory of the processes of a user, if any."""

    def __init__(self, user: User | None) -> None:
        self._user = user
        self._read_s = self._slow_s = -math.inf

    def records(self, number: int) -> list[tuple[float, ...]]:
        """A sample of the source `number`, or none so soon after the last."""
        now_s = time.monotonic()
        if now_s < self._read_s + _LEAST_S:
            return []
        self._read_s = now_s
        known = {"time_s": now_s, "source": number, "all_use": busy_s()}
        if now_s >= self._slow_s + _SLOW_S:
            self._slow_s, known["temperature_c"] = now_s, _processor_c()
            if self._user is not None:
                known["own_memory_bytes"] = self._user.resident_bytes()
        return [tuple(known.get(name, math.nan) for name in SAMPLE.names or ())]


def _processor_c() -> float:
    """The highest temperature that the processor shows, in degrees Celsius; NaN for none."""
    found = psutil.sensors_temperatures()
    shown = [each.current for name in _THERMOMETERS for each in found.get(name, [])]
    return max(shown, default=math.nan)


class PowerLog:
    """A new CSV file with a row for each call: power of each device since the last row, energy of
    the window, and the machine since the last row. Empty for what is unknown.
    """

    def __init__(self, path: Path, monitor: Monitor) -> None:
        try:
            self._file = path.open("x", newline="", encoding="utf-8")
        except FileExistsError as error:
            raise OpcostError(f"{path} exists: name another file") from error
        self._monitor, self._before_s = monitor, monitor.edge()
        self._writer = csv.writer(self._file)
        devices = [f"{name}_{what}" for name in monitor.devices for what in ("power_w", "energy_j")]
        machine = monitor.machine(self._before_s, self._before_s)
        self._write(["time", "time_s", *devices, *machine])

    def __call__(self, window: Window) -> None:
        """Add a row for a window that is not over."""
        now_s, time_s = self._monitor.edge(), window.time_s
        latest, so_far = self._monitor.energy(self._before_s, now_s), window.so_far(now_s)
        row = [datetime.now(UTC).isoformat(timespec="milliseconds"), f"{time_s:.3f}"]
        for name in self._monitor.devices:
            energy = so_far[name].energy
            energy_j = None if energy is None else energy.value
            row += [_text(latest[name].mean_power_w), _text(energy_j)]
        machine = self._monitor.machine(self._before_s, now_s)
        row += [
            _text(value, ".0f" if name.endswith("_bytes") else ".6g")
            for name, value in machine.items()
        ]
        self._before_s = now_s
        self._write(row)

    def _write(self, row: list[str]) -> None:
        try:
            self._writer.writerow(row)
            self._file.flush()
        except OSError as error:
            tell(f"opcost: {self._file.name} ends here ({error.strerror}): the energy is measured")
            raise


def _text(value: float | None, digits: str = ".6g") -> str:
    return "" if value is None else format(value, digits)
