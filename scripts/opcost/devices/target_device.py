"""The device that a target stands for on this machine."""

import torch

from opcost.devices.cores import measure_here
from opcost.devices.device import Device
from opcost.devices.gpu import CudaDevice
from opcost.devices.processor import CpuDevice
from opcost.errors import OpcostError
from opcost.study import Target


def open_device(target: Target) -> Device:
    """The target's device, set to the target's operating point; this process measures from now on.

    Raises OpcostError when it does not exist here.
    """
    measure_here(target.device)
    torch.set_num_threads(target.threads)
    torch.backends.cuda.matmul.allow_tf32 = target.tf32
    torch.backends.cudnn.allow_tf32 = target.tf32
    if target.device == "cpu" or (target.device == "auto" and not torch.cuda.is_available()):
        return CpuDevice()
    if not torch.cuda.is_available():
        raise OpcostError(
            f"the target asks for device {target.device!r}, but torch {torch.__version__} finds no "
            "CUDA device here. Use device cpu or auto, or run on a machine with an NVIDIA GPU"
        )
    index = int(target.device.partition(":")[2] or 0) if target.device != "auto" else 0
    if index >= torch.cuda.device_count():
        raise OpcostError(
            f"the target asks for device {target.device!r}; there are {torch.cuda.device_count()} "
            f"CUDA devices here, cuda:0 to cuda:{torch.cuda.device_count() - 1}"
        )
    return CudaDevice(index)
