"""The environment of a measurement: hardware, driver, versions and present load."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

import opcost
from opcost.devices.device import Device
from opcost.devices.machine_id import machine_id_hash
from opcost.devices.process_environment import PROCESS_ENVIRONMENT
from opcost.devices.thread_library import thread_library

_NO_SOFTWARE = dict.fromkeys(("driver_version", "cuda_version", "cudnn_version"))


def describe_environment(device: Device) -> dict[str, Any]:
    """The environment's columns of a record; None if inapplicable or unknown."""
    return {
        **stable_environment(device),
        **device.setup(),
        "device": device.name,
        "allocator": device.allocator,
        "torchvision_version": _torchvision(),
        "python_version": platform.python_version(),
        "opcost_version": opcost.__version__,
        "workflow_commit": opcost.workflow_commit or None,
        "os": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_average": os.getloadavg()[0],
        "measured_at": datetime.now(UTC),
    }


def stable_environment(device: Device) -> dict[str, Any]:
    """The columns that are equal in all rows, unless hardware or software changes."""
    return {
        "device_name": device.model_name,
        "device_uuid_hash": device.uuid_hash,
        "last_level_cache_bytes": device.last_level_cache_bytes,
        "core_cache_bytes": device.core_cache_bytes,
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine_id_hash(),
        "thread_library": thread_library(),
        "process_environment": PROCESS_ENVIRONMENT,
        **_NO_SOFTWARE,
        **device.software(),
        "torch_version": str(torch.__version__),
    }


def _torchvision() -> str | None:
    try:
        return metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return None
