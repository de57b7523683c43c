"""Differences between the environment in which a target was measured and the present one.

Most changes of the environment select another results folder. Those that are known only once a
device is open, or on a cluster node, are compared here.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError

_LABELS = {
    "device": "device",
    "device_name": "device",
    "device_uuid_hash": "GPU (hash of its UUID)",
    "machine_id_hash": "machine (hash of its id)",
    "cpu_count": "cores of the machine",
    "last_level_cache_bytes": "bytes of the last-level cache",
    "core_cache_bytes": "bytes of the private cache",
    "thread_library": "thread library",
    "process_environment": "environment of the process",
    "driver_version": "driver",
    "cuda_version": "CUDA",
    "cudnn_version": "cuDNN",
    "torch_version": "PyTorch",
}
_OF_A_PROCESSOR = {"cpu_count", "thread_library"}
_OF_ONE_DEVICE = {"device_uuid_hash", "machine_id_hash"}
"""The columns that differ between devices of a kind."""
_FOLLOW_FROM_THE_DEVICE = {
    "device",
    "device_uuid_hash",
    "cpu_count",
    "last_level_cache_bytes",
    "core_cache_bytes",
}


class Change(NamedTuple):
    """A column of the environment that has changed since the target was measured."""

    name: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{_LABELS[self.name]}: {self.before} before, {self.now} now"


def changes_between(
    before: Mapping[str, Any], now: Mapping[str, Any], any_of_kind: bool = False
) -> list[Change]:
    """The columns that differ; a null or missing value is unknown and counts as equal.

    A target for any device of a kind may use another device of the same name. Cores and thread
    library of a GPU's host may differ.
    """
    ignored = _OF_ONE_DEVICE | {"device"} if any_of_kind else set()
    kind = kind_of(before.get("device"))
    if kind is not None and not kind.is_processor:
        ignored |= _OF_A_PROCESSOR
    if before.get("device_uuid_hash") and now.get("device_uuid_hash"):
        ignored |= {"device"}
    pairs = {name: (before.get(name), now.get(name)) for name in _LABELS if name not in ignored}
    differing = {
        name: values for name, values in pairs.items() if None not in values and len({*values}) > 1
    }
    if "device_name" in differing:
        for name in _FOLLOW_FROM_THE_DEVICE & differing.keys():
            del differing[name]
    return [Change(name, str(old), str(new)) for name, (old, new) in differing.items()]


def refuse_changes(device_file: Path, now: Mapping[str, Any], any_of_kind: bool = False) -> None:
    """Raise OpcostError if the target of a `device.json` was identified in another environment."""
    if not device_file.exists():
        return
    known = read_device(device_file)
    found = changes_between(asdict(known), now, any_of_kind or known.lock_key is None)
    if not found:
        return
    folder = device_file.parent
    lines = [
        f"target {folder.parent.name!r} was identified in another environment. Rows of two "
        "environments are never mixed, so nothing was measured.",
        *(f"  {change}" for change in found),
        "Choose one of these:",
        f"- Restore that environment, which {device_file} describes.",
        "- Give the target another name in the configuration, to measure here as well.",
        f"- Move {folder} away, to measure here instead.",
    ]
    if {change.name for change in found} <= _OF_ONE_DEVICE:
        lines.append("- Measure on any such device: any_of_kind: true.")
    raise OpcostError("\n".join(lines))
