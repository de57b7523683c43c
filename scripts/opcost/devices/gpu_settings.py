"""Settings of an NVIDIA GPU by NVML: what rows record, power limit and clocks to set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from opcost.devices.machine import hashed_uuid
from opcost.errors import OpcostError
from opcost.target import OperatingPoint

TOLERANCE_W = 0.5
"""Allowed difference between the limit set and read back: drivers round."""

_PERMISSION = (
    "Only root may do that: run as root (sudo), or with the capability CAP_SYS_ADMIN, as in a "
    "container with docker run --cap-add SYS_ADMIN. Or have the administrator set it (nvidia-smi "
    "--power-limit, --lock-gpu-clocks), and leave it out of the target"
)
_CLOCKS = {
    "sm_clock_mhz": (
        "the clock of the multiprocessors",
        pynvml.nvmlDeviceSetGpuLockedClocks,
        pynvml.nvmlDeviceResetGpuLockedClocks,
    ),
    "memory_clock_mhz": (
        "the clock of the memory",
        pynvml.nvmlDeviceSetMemoryLockedClocks,
        pynvml.nvmlDeviceResetMemoryLockedClocks,
    ),
}


def driver_version() -> str | None:
    """The version of the driver, or None if NVML fails."""
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None


def count_gpus() -> int:
    """The number of GPUs in this machine, visible or not; 0 without NVML."""
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def gpu_state(uuid: str) -> dict[str, Any]:
    """Columns for power limit, modes, requested clocks, memory in use; None where NVML refuses."""
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return {}

    def query(function: Callable[..., Any], *arguments: int) -> Any:
        try:
            return function(handle, *arguments)
        except pynvml.NVMLError:
            return None

    limit_mw = query(pynvml.nvmlDeviceGetEnforcedPowerLimit)
    ecc = query(pynvml.nvmlDeviceGetEccMode)
    persistence = query(pynvml.nvmlDeviceGetPersistenceMode)
    memory = query(pynvml.nvmlDeviceGetMemoryInfo)
    target = pynvml.NVML_CLOCK_ID_APP_CLOCK_TARGET
    return {
        "power_limit_w": None if limit_mw is None else limit_mw / 1e3,
        "ecc_enabled": None if ecc is None else bool(ecc[0]),
        "persistence_mode": None if persistence is None else bool(persistence),
        "memory_used_bytes": None if memory is None else memory.used,
        "sm_clock_target_mhz": query(pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_SM, target),
        "memory_clock_target_mhz": query(pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_MEM, target),
    }


@dataclass(frozen=True)
class PowerLimits:
    """Power limits of a GPU in watts: present, default, and allowed range."""

    present_w: float
    default_w: float
    least_w: float
    most_w: float


class Gpu:
    """The GPU whose UUID has the hash `key`. Raises OpcostError if NVML does not find it."""

    def __init__(self, key: str) -> None:
        known: dict[str, Any] = {}
        faults = []
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            count, faults = 0, [str(error)]
        for number in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                known[hashed_uuid(pynvml.nvmlDeviceGetUUID(handle))] = handle
            except pynvml.NVMLError as error:  # does not matter for another GPU
                faults.append(f"GPU {number}: {error}")
        if key not in known:
            raise OpcostError(
                "power limit and clocks cannot be set: NVML lists no GPU whose UUID has the hash "
                f"{key}, as for a MIG instance; its hashes: {', '.join(known) or 'none'}"
                f"{''.join(f'; NVML: {each}' for each in faults)}. Check that `nvidia-smi` lists "
                "it; where there is no NVIDIA GPU, leave them out of the target"
            )
        self._handle = known[key]

    def power_limits(self) -> PowerLimits:
        """The power limits. Raises OpcostError if the GPU has none that can be set."""
        what = "the power limit of this GPU"
        least_mw, most_mw = self._read(what, pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        default_mw = self._read(what, pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return PowerLimits(self.power_limit_w(), default_mw / 1e3, least_mw / 1e3, most_mw / 1e3)

    def power_limit_w(self) -> float:
        """The present power limit. Raises OpcostError if the GPU does not report it."""
        what = "the power limit of this GPU"
        return float(self._read(what, pynvml.nvmlDeviceGetPowerManagementLimit) / 1e3)

    def temperature_c(self) -> float | None:
        """Degrees Celsius; None if the GPU does not report it."""
        try:
            sensor = pynvml.NVML_TEMPERATURE_GPU
            return float(pynvml.nvmlDeviceGetTemperature(self._handle, sensor))
        except pynvml.NVMLError:
            return None

    def check(self, point: OperatingPoint) -> None:
        """Raise OpcostError if the GPU does not allow a point."""
        self._refuse_mig()
        if point.power_limit_w is not None:
            limits = self.power_limits()
            if not limits.least_w <= point.power_limit_w <= limits.most_w:
                raise OpcostError(
                    f"power_limit_w is {point.power_limit_w:g}; this GPU allows "
                    f"{limits.least_w:g} to {limits.most_w:g} (by default {limits.default_w:g}): "
                    "choose a limit among these"
                )
        if point.sm_clock_mhz is None and point.memory_clock_mhz is None:
            return
        memory = self._read("clocks", pynvml.nvmlDeviceGetSupportedMemoryClocks)
        _check_clock("memory_clock_mhz", point.memory_clock_mhz, memory)
        if point.sm_clock_mhz is not None:
            beside = point.memory_clock_mhz or max(memory, default=0)
            supported = pynvml.nvmlDeviceGetSupportedGraphicsClocks
            found = self._read("clocks", supported, beside)
            _check_clock("sm_clock_mhz", point.sm_clock_mhz, found)

    def present(self, name: str) -> float | None:
        """The power limit; None for clocks, whose locks cannot be read."""
        return self.power_limit_w() if name == "power_limit_w" else None

    def set(self, name: str, value: float) -> None:
        """Set the power limit, or lock a clock. Raises OpcostError if it cannot be set."""
        if name == "power_limit_w":
            self.set_power_limit(value)
        else:
            what, lock, _ = _CLOCKS[name]
            self._do(f"locking {what} at {value:g} MHz", lock, int(value), int(value))

    def restore(self, name: str, before: float | None, value: float) -> str | None:
        """Restore the power limit, or release a clock. Raises OpcostError if it cannot be done.
        Returns a limit that is neither `before` nor `value`, and stays.
        """
        if before is None:
            what, _, release = _CLOCKS[name]
            self._do(f"releasing {what}", release)
            return None
        now_w = self.power_limit_w()
        if min(abs(now_w - before), abs(now_w - value)) > TOLERANCE_W:
            return f"{now_w:g} W"
        if now_w != before:  # it may not have been changed
            self.set_power_limit(before)
        return None

    def set_power_limit(self, watts: float) -> None:
        """Set the power limit. Raises OpcostError, with the limit as it was, if it cannot be set
        or reads back otherwise.
        """
        what, before_w = f"setting the power limit of this GPU to {watts:g} W", self.power_limit_w()
        self._do(what, pynvml.nvmlDeviceSetPowerManagementLimit, round(watts * 1e3))
        found_w = self.power_limit_w()
        if abs(found_w - watts) > TOLERANCE_W:
            self._do(what, pynvml.nvmlDeviceSetPowerManagementLimit, round(before_w * 1e3))
            raise OpcostError(
                f"the power limit was set to {watts:g} W, and the GPU reported {found_w:g} W: "
                "choose a limit that it keeps"
            )

    def _refuse_mig(self) -> None:
        try:
            mig, _ = pynvml.nvmlDeviceGetMigMode(self._handle)
        except pynvml.NVMLError:
            return  # GPUs without MIG do not support the query
        if mig:
            raise OpcostError(
                "the GPU is in MIG mode: a power limit or a locked clock would be that of all its "
                "instances. Set it on a GPU without MIG, or leave it out of the target"
            )

    def _read(self, what: str, function: Callable[..., Any], *arguments: int) -> Any:
        try:
            return function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            raise OpcostError(
                f"{what} cannot be read (NVML: {error}), and is therefore not set: leave it out of "
                "the target"
            ) from error

    def _do(self, what: str, function: Callable[..., Any], *arguments: int) -> None:
        try:
            function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            refused = error.value == pynvml.NVML_ERROR_NO_PERMISSION
            raise OpcostError(
                f"{what} failed: NVML: {error}." + (f" {_PERMISSION}" if refused else "")
            ) from error


def _check_clock(name: str, mhz: int | None, supported: Sequence[int]) -> None:
    if mhz is None or mhz in supported:
        return
    near = sorted(supported, key=lambda each: abs(each - mhz))[:4]
    raise OpcostError(
        f"{name} is {mhz}; this GPU supports {len(supported)} clocks from "
        f"{min(supported, default=0)} to {max(supported, default=0)}, the closest "
        f"{', '.join(map(str, sorted(near)))}: choose one of them (nvidia-smi -q -d "
        "SUPPORTED_CLOCKS lists all)"
    )
