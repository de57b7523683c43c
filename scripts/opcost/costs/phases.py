"""The phases of a training step: what each takes as a sum over its operators, and in the whole
step.

The loss counts with forward. What the whole step takes in a phase is a difference: forward, then
forward and backward, then all are measured in each execution.
"""

import math
from collections.abc import Mapping
from typing import Any

from opcost import statistics
from opcost.costs.call_overhead import added
from opcost.costs.estimate import ModelEstimate
from opcost.costs.terms import Row
from opcost.executions import Executions, combined
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
            _measured(estimate, phase) if trained else None
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


def _measured(estimate: ModelEstimate, phase: str) -> Estimate | None:
    """Seconds of a phase in the whole step, from its executions."""
    found = [
        taken
        for row in estimate.whole
        if row["status"] == "ok" and (taken := _taken(row, phase)) is not None
    ]
    if not found:
        return None
    values = [value for value, _ in found]
    if min(values) <= 0:  # shorter than the step varies
        return statistics.mean(values)
    errors = [margin / value for value, margin in found]
    return combined(Executions(values, errors), estimate.scatter(TIME))


def _taken(row: Row, phase: str) -> tuple[float, float] | None:
    """The seconds of a phase in an execution of the whole step, and their standard error."""
    until = [_UP_TO[each].read(row) for each in COMPARED_PHASES]
    place = COMPARED_PHASES.index(phase)
    end, begin = until[place], until[place - 1] if place else Estimate(0.0, 0.0, 0.0)
    if end is None or begin is None:
        return None
    return end.value - begin.value, math.hypot(end.scale or 0.0, begin.scale or 0.0)
