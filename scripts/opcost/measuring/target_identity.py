"""Which device a target stands for: found out once, and the same in every measurement.

What is known of the device before anything is measured on it goes with it: what the sentinel takes
when nothing disturbs it, and what a call costs beyond its operator.
"""

import importlib
import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from opcost.devices.lock import exclusive
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.measuring.isolation import answer_of
from opcost.study import Target

_PROCESSES = 6
_TIMEOUT_S = 600
_OF_A_KIND = {"device_uuid_hash": None, "lock_key": None}
_ALLOTTED_TIMEOUT_S = 20
"""Seconds to wait for a device that a cluster gave to this job alone."""
_UNTIL_THE_END = ExitStack()
"""Locks that the process of a measurement holds until it ends."""


def identify_target(target: Target, output: Path) -> None:
    """Write what device a target stands for here, and what a call costs there beyond its operator.

    Raises OpcostError if there is none.
    """
    # Not by each of the processes that are forked below: it takes seconds.
    importlib.import_module("opcost.measuring.overhead")
    identity = answer_of(lambda: _open_identified(target)[1], _TIMEOUT_S)
    with exclusive(identity["lock_key"], f"the identity of {identity['device']}"):
        if identity["device"] == "cpu":
            quiet_s = answer_of(partial(_quiet_s, target), _TIMEOUT_S)
            identity |= _samples_of_calls(target, quiet_s)
        else:  # No tenant shares a GPU, and its host runs ahead.
            identity |= {"quiet_s": None, "overhead": None}
    if target.any_of_kind and identity["device_uuid_hash"]:
        identity |= _OF_A_KIND
    _write(identity, output)


def measure_overhead_again(settings: Target, target: str, device_file: Path, output: Path) -> None:
    """Write once more what a call costs on a target's processor beyond its operator.

    Raises OpcostError if it is not the device that the study began with.
    """
    from opcost.measuring import overhead  # noqa: F401  as above
    from opcost.planning.progress import overhead_line
    from opcost.rows.overhead import overhead_columns, read_samples

    with exclusive(_read(device_file)["lock_key"], f"the overhead of calls on target {target}"):
        quiet_s = answer_of(
            lambda: expected_device(settings, target, device_file)[1].quiet_s, _TIMEOUT_S
        )
        found = _samples_of_calls(settings, quiet_s)
    _write({"overhead": found["overhead"]}, output)
    print(overhead_line(target, overhead_columns(read_samples(output))), flush=True)


def expected_device(settings: Target, target: str, device_file: Path) -> tuple[Any, Any]:
    """The target's device, and the watch for what disturbs it.

    Raises OpcostError if it is not the device that the study began with.
    """
    device, found = _open_identified(settings)
    expected = _read(device_file)
    quiet_s, _ = expected.pop("quiet_s"), expected.pop("overhead")
    if expected["lock_key"] is None:
        _UNTIL_THE_END.enter_context(
            exclusive(found["lock_key"], f"target {target}", _ALLOTTED_TIMEOUT_S)
        )
        found |= _OF_A_KIND
    if found != expected:
        alike = found["device_name"] == expected["device_name"]
        hint = "; or set any_of_kind: true where any such device may do" if alike else ""
        raise OpcostError(
            f"target {target!r} began on {expected['device']} ({expected['device_name']}), "
            f"but this is {found['device']} ({found['device_name']}): numbers of two devices are "
            f"never mixed. Name another target, or delete {device_file.parent} to start anew{hint}"
        )
    return device, device.watch(quiet_s)


def _open_identified(target: Target) -> tuple[Any, dict[str, Any]]:
    from opcost.devices.target_device import open_device

    device = open_device(target)
    identity = {
        "device": device.name,
        "device_name": device.model_name,
        "device_uuid_hash": device.uuid_hash,
        "lock_key": device.uuid_hash or device.name,
    }
    return device, identity


def _quiet_s(target: Target) -> Any:
    return _open_identified(target)[0].quiet_s()


def _samples_of_calls(target: Target, quiet_s: float) -> dict[str, Any]:
    """The overhead of calls as each of several processes finds it, and the quiet value that they
    went by: a lower one than the given if that turned out to be that of a disturbed core.
    """
    samples = []
    for _ in range(_PROCESSES):
        answer = answer_of(partial(_sample, target, quiet_s), _TIMEOUT_S)
        if answer["quieter_s"] is not None:
            return _samples_of_calls(target, answer["quieter_s"])
        samples.append(answer["sample"])
    return {"quiet_s": quiet_s, "overhead": samples}


def _sample(target: Target, quiet_s: float) -> dict[str, Any]:
    from opcost.measuring.overhead import sample_overhead

    device, _ = _open_identified(target)
    watch = device.watch(quiet_s)
    return {"sample": sample_overhead(device, watch), "quieter_s": watch.quieter_s()}


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _write(document: dict[str, Any], path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
