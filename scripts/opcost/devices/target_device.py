"""Open the device of a target on this machine."""

import importlib

import torch

from opcost.devices.cores import measure_here
from opcost.devices.device import Device
from opcost.devices.kinds import KINDS, Kind, kind_of
from opcost.errors import OpcostError
from opcost.study import Target


def open_device(target: Target) -> Device:
    """Open the target's device, and set this process to its cores and operating point.

    Raises OpcostError if the device does not exist here.
    """
    measure_here(target.device)
    torch.set_num_threads(target.threads)
    torch.backends.cuda.matmul.allow_tf32 = target.tf32
    torch.backends.cudnn.allow_tf32 = target.tf32
    kind = kind_of(target.device)
    if kind is None:
        classes = map(_class_of, KINDS.values())
        return next(each for each in classes if each.count())(0)
    device_class = _class_of(kind)
    index, count = int(target.device.partition(":")[2] or 0), device_class.count()
    if not count:
        raise OpcostError(
            f"the target requests device {target.device!r}, but torch {torch.__version__} finds no "
            f"{kind.name.upper()} device here. Use device cpu or auto, or run on a machine with one"
        )
    if index >= count:
        raise OpcostError(
            f"the target requests device {target.device!r}; there are {count} {kind.name.upper()} "
            f"devices here, {kind.name}:0 to {kind.name}:{count - 1}"
        )
    return device_class(index)


def _class_of(kind: Kind) -> type[Device]:
    module, _, name = kind.implementation.partition(":")
    found: type[Device] = getattr(importlib.import_module(module), name)
    return found
