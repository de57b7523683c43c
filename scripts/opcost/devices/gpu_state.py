"""Power limit, modes and clocks of an NVIDIA GPU, from NVML."""

from collections.abc import Callable
from typing import Any

import pynvml


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
