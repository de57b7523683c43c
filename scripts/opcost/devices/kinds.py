"""The registry of device kinds. A new kind is an entry here and a module with a `Device` subclass.

Imports no torch and opens no device: the workflow uses it each time Snakemake starts.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opcost.devices import machine


@dataclass(frozen=True)
class Kind:
    """A kind of device: PyTorch's `name`, and the module and class that implement it.

    `host_sets_pace`: operators are synchronous, so call overhead adds to their time; otherwise the
    host runs ahead of the device. `is_processor`: nothing else may use the processor during
    measurements. `recorded` returns the environment's columns without opening a device. `settable`
    is the module and class that set an operating point (operating_point.py).

    `protocol_version` is incremented when the same settings define a different measurement on
    devices of this kind: everything is then measured again on these.
    """

    name: str
    implementation: str
    host_sets_pace: bool
    is_processor: bool
    recorded: Callable[[], Mapping[str, Any]]
    settable: str
    protocol_version: int


def _of_processor() -> dict[str, Any]:
    return {
        "device": "cpu",
        "device_name": machine.processor_name(),
        "last_level_cache_bytes": machine.last_level_cache_bytes(),
        "core_cache_bytes": machine.core_cache_bytes(),
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine.machine_id_hash(),
        "process_environment": machine.PROCESS_ENVIRONMENT,
    }


def _of_nvidia() -> dict[str, Any]:
    return {
        "driver_version": machine.loaded_driver(),
        "machine_id_hash": machine.machine_id_hash(),
        "process_environment": machine.PROCESS_ENVIRONMENT,
    }


_CPU = Kind(
    "cpu",
    "opcost.devices.processor:CpuDevice",
    host_sets_pace=True,
    is_processor=True,
    recorded=_of_processor,
    settable="opcost.devices.processor_settings:Processor",
    protocol_version=7,
)
_CUDA = Kind(
    "cuda",
    "opcost.devices.gpu:CudaDevice",
    host_sets_pace=False,
    is_processor=False,
    recorded=_of_nvidia,
    settable="opcost.devices.gpu_settings:Gpu",
    protocol_version=5,
)

KINDS = {kind.name: kind for kind in (_CUDA, _CPU)}
"""Name -> kind; `device: auto` is the first that this machine has."""


def kind_of(device: str | None) -> Kind | None:
    """The kind of a device such as `cuda:1`; None for `auto`, which may be any."""
    return KINDS.get((device or "").partition(":")[0])


def resolved(
    device: str,
    software: Mapping[str, str | None],
    uuid_of: Callable[[str, str], str | None],
) -> str:
    """The device that a name denotes on this machine: `auto` is a GPU if PyTorch can use one, as
    far as known without opening it.

    `uuid_of` returns the UUID of a kind and number; where there is none, as in some containers, the
    kernel's driver decides.
    """
    if kind_of(device) is not None:
        return device
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    found = uuid_of(_CUDA.name, "0") or (machine.loaded_driver() and not hidden)
    return (_CUDA if software.get("cuda_version") and found else _CPU).name


def kind_locked_as(key: str) -> Kind:
    """The kind of device of a lock's key: the part before a colon; a bare hash of a UUID is that of
    an NVIDIA GPU.
    """
    return KINDS.get(key.partition(":")[0], _CUDA)


def wait_for_devices() -> None:
    """Wait until the devices have done all work that PyTorch has launched in this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        for number in range(torch.cuda.device_count()):  # a processor works synchronously
            torch.cuda.synchronize(number)


def host_sets_pace(device: str | None) -> bool:
    """Whether call overhead adds to the time on a device; False for `auto`, where it is unknown."""
    kind = kind_of(device)
    return kind is not None and kind.host_sets_pace


def protocol_version(device: str | None) -> int:
    """The version of the measurement protocol on a device; of `auto` or None, a processor's."""
    return (kind_of(device) or _CPU).protocol_version
