"""`device.json`: a target's device, its software, the sentinel's baseline and the call overhead.

It is written before any measurement. `overhead_2.json` etc., of later rounds, have the same form.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError
from opcost.files import read_json, write_json
from opcost.values import (
    BOOLEAN,
    PRINTABLE,
    Rule,
    check_values,
    list_like,
    list_of,
    number,
    one_of,
    optional,
    text,
    whole_number,
)

_SAFE = text(r"[A-Za-z0-9_.:-]{1,100}", "1 to 100 letters, digits and _ . : -")
_OVERHEAD_S = number(0, 1)


def _sample(*, of_processor: bool) -> Rule:
    training = [optional(_OVERHEAD_S)] * 5
    cold = _OVERHEAD_S if of_processor else one_of(None)
    return list_like(_OVERHEAD_S, cold, _OVERHEAD_S, BOOLEAN, *training)


_RULES = {
    "device": _SAFE,
    "device_name": PRINTABLE,
    "device_uuid_hash": optional(_SAFE),
    "lock_key": optional(_SAFE),
    "settings_json": optional(PRINTABLE),
    "quiet_s": optional(number(0, 1, above=True)),
    "overhead": optional(list_of(_sample(of_processor=True))),
    "last_level_cache_bytes": optional(whole_number(0)),
    "core_cache_bytes": optional(whole_number(0)),
    "cpu_count": optional(whole_number(1)),
    "machine_id_hash": optional(_SAFE),
    "thread_library": optional(PRINTABLE),
    "process_environment": optional(
        text(r"[^\x00-\x1f]{1,2000}", "1 to 2000 characters of a line")
    ),
    "driver_version": optional(PRINTABLE),
    "cuda_version": optional(PRINTABLE),
    "cudnn_version": optional(PRINTABLE),
    "torch_version": optional(PRINTABLE),
}
_OF_OPCOST = ("lock_key", "settings_json", "quiet_s", "overhead")
ENVIRONMENT = tuple(name for name in _RULES if name not in _OF_OPCOST)
"""The keys of the environment; rows have columns of the same names."""


class Sample(NamedTuple):
    """Call overhead in seconds, measured by one process; training values may be missing.

    `cold_call_s` is None on a GPU, as are all values of training.
    """

    call_s: float
    cold_call_s: float | None
    view_call_s: float
    disturbed: bool
    """Whether too few values were undisturbed, so that all were used."""

    forward_call_s: float | None = None
    backward_call_s: float | None = None
    optimizer_call_s: float | None = None
    backward_start_s: float | None = None
    optimizer_start_s: float | None = None


@dataclass(frozen=True)
class DeviceFile:
    """A target's device.

    `device_uuid_hash`, `lock_key` and `machine_id_hash` are None if any device of a kind may be
    used. `quiet_s`, the baseline, is None on a GPU. `settings_json` holds the settings of the
    target when the file was written.
    """

    device: str
    device_name: str
    device_uuid_hash: str | None = None
    lock_key: str | None = None
    quiet_s: float | None = None
    overhead: tuple[Sample, ...] | None = None
    last_level_cache_bytes: int | None = None
    core_cache_bytes: int | None = None
    cpu_count: int | None = None
    machine_id_hash: str | None = None
    thread_library: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    torch_version: str | None = None
    process_environment: str | None = None
    settings_json: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: object, remedy: str) -> Self:
        """The device that a JSON object describes; keys of a newer opcost are ignored.

        Raises OpcostError, whose message ends with `remedy`.
        """
        known: dict[str, Any] = {key: document[key] for key in _RULES if key in document}
        if isinstance(known.get("overhead"), list):  # schema version 1 had the speed of the core
            known["overhead"] = [
                values[: len(Sample._fields)] if isinstance(values, list) else values
                for values in known["overhead"]
            ]
        check_values(known, _rules(known), source, remedy)
        overhead = known["overhead"]
        samples = None if overhead is None else tuple(Sample(*values) for values in overhead)
        return cls(**known | {"overhead": samples})

    @property
    def own_key(self) -> str:
        """The name of this device's lock."""
        return self.device_uuid_hash or self.device

    def identity(self) -> dict[str, Any]:
        """The keys that identify the device."""
        return {name: getattr(self, name) for name in ("device", "device_name", "device_uuid_hash")}


def _rules(document: Mapping[str, Any]) -> Mapping[str, Rule]:
    device = document.get("device")
    kind = kind_of(device) if isinstance(device, str) else None
    ahead = kind is not None and not kind.host_sets_pace
    return _RULES | ({"overhead": optional(list_of(_sample(of_processor=False)))} if ahead else {})


def read_device(path: Path) -> DeviceFile:
    """Read the device of a target. Raises OpcostError for an invalid file."""
    remedy = (
        f"delete only {path}, and run again to identify the device again; the rows measured on it "
        "are kept"
    )
    return DeviceFile.from_document(read_json(path, remedy), path, remedy)


def write_device(path: Path, device: DeviceFile) -> None:
    """Write a device file. Raises OpcostError for values that `read_device` would refuse."""
    document = asdict(device)
    check_values(document, _rules(document), path, "run again")
    write_json(path, document)


def read_overhead(path: Path, device: DeviceFile) -> tuple[Sample, ...]:
    """Read the call overhead of a later round. Raises OpcostError if the device differs."""
    remedy = f"delete {path} and run again to measure the call overhead again"
    again = DeviceFile.from_document(read_json(path, remedy), path, remedy)
    if again.identity() != device.identity():
        raise OpcostError(
            f"{path} was measured on {again.device} ({again.device_name}, {again.device_uuid_hash})"
            f", its target is {device.device} ({device.device_name}, {device.device_uuid_hash}): "
            f"{remedy}"
        )
    return again.overhead or ()
