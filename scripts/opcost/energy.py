"""Meters of power and energy. The only module that talks to NVML.

Raw readings (milliwatts, millijoules) become watts and joules here, once.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pynvml

from opcost.device import Device

REFRESH_S = 0.1
"""ASSUME the slowest sensor refresh known of A100, H100 and Ada cards (arXiv 2312.02741)."""


class MeterUnavailable(Exception):
    """Why energy cannot be measured here; an answer, not an error."""


class Meter(ABC):
    """A power sensor of one device, with an energy counter beside it where there is one."""

    name: str

    @abstractmethod
    def power_w(self) -> float:
        """The power drawn now, in watts. Raises MeterUnavailable."""

    @abstractmethod
    def counter_j(self) -> float | None:
        """Energy since some fixed moment, in joules, or None without a counter."""


class NvmlMeter(Meter):
    """Power of an NVIDIA GPU.

    Reads the instantaneous power (field 186) where the GPU has it: on Ampere and later the plain
    reading is an average over a second (NVML reference, nvmlDeviceGetPowerUsage).
    """

    name = "nvml_power_instant"

    def __init__(self, uuid: str) -> None:
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise MeterUnavailable(f"NVML: {error}") from error
        self.power_w()

    def power_w(self) -> float:
        """The instantaneous power, in watts."""
        try:
            [field_value] = pynvml.nvmlDeviceGetFieldValues(
                self._handle, [pynvml.NVML_FI_DEV_POWER_INSTANT]
            )
        except pynvml.NVMLError as error:
            raise MeterUnavailable(f"NVML: {error}") from error
        if field_value.nvmlReturn != pynvml.NVML_SUCCESS:
            answer = pynvml.NVMLError(field_value.nvmlReturn)
            raise MeterUnavailable(f"NVML has no instantaneous power for this GPU: {answer}")
        return field_value.value.uiVal / 1e3

    def counter_j(self) -> float | None:
        """Energy since the driver was loaded, in joules."""
        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        except pynvml.NVMLError:
            return None


def open_meter(device: Device) -> Meter:
    """The device's meter. Raises MeterUnavailable with the reason when it has none."""
    if device.torch_device.type != "cuda" or device.uuid is None:
        raise MeterUnavailable(f"no energy sensor is supported for device {device.name}")
    return NvmlMeter(device.uuid)


@dataclass
class PowerRecord:
    """Readings over one window; times in seconds of the monotonic clock."""

    times_s: list[float] = field(default_factory=list)
    powers_w: list[float] = field(default_factory=list)
    counter_start_j: float | None = None
    counter_end_j: float | None = None
    start_s: float = 0.0
    end_s: float = 0.0
    failure: str | None = None

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return self.end_s - self.start_s

    @property
    def counter_power_w(self) -> float | None:
        """Mean power by the energy counter, or None without one."""
        if self.counter_start_j is None or self.counter_end_j is None:
            return None
        return (self.counter_end_j - self.counter_start_j) / self.window_s

    def refreshes(self) -> list[tuple[float, float]]:
        """(seconds held, watts) of each value that the sensor showed in turn."""
        held: list[tuple[float, float]] = []
        ends = [*self.times_s[1:], self.end_s]
        for begin, end, power_w in zip(self.times_s, ends, self.powers_w, strict=True):
            if held and held[-1][1] == power_w:
                held[-1] = (held[-1][0] + end - begin, power_w)
            else:
                held.append((end - begin, power_w))
        return held


@contextmanager
def recording(meter: Meter) -> Iterator[PowerRecord]:
    """Poll the meter four times per refresh from a thread while the block runs."""
    record = PowerRecord()
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            try:
                power_w = meter.power_w()
            except MeterUnavailable as error:
                record.failure = str(error)
                return
            record.times_s.append(time.monotonic())
            record.powers_w.append(power_w)
            stop.wait(REFRESH_S / 4)

    thread = threading.Thread(target=poll, daemon=True)
    record.counter_start_j = meter.counter_j()
    record.start_s = time.monotonic()
    thread.start()
    try:
        yield record
    finally:
        record.end_s = time.monotonic()
        record.counter_end_j = meter.counter_j()
        stop.set()
        thread.join()
        # A reading taken while the window was being closed is outside of it.
        while record.times_s and record.times_s[-1] > record.end_s:
            record.times_s.pop()
            record.powers_w.pop()
