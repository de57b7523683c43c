"""The kinds of device that operators run on: a registry, which opens no device.

It imports no torch: the workflow asks it each time that Snakemake starts. A further kind is an
entry here, and a module with a subclass of `Device`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opcost.devices import cpuinfo
from opcost.devices.installation import loaded_driver
from opcost.devices.machine import machine_id_hash


@dataclass(frozen=True)
class Kind:
    """A kind of device: `name` as PyTorch has it, `implementation` its module and class.

    `host_sets_pace`: operators return when they are done, so that what calls cost adds to them;
    otherwise the host runs ahead of the device. `is_processor`: measurements use the processor
    itself, which nothing else may use meanwhile. `recorded` tells, without opening a device, what
    rows will say of it on this machine.
    """

    name: str
    implementation: str
    host_sets_pace: bool
    is_processor: bool
    recorded: Callable[[], Mapping[str, Any]]


def _of_processor() -> dict[str, Any]:
    return {
        "device": "cpu",
        "device_name": cpuinfo.processor_name(),
        "last_level_cache_bytes": cpuinfo.last_level_cache_bytes(),
        "core_cache_bytes": cpuinfo.core_cache_bytes(),
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine_id_hash(),
    }


def _of_nvidia() -> dict[str, Any]:
    return {"driver_version": loaded_driver(), "machine_id_hash": machine_id_hash()}


_CPU = Kind("cpu", "opcost.devices.processor:CpuDevice", True, True, _of_processor)
_CUDA = Kind("cuda", "opcost.devices.gpu:CudaDevice", False, False, _of_nvidia)

KINDS = {kind.name: kind for kind in (_CUDA, _CPU)}
"""By name; `device: auto` is the first that this machine has."""


def kind_of(device: str | None) -> Kind | None:
    """The kind of a device by its name, such as `cuda:1`; None for `auto`, which may be any."""
    return KINDS.get((device or "").partition(":")[0])


def host_sets_pace(device: str | None) -> bool:
    """Whether calls add to the time on a device; not known, and so False, of `auto`."""
    kind = kind_of(device)
    return kind is not None and kind.host_sets_pace
