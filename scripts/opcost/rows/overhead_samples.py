"""The call overhead of a target, from samples of several processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.devices.device_file import Sample, read_device, read_overhead
from opcost.devices.kinds import host_sets_pace
from opcost.errors import OpcostError
from opcost.executions import OF_CALL_OVERHEAD, Executions, SpeedLaw, speed_law_of
from opcost.results_folder import device_file, overhead_files
from opcost.rows.quantities import INFERENCE_CALLS, OVERHEADS

_MIN_PROCESSES = 3


def read_samples(path: Path) -> list[Sample]:
    """The samples in `path`, a target's `device.json` or that of a later round.

    Raises OpcostError for a file that is invalid or of another device.
    """
    first = device_file(path.parent)
    device = read_device(first)
    samples = device.overhead if path == first else read_overhead(path, device)
    # Older versions measured none on a GPU, and at first only in round 2 on a processor.
    measured_later = path == first and len(overhead_files(path.parent)) > 1
    if host_sets_pace(device.device) and not samples and not measured_later:
        raise OpcostError(
            f"{path} has no call overhead: delete only {path}, and run again to measure it; the "
            "rows measured so far are kept"
        )
    return list(samples or ())


def overhead_columns(
    samples: Sequence[Sample], usual_speed_per_s: float | None = None
) -> dict[str, Any]:
    """The mean over undisturbed processes with Student's interval, or over all processes if too few
    were undisturbed. Empty without samples.

    Processes differ by more than repetitions within one. Only samples of the latest
    procedure count. The calls of inference take what they would at the usual speed of the core, if
    that and their own speeds are known.
    """
    if not samples:
        return {}
    latest = max(sample.procedure for sample in samples)
    samples = [sample for sample in samples if sample.procedure == latest]
    counted = [sample for sample in samples if not sample.disturbed]
    disturbed = len(counted) < _MIN_PROCESSES
    if disturbed:
        counted = list(samples)
    columns: dict[str, Any] = {"overhead_disturbed": disturbed}
    found = {kind: _executions(counted, kind) for kind in OVERHEADS}
    speed_law = _speed_law([found[kind] for kind in INFERENCE_CALLS], usual_speed_per_s)
    for kind, overhead in OVERHEADS.items():
        executions = found[kind]
        if speed_law is not None and kind in INFERENCE_CALLS and executions.values:
            executions = speed_law.corrected(executions)
        mean = statistics.mean(executions.values) if executions.values else None
        columns |= overhead.columns(mean and mean.widened(executions.shared_error))
    return columns


def _executions(samples: Sequence[Sample], kind: str) -> Executions:
    """One kind of call overhead in each process that found it."""
    values = [(getattr(each, f"{kind}_s"), each.core_speed_per_s) for each in samples]
    known = [pair for pair in values if pair[0] is not None]
    return Executions(
        [value for value, _ in known], [None] * len(known), [speed for _, speed in known]
    )


def _speed_law(kinds: Sequence[Executions], usual_speed_per_s: float | None) -> SpeedLaw | None:
    """How all of these kinds follow the speed of the core; None if the usual one is unknown, or
    that of all processes.
    """
    if usual_speed_per_s is None:
        return None
    positive = [each.chosen([value > 0 for value in each.values]) for each in kinds]
    speeds = [speed for each in kinds[:1] for speed in each.speeds if speed]
    found = speed_law_of(positive, speeds, OF_CALL_OVERHEAD)
    return found and replace(found, usual_speed=usual_speed_per_s)
