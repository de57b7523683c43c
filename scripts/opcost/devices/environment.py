"""What the numbers were taken on: hardware, driver, versions and load at the moment."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

import opcost
from opcost.devices.device import Device
from opcost.devices.machine import machine_id_hash
from opcost.devices.thread_library import thread_library


def describe_environment(device: Device) -> dict[str, Any]:
    """The columns of a record that say what it was measured on.

    None where something does not apply or is not known.
    """
    return {
        **stable_environment(device),
        **(_gpu_state(device) if device.torch_device.type == "cuda" else {}),
        "device": device.name,
        "allocator": device.allocator,
        "torchvision_version": _version("torchvision"),
        "python_version": platform.python_version(),
        "opcost_version": opcost.__version__,
        "workflow_commit": os.environ.get("OPCOST_COMMIT") or None,
        "os": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_average": os.getloadavg()[0],
        "measured_at": datetime.now(UTC),
    }


def stable_environment(device: Device) -> dict[str, Any]:
    """Those of them that are the same from row to row, unless somebody changed something."""
    on_gpu = device.torch_device.type == "cuda"
    return {
        "device_name": device.model_name,
        "device_uuid_hash": device.uuid_hash,
        "last_level_cache_bytes": device.last_level_cache_bytes,
        "core_cache_bytes": device.core_cache_bytes,
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine_id_hash(),
        "thread_library": thread_library(),
        "driver_version": _driver_version() if on_gpu else None,
        "cuda_version": torch.version.cuda if on_gpu else None,
        "cudnn_version": str(torch.backends.cudnn.version()) if on_gpu else None,
        "torch_version": str(torch.__version__),
    }


def _gpu_state(device: Device) -> dict[str, Any]:
    from opcost.devices.gpu_state import gpu_state  # only where there is a GPU

    return gpu_state(device.uuid) if device.uuid else {}


def _driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
