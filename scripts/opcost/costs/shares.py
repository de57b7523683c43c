"""A model's cost by operator and by module."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opcost.costs.terms import Term, flops_of
from opcost.tuples.model_tuples import ModelTuples

OVERHEAD_COLUMN = "overhead_time_s"
"""Seconds of call overhead."""

IN_CONTEXT_COLUMN = "in_context_time_s"
"""Seconds of the calls inside the running model."""


def operator_shares(model: ModelTuples, terms: Sequence[Term]) -> list[dict[str, Any]]:
    """A model's cost by operator and phase, largest first, views last."""
    by_id = {term.record.operator_tuple.tuple_id: term for term in terms}
    ids = list(model.by_id)
    groups: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for call in model.calls:
        if ids[call.position] in by_id:
            operator = model.tuples[call.position].operator_tuple.operator
            groups[operator, call.phase][ids[call.position]] += 1
    table = [
        {
            "operator": operator,
            "phase": phase,
            "launches_kernel": True,
            **_costs(by_id, counts),
        }
        for (operator, phase), counts in groups.items()
    ]
    return [*_costliest_first(table), *_views(model)]


_Module = tuple[str, str | None, str]
"""A module's path and class, and the phase."""


def module_shares(
    model: ModelTuples,
    terms: Sequence[Term],
    by_call_s: Mapping[str, Sequence[float]],
    depth: int | None = None,
) -> list[dict[str, Any]]:
    """A model's cost by phase and the module that calls its operators, largest first.

    `by_call_s` are further seconds of each call, by column. With `depth`, paths are cut after that
    many names, modules of one path are added up, and the class is None.
    """
    by_id = {term.record.operator_tuple.tuple_id: term for term in terms}
    ids = list(model.by_id)
    calls: dict[_Module, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    first_calls: dict[_Module, int] = {}
    more_s: dict[str, dict[_Module, list[float]]] = {
        column: defaultdict(list) for column in by_call_s
    }
    for number, (index, path, kind, phase) in enumerate(model.calls):
        module: _Module = path, kind, phase
        if depth is not None:
            module = ".".join(path.split(".")[:depth]), None, phase
        first_calls.setdefault(module, number)
        for column, seconds in by_call_s.items():
            more_s[column][module].append(seconds[number])
        if ids[index] in by_id:
            calls[module][ids[index]] += 1
        elif any(seconds[number] for seconds in by_call_s.values()):
            calls[module]  # a module with only views has overhead
    return _costliest_first(
        [
            {
                "module_path": path,
                "module_class": kind,
                "phase": phase,
                "first_call": first_calls[path, kind, phase],
                "tuple_ids": list(counts),
                "tuple_calls": list(counts.values()),
                **_costs(by_id, counts),
                **{
                    column: math.fsum(more_s[column][path, kind, phase])
                    if column in more_s
                    else None
                    for column in (OVERHEAD_COLUMN, IN_CONTEXT_COLUMN)
                },
            }
            for (path, kind, phase), counts in calls.items()
        ]
    )


def _costs(by_id: Mapping[str, Term], counts: Mapping[str, int]) -> dict[str, Any]:
    terms = [replace(by_id[tuple_id], calls=count) for tuple_id, count in counts.items()]
    complete = all(term.known for term in terms)
    return {
        "calls": sum(term.calls for term in terms),
        "tuples": len(terms),
        "measured_tuples": sum(term.measured for term in terms),
        "predicted_tuples": sum(term.predicted for term in terms),
        "time_s": _sum(terms, "time_s") if complete else None,
        "energy_j": _sum(terms, "energy_j") if complete else None,
        "partial_time_s": _partial_sum(terms, "time_s"),
        "partial_energy_j": _partial_sum(terms, "energy_j"),
        "flops": flops_of(terms),
        "bytes": sum(term.calls * term.record.bytes for term in terms),
    }


def _costliest_first(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(table, key=lambda row: row["partial_time_s"], reverse=True)


def _views(model: ModelTuples) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for call in model.calls:
        record = model.tuples[call.position]
        if not record.launches_kernel:
            counts[record.operator_tuple.operator, call.phase][call.position] += 1
    return [
        {
            "operator": operator,
            "phase": phase,
            "launches_kernel": False,
            "calls": sum(calls.values()),
            "tuples": len(calls),
            **dict.fromkeys(("measured_tuples", "predicted_tuples"), 0),
            **dict.fromkeys(("time_s", "energy_j", "partial_time_s", "partial_energy_j")),
        }
        for (operator, phase), calls in sorted(counts.items())
    ]


def _sum(terms: Sequence[Term], column: str) -> float | None:
    values = [(term.calls, term.row[column]) for term in terms if term.row]
    if any(value is None for _, value in values):
        return None
    return math.fsum(calls * value for calls, value in values)


def _partial_sum(terms: Sequence[Term], column: str) -> float | None:
    """The sum of what is known; None if terms have results, and none of them has a value."""
    rows = [(term.calls, term.row[column]) for term in terms if term.known and term.row]
    known = [calls * value for calls, value in rows if value is not None]
    return math.fsum(known) if known or not rows else None
