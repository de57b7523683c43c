"""The phases of a training step: what each takes as a sum over its operators, and in the whole
step.

The loss counts with forward. What the whole step takes in a phase is a difference: forward, then
forward and backward, then all are measured in each execution.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opcost import statistics
from opcost.costs.call_overhead import added
from opcost.costs.estimate import ModelEstimate
from opcost.costs.terms import Row
from opcost.models.phases import BACKWARD, FORWARD, LOSS, OPTIMIZER
from opcost.rows.executed import measured_value
from opcost.rows.quantities import FORWARD_BACKWARD_TIME, FORWARD_TIME, TIME, Quantity
from opcost.statistics import Estimate

COMPARED_PHASES = (FORWARD, BACKWARD, OPTIMIZER)

_UP_TO: Mapping[str, Quantity] = {
    FORWARD: FORWARD_TIME,
    BACKWARD: FORWARD_BACKWARD_TIME,
    OPTIMIZER: TIME,
}
"""Phase -> the time of it and of all before."""


def compared_phase(phase: str) -> str:
    """The phase with which a call is compared."""
    return FORWARD if phase == LOSS else phase


def phase_columns(estimate: ModelEstimate) -> dict[str, Any]:
    """The columns of the comparison for the phases; null for inference."""
    columns: dict[str, Any] = {}
    for phase in COMPARED_PHASES:
        trained = estimate.model.trains
        columns |= TIME.of(f"estimate_{phase}").columns(
            _summed(estimate, phase) if trained else None
        )
        columns |= TIME.of(f"reference_{phase}").columns(
            _measured(estimate.whole, phase) if trained else None
        )
    return columns


def _summed(estimate: ModelEstimate, phase: str) -> Estimate | None:
    """Seconds of a phase, added up, with call overhead or the wait for the host."""
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
        if row["tuple_id"] in counts and (value := measured_value(row, TIME)) is not None
    ]
    if estimate.race is not None:
        idle = zip(estimate.race.idle_by_call_s, here, strict=True)
        waits_s = sum(idle_s for idle_s, is_here in idle if is_here)
        return statistics.weighted_sum(parts).plus(waits_s) if parts else None
    weights = added(
        [each for each, is_here in zip(estimate.overheads_by_call, here, strict=False) if is_here]
    )
    overheads = [
        (count, each) for kind, count in weights.items() if (each := estimate.overhead_of(kind))
    ]
    return statistics.weighted_sum([*parts, *overheads]) if parts else None


def _measured(rows: Sequence[Row], phase: str) -> Estimate | None:
    """Seconds of a phase in the whole step: the mean over executions, with Student's interval."""
    before = None if phase == FORWARD else _UP_TO[COMPARED_PHASES[COMPARED_PHASES.index(phase) - 1]]
    values = [
        row[_UP_TO[phase].value] - (row[before.value] if before else 0.0)
        for row in rows
        if row["status"] == "ok" and row[FORWARD_TIME.value] is not None
    ]
    return statistics.mean(values) if values else None
