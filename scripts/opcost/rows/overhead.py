"""What calls cost on a target beyond their operators, from what each of several processes found."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opcost import statistics
from opcost.errors import OpcostError
from opcost.rows.columns import interval_columns

_FEWEST_PROCESSES = 3


class Sample(NamedTuple):
    """Seconds that a call costs beyond its operator's own time, as one process finds them."""

    call_s: float
    displaced_call_s: float
    view_call_s: float
    disturbed: bool
    """Whether so little of it was undisturbed that all had to count."""


def read_samples(path: Path) -> list[Sample]:
    """What the processes found of which `path` tells; none where calls cost nothing.

    Raises OpcostError for a file of another version.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["overhead"] or ()
        return [Sample(*values) for values in found]
    except (ValueError, TypeError, KeyError) as error:
        raise OpcostError(
            f"{path} was not written by this version of opcost ({error!r}): delete "
            f"{path.parent} and run again"
        ) from error


def overhead_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """The mean over undisturbed processes, with Student's interval: processes differ by more than
    the repetitions within one. Over all of them, if hardly any was undisturbed.

    Without samples there are no columns.
    """
    if not samples:
        return {}
    counted = [sample for sample in samples if not sample.disturbed]
    disturbed = len(counted) < _FEWEST_PROCESSES
    if disturbed:
        counted = list(samples)
    columns: dict[str, Any] = {"overhead_disturbed": disturbed}
    for kind in ("call", "displaced_call", "view_call"):
        values = [getattr(sample, f"{kind}_s") for sample in counted]
        columns |= interval_columns(f"{kind}_overhead", "s", statistics.mean(values))
    return columns
