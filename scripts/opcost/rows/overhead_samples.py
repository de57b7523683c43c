"""The call overhead of a target, from samples of several processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.devices.device_file import Sample, read_device, read_overhead
from opcost.devices.kinds import host_sets_pace
from opcost.errors import OpcostError
from opcost.results_folder import device_file
from opcost.rows.quantities import OVERHEADS

_MIN_PROCESSES = 3


def read_samples(path: Path) -> list[Sample]:
    """The samples in `path`, a target's `device.json` or that of a later round.

    Raises OpcostError for a file that is invalid or of another device.
    """
    first = device_file(path.parent)
    device = read_device(first)
    samples = device.overhead if path == first else read_overhead(path, device)
    incomplete = not samples or None in [each.cold_call_s for each in samples]
    if host_sets_pace(device.device) and incomplete:
        raise OpcostError(
            f"{path} has no call overhead: delete only {path}, and run again to measure it; the "
            "rows measured so far are kept"
        )
    return list(samples or ())


def overhead_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """The mean over undisturbed processes with Student's interval, or over all processes if too few
    were undisturbed. Empty without samples.

    Processes differ by more than repetitions within one.
    """
    if not samples:
        return {}
    counted = [sample for sample in samples if not sample.disturbed]
    disturbed = len(counted) < _MIN_PROCESSES
    if disturbed:
        counted = list(samples)
    columns: dict[str, Any] = {"overhead_disturbed": disturbed}
    for kind, overhead in OVERHEADS.items():
        values_s = [getattr(each, f"{kind}_s") for each in counted]
        known_s = [value for value in values_s if value is not None]
        columns |= overhead.columns(statistics.mean(known_s) if known_s else None)
    return columns
