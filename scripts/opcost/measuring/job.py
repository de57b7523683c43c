"""One job: hold the device's lock, at the target's operating point, measure in a child process, and
write a row in any case.

The parent never touches the device, so it survives a crash of the child and records it. It stays
light unless it is a warm worker: heavy modules are imported inside functions.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost.devices.device_file import read_device
from opcost.devices.lock import exclusive
from opcost.devices.operating_point import AS_IT_IS, applied
from opcost.energy.sensor import read_document, take_over, write_killing_meter
from opcost.errors import OpcostError, reported
from opcost.measuring.checkpoint import Checkpoint
from opcost.measuring.subjects import Subject
from opcost.measuring.target_identity import TargetFiles, expected_device
from opcost.target import OperatingPoint, Target
from opcost.terminal import announce
from opcost.tuples.model_tuples import read_extractions, write_model_tuples
from opcost.workers.isolation import run_isolated

_SENSOR_TIMEOUT_S = 600
_OF_CRASHES = (
    ". The values that opcost generates may not suit the operator: docs/how_to/operators.md "
    "shows how to provide others"
)

HeldSeconds = Callable[[], float]
"""Returns the seconds for which the job has held its device."""


def subject_job(subject: Subject, files: TargetFiles, number: int, output: Path) -> None:
    """Measure a subject on a target in a round, and write its row."""
    checkpoint = Checkpoint()
    output = output.absolute()  # a model's code may change the working directory

    def measure(held_s: HeldSeconds) -> None:
        from opcost.measuring import benchmark
        from opcost.measuring.station import open_station
        from opcost.planning.progress import measured_line
        from opcost.rows import records

        row = benchmark.measure(subject, open_station(files, checkpoint.meter_fault), checkpoint)
        row["device_time_s"] = held_s()
        records.write(output, subject.schema, [row])
        announce(measured_line(subject.kind, subject.description, row, number))

    def record_death(status: str, reason: str, held_s: HeldSeconds) -> None:
        from opcost.rows import records

        if status == "crashed" and subject.kind == "operator":
            reason += _OF_CRASHES
        row = checkpoint.row_without_power(status, reason)
        row = row or _death_columns(files, status, reason) | subject.columns()
        records.write(output, subject.schema, [row | {"device_time_s": held_s()}])

    timeout_s = files.conditions.measurement.timeout_s
    point = files.conditions.target.operating_point
    _run(subject.name, measure, record_death, files.device_file, timeout_s, checkpoint, point)


def sensor_job(files: TargetFiles, output: Path) -> None:
    """Characterise the power sensor of a target's device, and write its file; a characterisation
    for another target or under other conditions is copied. Raises OpcostError without a meter for
    sustained operation.
    """
    device, target, device_file = files.conditions.target.device, files.target, files.device_file
    if other := take_over(read_device(device_file), output):
        announce(f"[sensor] {target}: as characterised for {other}, of the same device")
        return
    settings = Target(device, threads=1, tf32=False)

    def measure(_: HeldSeconds) -> None:
        from opcost.measuring.station import characterise_target

        characterise_target(
            device, lambda: expected_device(settings, target, device_file)[0], output
        )

    def record_death(status: str, reason: str, _: HeldSeconds) -> None:
        write_killing_meter(output, read_device(device_file), f"{status}: {reason}")

    _run(f"sensor of target {target}", measure, record_death, device_file, _SENSOR_TIMEOUT_S)
    found = read_document(output)
    if files.conditions.measurement.is_sustained and found["meter"] is None:
        raise OpcostError(
            f"measurement.operation: sustained needs a power meter, and target {target} has none "
            f"({found['meter_reason']}): use burst"
        )


def tracing_job(extraction: Path, search_path: Path, files: TargetFiles, output: Path) -> None:
    """Trace a model's calls on a target's device, and write them."""
    [extracted] = read_extractions([extraction])
    definition, output = extracted.definition, output.absolute()
    assert definition is not None  # read_extractions refuses others

    def trace(_: HeldSeconds) -> None:
        from opcost.measuring.tracing import trace_on
        from opcost.planning.progress import tracing_line

        device, _watch = expected_device(files.conditions.target, files.target, files.device_file)
        calls = trace_on(device, definition, search_path, extracted)
        write_model_tuples(output, calls)
        if extracted.refusal is None:
            announce(tracing_line(files.target, calls, extracted))

    def record_death(status: str, reason: str, _: HeldSeconds) -> None:
        name = read_device(files.device_file).device_name
        died = f"{status}: {reason}{_remedy(status)}"
        write_model_tuples(output, replace(extracted, device_name=name, not_recorded=died))

    timeout_s = files.conditions.measurement.timeout_s
    purpose = f"calls of model {definition.name}"
    _run(purpose, trace, record_death, files.device_file, timeout_s)


def _run(
    purpose: str,
    measure: Callable[[HeldSeconds], None],
    record_death: Callable[[str, str, HeldSeconds], None],
    device_file: Path,
    timeout_s: float,
    checkpoint: Checkpoint | None = None,
    point: OperatingPoint = AS_IT_IS,
) -> None:
    key = read_device(device_file).lock_key
    with ExitStack() as holding:
        start = time.monotonic()
        if key:  # if there are several devices of a kind, only the child knows which one it has
            held = holding.enter_context(exclusive(key, purpose, point=point))
            start = time.monotonic()
            holding.enter_context(applied(held, point, settle=True))

        def held_s() -> float:
            return time.monotonic() - start

        def measure_or_report() -> None:
            with reported():
                measure(held_s)

        death = run_isolated(measure_or_report, timeout_s)
        if death is not None and checkpoint is not None and checkpoint.blames_meter(*death):
            announce(f"{purpose}: {checkpoint.meter_fault}; measuring only time")
            death = run_isolated(measure_or_report, timeout_s)
        if death is not None and death[0] == "terminated":
            raise OpcostError(f"{purpose}: {death[1]}")
        if death is not None:
            record_death(*death, held_s)
            announce(f"{purpose}: {': '.join(death)}")


def _death_columns(files: TargetFiles, status: str, reason: str) -> dict[str, Any]:
    """The columns that are known without the child that died."""
    from opcost.rows import records

    device = read_device(files.device_file)
    return records.condition_columns(files.conditions, files.target) | {
        "device": device.device,
        "device_name": device.device_name,
        "device_uuid_hash": device.device_uuid_hash,
        "quiet_sentinel_time_s": device.quiet_s,
        "status": status,
        "error": reason + _remedy(status),
    }


def _remedy(status: str) -> str:
    return " (measurement.timeout_s)" if status == "timeout" else ""
