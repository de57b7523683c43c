"""The call overhead of a target, from samples of several processes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.devices.device_file import Sample, read_device, read_overhead
from opcost.devices.kinds import host_sets_pace
from opcost.errors import OpcostError
from opcost.executions import OF_CALL_OVERHEAD, Executions, speed_law_of
from opcost.results_folder import device_file
from opcost.rows.quantities import INFERENCE_CALLS, OVERHEADS
from opcost.statistics import Estimate

_MIN_PROCESSES = 3


def read_samples(path: Path) -> list[Sample]:
    """The samples in `path`, a target's `device.json` or that of a later round.

    Raises OpcostError for a file that is invalid or of another device.
    """
    first = device_file(path.parent)
    device = read_device(first)
    samples = device.overhead if path == first else read_overhead(path, device)
    if host_sets_pace(device.device) and not samples:
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

    Processes differ by more than repetitions within one. The calls of inference take what they
    would at the usual speed of the core, if that and their own speeds are known.
    """
    if not samples:
        return {}
    counted = [sample for sample in samples if not sample.disturbed]
    disturbed = len(counted) < _MIN_PROCESSES
    if disturbed:
        counted = list(samples)
    columns: dict[str, Any] = {"overhead_disturbed": disturbed}
    for kind, overhead in OVERHEADS.items():
        usual = usual_speed_per_s if kind in INFERENCE_CALLS else None
        columns |= overhead.columns(_mean(_executions(counted, kind), usual))
    return columns


def _executions(samples: Sequence[Sample], kind: str) -> Executions:
    """One kind of call overhead in each process that found it."""
    values = [(getattr(each, f"{kind}_s"), each.core_speed_per_s) for each in samples]
    known = [pair for pair in values if pair[0] is not None]
    return Executions(
        [value for value, _ in known], [None] * len(known), [speed for _, speed in known]
    )


def _mean(executions: Executions, usual_speed_per_s: float | None) -> Estimate | None:
    """The mean of what they would be at a usual speed, if that and their own are known."""
    if not executions.values:
        return None
    speeds = [speed for speed in executions.speeds if speed]
    positive = executions.chosen([value > 0 for value in executions.values])
    found = speed_law_of([positive], speeds, OF_CALL_OVERHEAD)
    if found is None or usual_speed_per_s is None:
        return statistics.mean(executions.values)
    at_usual = replace(found, usual_speed=usual_speed_per_s).corrected(executions)
    of_unknown = math.sqrt(at_usual.batch_variance / len(at_usual.values))
    return statistics.mean(at_usual.values).widened(math.hypot(at_usual.shared_error, of_unknown))
