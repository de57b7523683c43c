"""The phases of a training step: what each takes as a sum over its operators, and in the whole
step. The loss counts with forward.
"""

from typing import Any

from opcost import statistics
from opcost.costs.call_overhead import added
from opcost.costs.estimate import ModelEstimate
from opcost.models.phases import COMPARED_PHASES, compared_phase
from opcost.rows.quantities import PHASE_TIMES, TIME
from opcost.rows.runs import combined_value
from opcost.statistics import Estimate


def phase_columns(estimate: ModelEstimate) -> dict[str, Any]:
    """The columns of the comparison for the phases; null for inference."""
    columns: dict[str, Any] = {}
    for phase in COMPARED_PHASES:
        trained = estimate.model.trains
        columns |= TIME.of(f"estimate_{phase}").columns(
            _summed(estimate, phase) if trained else None
        )
        columns |= TIME.of(f"end_to_end_{phase}").columns(
            combined_value(
                estimate.measured_whole, PHASE_TIMES[phase], estimate.end_to_end_variation
            )
            if trained
            else None
        )
    return columns


def _summed(estimate: ModelEstimate, phase: str) -> Estimate | None:
    """Seconds of a phase: its operators, with call overhead; on a GPU, with a part of the wait for
    the host, in proportion to the seconds of the host.
    """
    if estimate.summed_time is None:
        return None
    here = [compared_phase(call.phase) == phase for call in estimate.model.calls]
    counts: dict[str, int] = {}
    ids = list(estimate.model.by_id)
    for call, is_here in zip(estimate.model.calls, here, strict=True):
        if is_here:
            counts[ids[call.position]] = counts.get(ids[call.position], 0) + 1
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
