"""The power sensor of an NVIDIA GPU, read through NVML.

Field numbers and their units are from the NVML reference, section "Field Value Enums".
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pynvml

from opcost.energy.meter import DeviceState, Meter, MeterUnavailable, plausible_w
from opcost.energy.sensor import Sensor

GAIN_UNCERTAINTY = 0.05
"""Relative; NVIDIA states +-5 %, and arXiv 2312.02741 measured gain errors of up to 5 %."""

_SW_THERMAL, _HW_THERMAL, _BRAKE = 269, 270, 271
_POWER_CAP = pynvml.NVML_FI_DEV_PERF_POLICY_POWER

_INSTANT = Sensor(refresh_s=0.1, averaging_s=0.1, gain_uncertainty=GAIN_UNCERTAINTY)
"""ASSUME the slowest known refresh of A100, H100 and Ada cards (arXiv 2312.02741, table 2)."""

_AVERAGED = Sensor(refresh_s=0.1, averaging_s=1.0, gain_uncertainty=GAIN_UNCERTAINTY)
"""A mean over one second on Ampere (except GA100) and later (NVML, nvmlDeviceGetPowerUsage)."""


class NvmlMeter(Meter):
    """Power of the GPU with a UUID, by its best reading, which `name` identifies.

    That is the instantaneous one (field 186), else nvmlDeviceGetPowerUsage, on most GPUs a mean
    over a second. Raises MeterUnavailable with NVML's reason, also for a GPU in MIG mode, where all
    instances share the sensor.
    """

    def __init__(self, uuid: str) -> None:
        self._handle = _ask(_open, uuid)
        try:
            mig, _ = pynvml.nvmlDeviceGetMigMode(self._handle)
        except pynvml.NVMLError:
            mig = 0  # GPUs without MIG do not support the query
        if mig:
            raise MeterUnavailable(
                f"GPU {uuid} is in MIG mode: its power sensor covers all instances together. "
                "Measure energy on a GPU without MIG"
            )
        self.missing = {}
        self._readings = self._probe()
        if not self._readings:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.missing.items())
            raise MeterUnavailable(f"NVML gives no power reading: {reasons}")
        preferred = [name for name in self._readings if name != "nvml_power_average"]
        self.name = (preferred or list(self._readings))[0]
        self.assumed = _INSTANT if self.name == "nvml_power_instant" else _AVERAGED
        self._counter = self._try("energy counter", self._energy_j) is not None

    def power_w(self) -> float:
        """The reading `name`, in watts."""
        return _ask(self._readings[self.name])

    def counter_j(self) -> float | None:
        """Joules since the driver was loaded."""
        return _ask(self._energy_j) if self._counter else None

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """`nvml_power_instant` (field 186), `nvml_power_average` (185), `nvml_power_usage`."""
        return {name: partial(_ask, read) for name, read in self._readings.items()}

    def state(self) -> DeviceState:
        """Clocks, temperature and so on; None where NVML refuses the query."""
        missing: dict[str, str] = {}

        def read(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
            return self._try(name, lambda: function(self._handle, *arguments), missing)

        limit_mw = read("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit)
        rates = read("utilisation", pynvml.nvmlDeviceGetUtilizationRates)
        return DeviceState(
            sm_clock_mhz=read("sm_clock_mhz", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=read(
                "memory_clock_mhz", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM
            ),
            performance_state=read("performance_state", _performance_state),
            temperature_c=read(
                "temperature_c", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
            ),
            utilisation=None if rates is None else rates.gpu / 100,
            power_limit_w=None if limit_mw is None else limit_mw / 1e3,
            power_capped_s=self._throttle_s("power_capped_s", [_POWER_CAP], missing),
            thermal_throttle_s=self._throttle_s(
                "thermal_throttle_s", [_SW_THERMAL, _HW_THERMAL], missing
            ),
            brake_throttle_s=self._throttle_s("brake_throttle_s", [_BRAKE], missing),
            other_processes=self._try("other_processes", self._others, missing),
            missing=missing,
        )

    def memory_by_process(self) -> Mapping[int, int]:
        """Compute processes only; in a container, NVML hides those of other users."""
        try:
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except pynvml.NVMLError:
            return {}
        return {each.pid: each.usedGpuMemory or 0 for each in found}

    def _probe(self) -> dict[str, Callable[[], float]]:
        """The available readings, the best first; reasons for the others go to `missing`."""
        wanted: dict[str, Callable[[], float]] = {
            "nvml_power_instant": lambda: _watts(
                self._field(pynvml.NVML_FI_DEV_POWER_INSTANT).uiVal
            ),
            "nvml_power_usage": lambda: _watts(pynvml.nvmlDeviceGetPowerUsage(self._handle)),
            "nvml_power_average": lambda: _watts(
                self._field(pynvml.NVML_FI_DEV_POWER_AVERAGE).uiVal
            ),
        }
        return {name: read for name, read in wanted.items() if self._try(name, read) is not None}

    def _try(
        self, name: str, read: Callable[[], Any], missing: dict[str, str] | None = None
    ) -> Any:
        """The result of `read`, or None with the reason in `missing`; only a lost GPU raises."""
        try:
            return read()
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise MeterUnavailable(f"NVML: {error}") from error
            (self.missing if missing is None else missing)[name] = f"NVML: {error}"
            return None

    def _energy_j(self) -> float:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3

    def _field(self, number: int) -> Any:
        [found] = pynvml.nvmlDeviceGetFieldValues(self._handle, [number])
        if found.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(found.nvmlReturn)
        return found.value

    def _throttle_s(
        self, name: str, fields: Sequence[int], missing: dict[str, str]
    ) -> float | None:
        times = [self._try(name, partial(self._nanoseconds, n), missing) for n in fields]
        known = [time_ns / 1e9 for time_ns in times if time_ns is not None]
        return sum(known) if known else None

    def _nanoseconds(self, number: int) -> int:
        return self._field(number).ullVal

    def _others(self) -> int:
        pids = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)]
        if os.getpid() in pids:
            return len(pids) - 1
        # In a container, the driver may know this process by another id.
        torch = sys.modules.get("torch")
        return max(0, len(pids) - bool(torch and torch.cuda.is_initialized()))


def has_library() -> bool:
    """Whether NVIDIA's driver is installed."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return bool(error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    return True


def device_uuids() -> list[str]:
    """The UUIDs of all GPUs of this machine, in NVML's order. Raises MeterUnavailable."""
    return _of_all(pynvml.nvmlDeviceGetUUID)


def device_serials() -> list[str]:
    """The serial numbers of all GPUs of this machine. Raises MeterUnavailable if one has none."""
    return _of_all(pynvml.nvmlDeviceGetSerial)


def _of_all(question: Callable[[Any], str]) -> list[str]:
    def read() -> list[str]:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [question(handle) for handle in handles]

    return _ask(read)


def visible_uuid(device: str, uuids: Sequence[str], visible: str | None) -> str:
    """The UUID of `device`, given as CUDA's index, a UUID or the beginning of one.

    `visible` is CUDA_VISIBLE_DEVICES (None if unset), which renumbers GPUs; CUDA ignores entries
    from the first invalid one on (CUDA C++ Programming Guide, "Environment variables"). Raises
    MeterUnavailable if there is no such GPU, or only a MIG instance.
    """
    chosen = all_visible(uuids, visible)
    if device.isdigit():
        matches = chosen[int(device) : int(device) + 1]
    else:
        matches = [uuid for uuid in chosen if uuid.startswith(device)]
    if len(matches) != 1:
        limits = "" if visible is None else f" among CUDA_VISIBLE_DEVICES={visible}"
        raise MeterUnavailable(
            f"no GPU {device!r}{limits}; there are {', '.join(chosen) or 'none'}"
        )
    return matches[0]


def all_visible(uuids: Sequence[str], visible: str | None) -> list[str]:
    """The UUIDs that CUDA_VISIBLE_DEVICES leaves, in its order. Raises MeterUnavailable for MIG."""
    if visible is None:
        return list(uuids)
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.startswith("MIG-"):
            raise MeterUnavailable(
                f"{entry} is a MIG instance, which has no power sensor of its own"
            )
        if entry.isdigit():
            matches = list(uuids[int(entry) : int(entry) + 1])
        else:
            matches = [uuid for uuid in uuids if entry and uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen += matches
    return chosen


def _performance_state(handle: Any) -> str | None:
    """`P0` is the fastest, `P15` the slowest."""
    number = pynvml.nvmlDeviceGetPerformanceState(handle)
    return f"P{number}" if number in range(16) else None


def _open(uuid: str) -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        raise MeterUnavailable(f"NVML: {error}") from error


def _watts(milliwatts: int) -> float:
    return plausible_w(milliwatts / 1e3)
