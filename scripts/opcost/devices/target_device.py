"""Open the device of a target on this machine."""

from pkgutil import resolve_name

import torch

from opcost.devices.cores import measure_here
from opcost.devices.device import Device
from opcost.devices.kinds import KINDS, kind_of
from opcost.errors import OpcostError
from opcost.target import SETTINGS, Target


def open_device(target: Target) -> Device:
    """Open the target's device, and set this process to its cores and operating point.

    Raises OpcostError if the device does not exist here, or if PyTorch cannot use it: `auto` is
    the processor only where there is no GPU.
    """
    measure_here(target.device)
    for name, setting in SETTINGS.items():
        if setting.set_by:
            resolve_name(setting.set_by)(getattr(target, name))
    torch.set_num_threads(target.threads)
    torch.backends.cuda.matmul.allow_tf32 = target.tf32
    torch.backends.cudnn.allow_tf32 = target.tf32
    kind = kind_of(target.device)
    kinds = KINDS.values() if kind is None else (kind,)
    classes: list[type[Device]] = [resolve_name(each.implementation) for each in kinds]
    device_class = next(filter(_is_here, classes), None)
    if device_class is None:
        raise OpcostError(
            f"the target requests device {target.device!r}, but torch {torch.__version__} finds no "
            f"{target.device.partition(':')[0].upper()} device here. Use device cpu or auto, or "
            "run on a machine with one"
        )
    name, index = device_class.kind.name, int(target.device.partition(":")[2] or 0)
    if index >= (count := device_class.count()):
        raise OpcostError(
            f"the target requests device {target.device!r}; there are {count} {name.upper()} "
            f"devices here, {name}:0 to {name}:{count - 1}"
        )
    return device_class(index)


def _is_here(device_class: type[Device]) -> bool:
    """Whether there are devices of a kind. Raises OpcostError if PyTorch cannot use them."""
    if device_class.count():
        return True
    if fault := device_class.fault():
        raise OpcostError(fault)
    return False
