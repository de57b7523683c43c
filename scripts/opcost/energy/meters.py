"""Which meter a kind of device has: a registry.

A further meter is a module with a subclass of `Meter`, and an entry here.
"""

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from opcost.energy.meter import Meter, MeterUnavailable
from opcost.energy.rapl import RaplMeter


class _Entry(NamedTuple):
    """How to open the meter of the device with a UUID; how to know its UUID by its number, where
    opening the device changes the power that it draws when idle."""

    open: Callable[[str | None], Meter]
    uuid: Callable[[str], str] | None = None


def open_meter(kind: str, uuid: str | None) -> Meter:
    """The meter of a device of that kind. Raises MeterUnavailable with the reason for none."""
    if kind not in _METERS:
        raise MeterUnavailable(f"no energy sensor is supported for devices of kind {kind}")
    return _METERS[kind].open(uuid)


def untouched_uuid(kind: str, number: str) -> str | None:
    """The UUID of a device that this process has not opened.

    None for a kind that draws the same power whether it is opened or not. Raises MeterUnavailable.
    """
    entry = _METERS.get(kind)
    return entry.uuid(number) if entry and entry.uuid else None


def _nvml(uuid: str | None) -> Meter:
    from opcost.energy.nvml import NvmlMeter  # only where there is a GPU

    if uuid is None:
        raise MeterUnavailable("the GPU has no UUID by which NVML could find it")
    return NvmlMeter(uuid)


def _nvidia_uuid(number: str) -> str:
    from opcost.energy.nvml import device_uuids, visible_uuid

    return visible_uuid(number or "0", device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))


_METERS: Mapping[str, _Entry] = {
    "cpu": _Entry(lambda uuid: RaplMeter()),
    "cuda": _Entry(_nvml, _nvidia_uuid),
}
