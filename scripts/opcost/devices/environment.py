"""What the numbers were taken on: hardware, driver, versions and load at the moment."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

import opcost
from opcost.devices.device import Device


def describe_environment(device: Device) -> dict[str, Any]:
    """The provenance columns of a record; None where something does not apply or is not known."""
    on_gpu = device.torch_device.type == "cuda"
    return {
        "device": device.name,
        "device_name": device.model_name,
        "device_uuid_hash": device.uuid_hash,
        "allocator": device.allocator,
        "last_level_cache_bytes": device.last_level_cache_bytes,
        "core_cache_bytes": device.core_cache_bytes,
        "driver_version": _driver_version() if on_gpu else None,
        "cuda_version": torch.version.cuda if on_gpu else None,
        "cudnn_version": str(torch.backends.cudnn.version()) if on_gpu else None,
        "torch_version": str(torch.__version__),
        "torchvision_version": _version("torchvision"),
        "python_version": platform.python_version(),
        "opcost_version": opcost.__version__,
        "os": platform.platform(),
        "cpu_count": os.cpu_count(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_average": os.getloadavg()[0],
        "measured_at": datetime.now(UTC),
    }


def _driver_version() -> str | None:
    import pynvml  # only where there is a GPU

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
