"""Where a model's cost goes, by operator."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from opcost.manifest import ModelTuples
from opcost.terms import Row, Term, total_flops


def shares(
    model: ModelTuples, target: str, reference: Row, terms: Sequence[Term]
) -> list[dict[str, Any]]:
    """A model's cost by operator on one target, costliest first, views last."""
    groups: dict[str, list[Term]] = defaultdict(list)
    for term in terms:
        groups[term.record.operator_tuple.operator].append(term)
    whole_s = reference["time_s"]
    table: list[dict[str, Any]] = []
    for operator, group in groups.items():
        complete = all(term.measured for term in group)
        time_s = _sum(group, "time_s") if complete else None
        table.append(
            {
                "operator": operator,
                "launches_kernel": True,
                "calls": sum(term.calls for term in group),
                "tuples": len(group),
                "measured_tuples": sum(term.measured for term in group),
                "time_s": time_s,
                "energy_j": _sum(group, "energy_j") if complete else None,
                "flops": total_flops(group),
                "bytes": sum(term.calls * term.record.bytes for term in group),
                "share_of_reference_time": time_s / whole_s if time_s and whole_s else None,
            }
        )
    table.sort(key=lambda row: row["time_s"] or 0, reverse=True)
    return [{"model": model.model, "target": target, **row} for row in [*table, *_views(model)]]


def _views(model: ModelTuples) -> list[dict[str, Any]]:
    counts: dict[str, list[int]] = defaultdict(list)
    for tuple_id, calls in model.call_counts().items():
        record = model.by_id[tuple_id]
        if not record.launches_kernel:
            counts[record.operator_tuple.operator].append(calls)
    return [
        {
            "operator": operator,
            "launches_kernel": False,
            "calls": sum(calls),
            "tuples": len(calls),
            "measured_tuples": 0,
            **dict.fromkeys(("time_s", "energy_j", "share_of_reference_time")),
        }
        for operator, calls in sorted(counts.items())
    ]


def _sum(terms: Sequence[Term], column: str) -> float | None:
    values = [(term.calls, term.row[column]) for term in terms if term.row]
    if any(value is None for _, value in values):
        return None
    return math.fsum(calls * value for calls, value in values)
