"""The phases of a training step, estimated and end to end. The loss counts with forward."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from opcost import statistics
from opcost.costs.call_overhead import added
from opcost.costs.estimate import ModelEstimate
from opcost.costs.headline import ESTIMATED
from opcost.costs.terms import Row
from opcost.models.definition import BACKWARD, COMPARED_PHASES, FORWARD, compared_phase
from opcost.rows.quantities import PHASE_TIMES, TIME
from opcost.rows.runs import combined_value
from opcost.statistics import Estimate
from opcost.text import difference, percent, significant, table_of, with_interval

_ESTIMATE, _END_TO_END = "estimate", "end_to_end"


def phase_columns(estimate: ModelEstimate) -> dict[str, Any]:
    """The columns of the comparison for the phases; null for inference."""
    columns: dict[str, Any] = {}
    for phase in COMPARED_PHASES:
        estimated = measured = None
        if estimate.model.trains:
            estimated = _estimate_of(estimate, phase)
            measured = combined_value(
                estimate.end_to_end_rows, PHASE_TIMES[phase], estimate.end_to_end_variation
            )
        columns |= TIME.of(f"{_ESTIMATE}_{phase}").columns(estimated)
        columns |= TIME.of(f"{_END_TO_END}_{phase}").columns(measured)
    return columns


def _estimate_of(estimate: ModelEstimate, phase: str) -> Estimate | None:
    """Seconds of a phase: its operators with their call overhead; on a GPU, with a part of the wait
    for the host, in proportion to the host's seconds.
    """
    if estimate.summed_time is None:
        return None
    here = [compared_phase(call.phase) == phase for call in estimate.model.calls]
    ids = list(estimate.model.by_id)
    counts = Counter(
        ids[call.position]
        for call, is_here in zip(estimate.model.calls, here, strict=True)
        if is_here
    )
    parts = [
        (counts[row["tuple_id"]], value)
        for row in estimate.rows
        if row["tuple_id"] in counts and (value := estimate.noise.value(row, TIME)) is not None
    ]
    if parts and estimate.iteration is not None:
        calls = zip(estimate.iteration.calls, here, strict=True)
        host_s = sum(call.host_s for call, is_here in calls if is_here)
        share = host_s / (estimate.iteration.host_s or 1.0)
        return statistics.weighted_sum([*parts, (share, estimate.iteration.idle)])
    weights = added(
        [each for each, is_here in zip(estimate.overheads_by_call, here, strict=False) if is_here]
    )
    overheads = [
        (count, each) for kind, count in weights.items() if (each := estimate.overhead_of(kind))
    ]
    return statistics.weighted_sum([*parts, *overheads]) if parts else None


def phase_lines(comparison: Iterable[Row], named: bool = True) -> list[str]:
    """A table of the phases of training steps in rows of the comparison; empty without any.

    A row may lack the end-to-end measurement. With `named`, models are named.
    """
    return table_of([cell for row in comparison for cell in _cells(row, named)], left=1 + named)


def _cells(row: Row, named: bool) -> Iterator[dict[str, str]]:
    times = {
        phase: (_read(row, _ESTIMATE, phase), _read(row, _END_TO_END, phase))
        for phase in COMPARED_PHASES
    }
    total_s = sum(estimate.value for estimate, _ in times.values() if estimate)
    for phase, (estimate, measured) in times.items():
        if estimate or measured:
            error = statistics.ratio(estimate, measured).plus(-1) if estimate and measured else None
            yield {
                **({"model": row["model"]} if named else {}),
                "phase": phase,
                "estimate": with_interval(estimate, TIME.show),
                "share": percent(estimate.value / total_s if estimate else None),
                "end-to-end": with_interval(measured, TIME.show),
                "difference": difference(error),
                "x forward": _times_forward(row) if phase == BACKWARD else "",
            }


def _times_forward(row: Row) -> str:
    """Backward relative to forward: end to end, or else estimated."""
    for whose, mark in ((_END_TO_END, ""), (_ESTIMATE, ESTIMATED)):
        forward, backward = _read(row, whose, FORWARD), _read(row, whose, BACKWARD)
        if forward is not None and backward is not None:
            return with_interval(statistics.ratio(backward, forward), significant) + mark
    return ""


def _read(row: Row, whose: str, phase: str) -> Estimate | None:
    quantity = TIME.of(f"{whose}_{phase}")
    return quantity.read(row) if quantity.value in row else None
