"""The environment here, as far as it can be told without importing torch or opening a device."""

import os
from pathlib import Path
from typing import Any

from opcost.devices import cpuinfo
from opcost.devices.installation import installed_torch, loaded_driver
from opcost.devices.machine import machine_id_hash
from opcost.environments.changes import Change, changes_of
from opcost.environments.recorded import recorded_environment
from opcost.study import Target


def changes_here(
    folder: Path, settings: Target, *, torch: bool = True, machine: bool = True
) -> list[Change]:
    """What changed since the target of a folder was measured, as far as it can be told.

    `torch` and `machine` say whether jobs run with the torch of this Python, and on this machine.
    Raises OpcostError for a damaged file.
    """
    device = recorded_environment(folder).get("device", settings.device)
    now = installed_torch() if torch else {}
    if device == "cpu":
        now = {**now, "cuda_version": None, **(_processor() if machine else {})}
    elif machine:
        now = {**now, "driver_version": loaded_driver(), "machine_id_hash": machine_id_hash()}
    return changes_of(folder, now, settings.any_of_kind)


def _processor() -> dict[str, Any]:
    return {
        "device": "cpu",
        "device_name": cpuinfo.processor_name(),
        "last_level_cache_bytes": cpuinfo.last_level_cache_bytes(),
        "core_cache_bytes": cpuinfo.core_cache_bytes(),
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine_id_hash(),
    }
