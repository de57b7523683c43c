"""The environment here, as far as it can be told without importing torch or opening a device."""

import os
from typing import Any

from opcost.devices import cpuinfo
from opcost.devices.installation import installed_torch, loaded_driver
from opcost.devices.machine import machine_id_hash


def present_torch(on_processor: bool) -> dict[str, Any]:
    """The versions that a job gets which runs on this Python."""
    found = installed_torch()
    return found | {"cuda_version": None} if on_processor else found


def present_machine(on_processor: bool) -> dict[str, Any]:
    """The machine, with its driver, or with its processor if that is what is measured."""
    found: dict[str, Any] = {"machine_id_hash": machine_id_hash()}
    if not on_processor:
        return found | {"driver_version": loaded_driver()}
    return found | {
        "device": "cpu",
        "device_name": cpuinfo.processor_name(),
        "last_level_cache_bytes": cpuinfo.last_level_cache_bytes(),
        "core_cache_bytes": cpuinfo.core_cache_bytes(),
        "cpu_count": os.cpu_count(),
    }
