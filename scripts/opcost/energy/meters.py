"""The registry of meters. A new meter is a module with a subclass of `Meter` and an entry here."""

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from opcost.energy.meter import Meter, MeterUnavailable
from opcost.energy.rapl import RaplMeter, rapl_parts


class _Entry(NamedTuple):
    """`open` opens a meter by the device's identity. `devices` finds the identities of all visible
    devices by the suffix of their names (None for none). `uuid` finds the UUID of a device by its
    number without opening it, where that would change its idle power. `unseen` states why this
    process sees no devices, or not all.
    """

    open: Callable[[str | None], Meter]
    devices: Callable[[], Mapping[str | None, str | None]]
    uuid: Callable[[str], str] | None = None
    unseen: Callable[[], str | None] = lambda: None


def open_meter(kind: str, identity: str | None) -> Meter:
    """The meter of a device: of a GPU by its UUID or PCI address, of the processor by None or the
    name of a part. Raises MeterUnavailable if there is none.
    """
    if kind not in _METERS:
        raise MeterUnavailable(f"no energy sensor is supported for devices of kind {kind}")
    return _METERS[kind].open(identity)


def every_meter() -> tuple[dict[str, tuple[str, str | None]], dict[str, str]]:
    """Name -> (kind, identity) of all visible devices: `cuda:0` and `cpu` as in targets, `amd:0`,
    and parts of the processor, `cpu:core`; and kind -> why it has no meter.
    """
    found: dict[str, tuple[str, str | None]] = {}
    missing: dict[str, str] = {}
    for kind, entry in _METERS.items():
        try:
            for suffix, identity in entry.devices().items():
                found[kind if suffix is None else f"{kind}:{suffix}"] = kind, identity
        except MeterUnavailable as reason:
            missing[kind] = str(reason)
    return found, missing


def unseen(kind: str) -> str | None:
    """Why this process sees no device of a kind, or not all; None if it may see all."""
    return _METERS[kind].unseen() if kind in _METERS else None


def unseen_kinds() -> list[str]:
    """The reasons of `unseen` for all kinds."""
    return [reason for kind in _METERS if (reason := unseen(kind)) is not None]


def untouched_uuid(kind: str, number: str) -> str | None:
    """The UUID of a device, found without opening it. Raises MeterUnavailable.

    None for a kind whose idle power does not depend on being opened.
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


def _nvidia_gpus() -> dict[str | None, str | None]:
    from opcost.energy.nvml import all_visible, device_uuids, has_library

    if not has_library():
        return {}  # no driver, and no GPU of this kind
    uuids = all_visible(device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {str(number): uuid for number, uuid in enumerate(uuids)}


def _nvidia_unseen() -> str | None:
    from opcost.energy.nvml import device_uuids, has_library

    if not has_library():
        return "no NVIDIA driver library (libnvidia-ml.so.1) was found"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        there, seen = device_uuids(), _nvidia_gpus()
    except MeterUnavailable as reason:
        return str(reason)
    if len(seen) < len(there):
        return f"CUDA_VISIBLE_DEVICES={visible!r} leaves {len(seen)} of {len(there)} NVIDIA GPUs"
    return None if there else "NVIDIA's driver lists no GPU"


def _amd(address: str | None) -> Meter:
    from opcost.energy.amd import AmdMeter  # only where there is such a GPU

    if address is None:
        raise MeterUnavailable("the GPU has no PCI address, by which amdsmi finds it")
    return AmdMeter(address)


def _amd_gpus() -> dict[str | None, str | None]:
    from opcost.energy.amd_library import pci_addresses

    return {str(number): address for number, address in enumerate(pci_addresses())}


def _amd_unseen() -> str | None:
    if find_spec("amdsmi") is None:
        return "amdsmi is not installed"
    try:
        return None if _amd_gpus() else "amdsmi lists no GPU"
    except MeterUnavailable as reason:
        return str(reason)


def _wattmeter(source: str | None) -> Meter:
    from opcost.energy.wattmeter import Wattmeter  # only where there is one

    return Wattmeter(source or "")


def _wattmeters() -> dict[str | None, str | None]:
    return {None: source} if (source := os.environ.get("OPCOST_WATTMETER")) else {}


_METERS: Mapping[str, _Entry] = {
    "cpu": _Entry(
        lambda part: RaplMeter(part=part),
        lambda: {None: None} | {part: part for part in rapl_parts()},
    ),
    "cuda": _Entry(_nvml, _nvidia_gpus, _nvidia_uuid, unseen=_nvidia_unseen),
    "wattmeter": _Entry(_wattmeter, _wattmeters),
    "amd": _Entry(_amd, _amd_gpus, unseen=_amd_unseen),
}
