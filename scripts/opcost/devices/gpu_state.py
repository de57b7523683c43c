"""How an NVIDIA GPU is set up, by NVML."""

from collections.abc import Callable
from typing import Any

import pynvml


def driver_version() -> str | None:
    """The version of the driver, or None where NVML does not tell."""
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None


def gpu_state(uuid: str) -> dict[str, Any]:
    """Columns for modes, clocks asked for, and memory in use; None where NVML does not tell."""
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return {}

    def ask(question: Callable[..., Any], *arguments: int) -> Any:
        try:
            return question(handle, *arguments)
        except pynvml.NVMLError:
            return None

    ecc = ask(pynvml.nvmlDeviceGetEccMode)
    persistence = ask(pynvml.nvmlDeviceGetPersistenceMode)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo)
    target = pynvml.NVML_CLOCK_ID_APP_CLOCK_TARGET
    return {
        "ecc_enabled": None if ecc is None else bool(ecc[0]),
        "persistence_mode": None if persistence is None else bool(persistence),
        "memory_used_bytes": None if memory is None else memory.used,
        "sm_clock_target_mhz": ask(pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_SM, target),
        "memory_clock_target_mhz": ask(pynvml.nvmlDeviceGetClock, pynvml.NVML_CLOCK_MEM, target),
    }
