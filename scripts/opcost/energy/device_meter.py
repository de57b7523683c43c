"""Which meter a device has."""

from opcost.devices.device import Device
from opcost.energy.meter import Meter, MeterUnavailable
from opcost.energy.nvml import NvmlMeter
from opcost.energy.rapl import RaplMeter


def open_meter(device: Device) -> Meter:
    """The device's meter. Raises MeterUnavailable with the reason when it has none."""
    if device.torch_device.type == "cpu":
        return RaplMeter()
    if device.torch_device.type != "cuda" or device.uuid is None:
        raise MeterUnavailable(f"no energy sensor is supported for device {device.name}")
    return NvmlMeter(device.uuid)
