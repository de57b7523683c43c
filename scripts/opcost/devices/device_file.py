"""`device.json`: a target's device, its software, the sentinel's baseline and the call overhead.

It is written before any measurement; jobs compare it with what they find. `overhead_2.json` etc.,
of later rounds, have the same form.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
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
    optional,
    text,
    whole_number,
)

_SAFE = text(r"[A-Za-z0-9_.:-]{1,100}", "1 to 100 letters, digits and _ . : -")
_LINE = text(r"[^\x00-\x1f]{1,2000}", "1 to 2000 characters of a line")
_OVERHEAD_S = number(0, 1)
_SAMPLE = list_like(
    *(_OVERHEAD_S, optional(_OVERHEAD_S), _OVERHEAD_S, BOOLEAN), *[optional(_OVERHEAD_S)] * 5
)

_OF_A_PROCESSOR = {"cpu_count", "thread_library"}
_OF_ONE_DEVICE = {"device_uuid_hash", "machine_id_hash"}
"""The columns that differ between devices of a kind."""


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


def _known(rule: Rule, label: str | None = None, *, required: bool = False) -> Any:
    """A key whose value the rule checks. Keys with a label are those of the environment: rows have
    columns of the same names.
    """
    rule = rule if required else optional(rule)
    default = MISSING if required else None
    return field(default=default, metadata={"rule": rule, "label": label})


@dataclass(frozen=True)
class DeviceFile:
    """A target's device.

    `device_uuid_hash`, `lock_key` and `machine_id_hash` are None if any device of a kind may be
    used. `quiet_s`, the baseline, is None on a GPU.
    """

    device: str = _known(_SAFE, "device", required=True)
    device_name: str = _known(PRINTABLE, "device", required=True)
    device_uuid_hash: str | None = _known(_SAFE, "GPU (hash of its UUID)")
    lock_key: str | None = _known(_SAFE)
    quiet_s: float | None = _known(number(0, 1, above=True))
    overhead: tuple[Sample, ...] | None = _known(list_of(_SAMPLE))
    last_level_cache_bytes: int | None = _known(whole_number(0), "bytes of the last-level cache")
    core_cache_bytes: int | None = _known(whole_number(0), "bytes of the private cache")
    cpu_count: int | None = _known(whole_number(1), "cores of the machine")
    machine_id_hash: str | None = _known(_SAFE, "machine (hash of its id)")
    thread_library: str | None = _known(PRINTABLE, "thread library")
    driver_version: str | None = _known(PRINTABLE, "driver")
    cuda_version: str | None = _known(PRINTABLE, "CUDA")
    cudnn_version: str | None = _known(PRINTABLE, "cuDNN")
    torch_version: str | None = _known(PRINTABLE, "PyTorch")
    process_environment: str | None = _known(_LINE, "environment of the process")

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
        check_values(known, _RULES, source, remedy)
        overhead = known["overhead"]
        samples = None if overhead is None else tuple(Sample(*values) for values in overhead)
        return cls(**known | {"overhead": samples})

    @property
    def own_key(self) -> str:
        """The name of this device's lock."""
        return self.device_uuid_hash or self.device


_RULES: dict[str, Rule] = {each.name: each.metadata["rule"] for each in fields(DeviceFile)}
ENVIRONMENT = {
    each.name: each.metadata["label"] for each in fields(DeviceFile) if each.metadata["label"]
}
"""The keys of the environment, with their names in messages."""


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
    check_values(document, _RULES, path, "run again")
    write_json(path, document)


def read_overhead(path: Path, device: DeviceFile) -> tuple[Sample, ...]:
    """Read the call overhead of a later round. Raises OpcostError if the device differs."""
    remedy = f"delete {path} and run again to measure the call overhead again"
    again = DeviceFile.from_document(read_json(path, remedy), path, remedy)
    measured_on, expected = (
        f"{each.device} ({each.device_name}, {each.device_uuid_hash})" for each in (again, device)
    )
    if measured_on != expected:
        raise OpcostError(
            f"{path} was measured on {measured_on}, its target is {expected}: {remedy}"
        )
    return again.overhead or ()


class Change(NamedTuple):
    """A column of the environment that has changed since the target was measured."""

    name: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{ENVIRONMENT[self.name]}: {self.before} before, {self.now} now"


def changes_between(
    before: Mapping[str, Any], now: Mapping[str, Any], any_of_kind: bool = False
) -> list[Change]:
    """The columns of the environment that differ; a null or missing value counts as equal.

    Most of them select another results folder; those that are known only once a device is open, or
    on a cluster node, are compared. A target for any device of a kind may use another device of the
    same name. Cores and thread library of a GPU's host may differ, as may a GPU's number.
    """
    ignored = _OF_ONE_DEVICE | {"device"} if any_of_kind else set()
    kind = kind_of(before.get("device"))
    if kind is not None and not kind.is_processor:
        ignored |= _OF_A_PROCESSOR
    if before.get("device_uuid_hash") and now.get("device_uuid_hash"):
        ignored |= {"device"}
    pairs = {name: (before.get(name), now.get(name)) for name in ENVIRONMENT if name not in ignored}
    return [
        Change(name, str(old), str(new))
        for name, (old, new) in pairs.items()
        if None not in (old, new) and old != new
    ]


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
