"""A target's files; its device, with baseline and call overhead: identified once, and verified in
each job.
"""

import importlib
import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from opcost.addresses import refuse_other_device
from opcost.devices.device_file import DeviceFile, Sample, read_device, refuse_changes, write_device
from opcost.devices.kinds import kind_of
from opcost.devices.lock import exclusive, reserved_for
from opcost.devices.operating_point import applied
from opcost.errors import OpcostError
from opcost.results_folder import device_file, sensor_file
from opcost.study import Conditions
from opcost.target import POINT, Target, point_of
from opcost.terminal import announce
from opcost.workers.isolation import answer_of

_PROCESSES = 6
_TIMEOUT_S = 600
_OPENING_TIMEOUT_S = 180
"""Seconds until a driver counts as hanging; a machine with many GPUs may need a minute."""
_ALLOTTED_TIMEOUT_S = 20
"""Seconds to wait for a device that a cluster allotted to this job only."""
_UNTIL_THE_END = ExitStack()
"""Locks that a measuring process holds until it ends."""


@dataclass(frozen=True)
class TargetFiles:
    """A target's name and conditions, and the files of its device and of its power sensor."""

    target: str
    conditions: Conditions
    device_file: Path
    sensor_file: Path | None = None

    @classmethod
    def of(cls, folder: Path, conditions: str) -> Self:
        """The target of a results folder, with its conditions as JSON."""
        return cls(
            folder.parent.name,
            Conditions.from_json(conditions),
            device_file(folder),
            sensor_file(folder),
        )


def identify_target(target: Target, output: Path) -> None:
    """Write the file of a target's device, with the baseline and the call overhead.

    Raises OpcostError if there is no such device, or if the operating point cannot be set on it.
    """
    cores = os.cpu_count() or target.threads
    if target.threads > cores:  # a benchmark would measure the scheduler
        raise OpcostError(
            f"the target requests {target.threads} threads; this machine has {cores} cores: set "
            f"`threads` of the target to at most {cores}"
        )
    # Import once, which takes seconds, instead of in each process forked below.
    importlib.import_module("opcost.measuring.overhead")
    found = _identified(target)
    refuse_other_device(output.parent, found.device)
    _refuse_point_of_another_kind(target, found)
    with (
        exclusive(found.own_key, f"the identity of {found.device}") as held,
        applied(held, target.operating_point),
    ):
        baseline_s = None
        if (kind := kind_of(found.device)) and kind.is_processor:
            baseline_s = answer_of(lambda: _open_identified(target)[0].baseline_s(), _TIMEOUT_S)
        found = _with_overhead(found, target, baseline_s)
    if target.any_of_kind:  # all processors share a lock
        lock_key = None if found.device_uuid_hash else found.lock_key
        found = replace(found, device_uuid_hash=None, machine_id_hash=None, lock_key=lock_key)
    write_device(output, found)


def _refuse_point_of_another_kind(target: Target, found: DeviceFile) -> None:
    """Raise OpcostError for a setting that the device lacks: `auto` may be a processor or a GPU."""
    kind = kind_of(found.device)
    for name in POINT:
        value = getattr(target, name)
        if value is not None and kind is not None and name not in point_of(kind.name):
            raise OpcostError(
                f"the target requests {name} {value}, and its device {target.device} is "
                f"{found.device} here, which has {', '.join(point_of(kind.name))} instead: leave "
                "it out, or measure on a machine whose device has it"
            )


def measure_overhead(settings: Target, target: str, device_file: Path, output: Path) -> None:
    """Write the call overhead of a later round. Raises OpcostError if the device has changed."""
    from opcost.measuring import overhead  # noqa: F401  as above
    from opcost.planning.progress import overhead_line
    from opcost.rows.overhead_samples import overhead_columns

    known = read_device(device_file)
    with (
        exclusive(
            known.lock_key or known.own_key,
            f"the overhead of calls on target {target}",
            point=settings.operating_point,
        ) as held,
        applied(held, settings.operating_point),
    ):
        baseline_s = answer_of(
            lambda: expected_device(settings, target, device_file)[1].baseline_s, _TIMEOUT_S
        )
        found = _with_overhead(known, settings, baseline_s)
    write_device(output, found)
    announce(overhead_line(target, overhead_columns(found.overhead or ())))


def expected_device(settings: Target, target: str, device_file: Path) -> tuple[Any, Any]:
    """The target's device and a watch for interference.

    Raises OpcostError if the device or its environment has changed since the study began.
    """
    device, found = _open_identified(settings)
    expected = read_device(device_file)
    if expected.lock_key is None:
        _UNTIL_THE_END.enter_context(
            exclusive(found.own_key, f"target {target}", _ALLOTTED_TIMEOUT_S)
        )
    refuse_changes(device_file, asdict(found), settings.any_of_kind)
    return device, device.watch(expected.quiet_s)


def _identified(target: Target) -> DeviceFile:
    """Identify the device in another process, because a driver may hang or crash."""
    try:
        found = answer_of(lambda: asdict(_open_identified(target)[1]), _OPENING_TIMEOUT_S)
    except OpcostError as death:
        raise OpcostError(
            f"opening device {target.device} failed: {death}. On a GPU, the driver is the cause: "
            "check that `nvidia-smi` responds. Reload the driver, restart the machine, or "
            "measure on `device: cpu`"
        ) from death
    return DeviceFile(**found)


def _open_identified(target: Target) -> tuple[Any, DeviceFile]:
    from opcost.devices.device import open_device
    from opcost.devices.environment import refuse_threads_without_cores, stable_environment

    device = open_device(target)
    refuse_threads_without_cores(target.threads, reserved_for(target.device))
    found = DeviceFile(device.name, **stable_environment(device))
    return device, replace(found, lock_key=found.own_key)


def _with_overhead(device: DeviceFile, target: Target, baseline_s: float | None) -> DeviceFile:
    """The device with the call overhead of several processes, and the baseline that they used.

    Starts again with a lower baseline if the given one was measured on a disturbed core.
    """
    samples = []
    for _ in range(_PROCESSES):
        answer = answer_of(partial(_sample, target, baseline_s), _TIMEOUT_S)
        if answer["lower_baseline_s"] is not None:
            return _with_overhead(device, target, answer["lower_baseline_s"])
        samples.append(Sample(*answer["sample"]))
    return replace(device, quiet_s=baseline_s, overhead=tuple(samples))


def _sample(target: Target, baseline_s: float | None) -> dict[str, Any]:
    from opcost.measuring.overhead import sample_overhead

    device, _ = _open_identified(target)
    watch = device.host_watch(baseline_s)
    return {"sample": sample_overhead(device, watch), "lower_baseline_s": watch.lower_baseline_s()}
