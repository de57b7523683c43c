"""The progress lines of a study."""

import itertools
import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from opcost.rows.quantities import ENERGY, OVERHEADS, TIME
from opcost.statistics import Estimate
from opcost.text import duration, is_too_noisy, joules, seconds, some, with_interval
from opcost.tuples.model_tuples import ModelTuples

_RECENT = 20
_LONGEST = 10
_EVERY_S = 30.0
_DIFFERING = 5


class Pace:
    """Progress of a run, and its remaining time from the times of recent jobs."""

    def __init__(self) -> None:
        self._latest: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._said_s = -math.inf

    def line(self, done: int, total: int, now_s: float) -> str | None:
        """The line to print now, or None within half a minute of the previous line."""
        left_s = self.left_s(done, total, now_s)
        if done >= total or left_s is None or now_s - self._said_s < _EVERY_S:
            return None
        self._said_s = now_s
        return f"[{done}/{total}] about {duration(left_s)} left"

    def left_s(self, done: int, total: int, now_s: float) -> float | None:
        """The remaining time: the mean time per recent job, times the number of remaining jobs.

        A job counts as at most ten times the median, because the machine may have been suspended.
        `done` and `total` count the run's jobs; `now_s` is from any clock. None at first.
        """
        if not self._latest or done > self._latest[-1][1]:
            self._latest.append((now_s, done))
        per_job_s = [
            (later_s - earlier_s) / (after - before)
            for (earlier_s, before), (later_s, after) in itertools.pairwise(self._latest)
            for _ in range(after - before)
        ]
        if not per_job_s:
            return None
        longest_s = _LONGEST * statistics.median(per_job_s)
        return statistics.mean(min(each_s, longest_s) for each_s in per_job_s) * (total - done)


def extraction_line(tuples: ModelTuples) -> str:
    """The line for an extracted or refused model."""
    if tuples.refusal is not None:
        return f"[refused] {tuples.model}: {tuples.refusal}"
    if tuples.is_operator:
        return f"[extracted] {tuples.model}: {tuples.tuples[0].operator_tuple}"
    kernels = sum(record.launches_kernel for record in tuples.tuples)
    return (
        f"[extracted] {tuples.model}: {len(tuples.calls)} operator calls, "
        f"{len(tuples.tuples)} distinct tuples, {kernels} of them to measure (views are not)"
    )


def tracing_line(target: str, traced: ModelTuples, extracted: ModelTuples) -> str:
    """The line for a model's calls that were traced on a target's device."""
    if traced.not_recorded is not None:
        found = f"not traced, so the extracted calls are measured: {traced.not_recorded}"
    else:
        differing = extracted.differing_calls(traced.launched())
        found = some(differing, _DIFFERING) or "as extracted"
    return f"[calls] {target}  {traced.model}: {found}"


def measured_line(kind: str, description: str, row: Mapping[str, Any], number: int = 1) -> str:
    """The line for an operator or model that was measured in a round."""
    word = kind if number == 1 else f"{kind} {number}"
    return f"[{word}] {row['target']}  {result(row)}  {description}"


def overhead_line(target: str, columns: Mapping[str, Any]) -> str:
    """The line for the call overhead of a later round."""
    return f"[overhead] {target}  {_timed(OVERHEADS['call'].read(columns))}  call overhead"


def result(row: Mapping[str, Any]) -> str:
    """The result of a row: time with its uncertainty and energy if measured, or the failure."""
    if row["status"] != "ok":
        return f"{row['status']}: {row['error']}"
    text = _timed(TIME.read(row))
    if row.get(ENERGY.value) is not None:
        text += f"  {joules(row[ENERGY.value])}"
    return text


def _timed(time: Estimate | None) -> str:
    text = with_interval(time, seconds)
    if time and is_too_noisy(time) and time.low and time.high and time.low > 0:
        text = f"{seconds(time.low, 2)} to {seconds(time.high, 2)}"
    return f"{text:>15}"
