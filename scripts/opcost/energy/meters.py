"""The registry of meters. A new meter is a module with a subclass of `Meter` and an entry here."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from opcost.energy.meter import Meter, MeterUnavailable
from opcost.energy.rapl import RaplMeter


class _Entry(NamedTuple):
    """How to open a meter by the device's UUID; how to find the UUIDs of all devices that this
    process may see; and that of one by its number, where opening the device would change its idle
    power."""

    open: Callable[[str | None], Meter]
    uuids: Callable[[], Sequence[str | None]]
    uuid: Callable[[str], str] | None = None


def open_meter(kind: str, uuid: str | None) -> Meter:
    """The meter of a device. Raises MeterUnavailable if there is none."""
    if kind not in _METERS:
        raise MeterUnavailable(f"no energy sensor is supported for devices of kind {kind}")
    return _METERS[kind].open(uuid)


def every_meter() -> tuple[dict[str, tuple[str, str | None]], dict[str, str]]:
    """Name -> (kind, UUID) of all devices that this process may see, named as in targets (`cuda:0`,
    `cpu`); and name or kind -> why it has no meter.
    """
    found: dict[str, tuple[str, str | None]] = {}
    missing: dict[str, str] = {}
    for kind, entry in _METERS.items():
        try:
            for number, uuid in enumerate(entry.uuids()):
                found[kind if uuid is None else f"{kind}:{number}"] = kind, uuid
        except MeterUnavailable as reason:
            missing[kind] = str(reason)
    return found, missing


def untouched_uuid(kind: str, number: str) -> str | None:
    """The UUID of a device, found without opening it.

    None for a kind whose idle power does not depend on that. Raises MeterUnavailable.
    """
    entry = _METERS.get(kind)
    return entry.uuid(number) if entry and entry.uuid else None


def _nvml(uuid: str | None) -> Meter:
    from opcost.energy.nvml import NvmlMeter  # only where there is a GPU

    if uuid is None:
        raise MeterUnavailable("the GPU has no UUID, by which NVML finds it")
    return NvmlMeter(uuid)


def _nvidia_uuid(number: str) -> str:
    from opcost.energy.nvml import device_uuids, visible_uuid

    return visible_uuid(number or "0", device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _nvidia_uuids() -> list[str | None]:
    from opcost.energy.nvml import all_visible, device_uuids

    return [*all_visible(device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))]


_METERS: Mapping[str, _Entry] = {
    "cpu": _Entry(lambda uuid: RaplMeter(), lambda: [None]),
    "cuda": _Entry(_nvml, _nvidia_uuids, _nvidia_uuid),
}
