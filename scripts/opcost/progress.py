"""What a person sees while a study runs."""

import itertools
import statistics
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from opcost.manifest import ModelTuples

_RECENT = 20


def extraction_line(tuples: ModelTuples) -> str:
    """One extracted model, or why it was not."""
    if tuples.refusal is not None:
        return f"[refused] {tuples.model}: {tuples.refusal}"
    kernels = sum(record.launches_kernel for record in tuples.tuples)
    return (
        f"[extracted] {tuples.model}: {len(tuples.calls)} operator calls, "
        f"{len(tuples.tuples)} distinct tuples, {kernels} of them more than views"
    )


def operator_line(
    row: Mapping[str, Any], directory: Path, tuple_ids: Collection[str], since: float
) -> str:
    """One measured operator tuple: how far the target is, the result, and the time still needed.

    Files in `directory` that are older than `since` (seconds of the epoch) are not done: they
    were measured under other conditions. The time needed is the median interval between the
    latest files, times the files still missing.
    """
    times = [path.stat().st_mtime for path in directory.glob("*.parquet") if path.stem in tuple_ids]
    finished = sorted(time for time in times if time >= since)
    done, total = len(finished), len(tuple_ids)
    counter = f"[{done:>{len(str(total))}}/{total}]"
    line = f"{counter} {row['target']}  {result(row)}  {row['description']}"
    intervals = [later - earlier for earlier, later in itertools.pairwise(finished[-_RECENT:])]
    if done == total or not intervals:
        return line
    return f"{line}  (about {duration(statistics.median(intervals) * (total - done))} left)"


def again_line(row: Mapping[str, Any]) -> str:
    """One operator tuple, measured a second time."""
    return f"[again] {row['target']}  {result(row)}  {row['description']}"


def model_line(row: Mapping[str, Any]) -> str:
    """One measured whole model."""
    return f"[model] {row['target']}  {result(row)}  {row['model']}"


def result(row: Mapping[str, Any]) -> str:
    """The result of a row: time with its uncertainty, energy if there is one, or the failure."""
    if row["status"] != "ok":
        return f"{row['status']}: {row['error']}"
    text = f"{seconds(row['time_s']):>9}"
    if row.get("time_ci_low_s") is not None:
        half_width = (row["time_ci_high_s"] - row["time_ci_low_s"]) / 2 / row["time_s"]
        text += f" ± {half_width:4.1%}"
    if row.get("energy_j") is not None:
        text += f"  {row['energy_j'] * 1e3:.3g} mJ"
    return text


def seconds(value: float) -> str:
    """A duration in the unit that suits it, to four digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"


def duration(value: float) -> str:
    """Seconds or minutes, as a person would say them."""
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"
