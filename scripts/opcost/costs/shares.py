"""A model's cost by operator and by module."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opcost.costs.terms import Term, flops_of
from opcost.tuples.model_tuples import ModelTuples

BEYOND_COLUMNS = ("overhead_time_s", "idle_time_s")
"""Seconds beyond operators: call overhead on a processor, the wait for the host on a GPU."""


def operator_shares(model: ModelTuples, terms: Sequence[Term]) -> list[dict[str, Any]]:
    """A model's cost by operator, largest first, views last."""
    groups: dict[str, list[Term]] = defaultdict(list)
    for term in terms:
        groups[term.record.operator_tuple.operator].append(term)
    table = [
        {"operator": operator, "launches_kernel": True, **_costs(group)}
        for operator, group in groups.items()
    ]
    return [*_costliest_first(table), *_views(model)]


def module_shares(
    model: ModelTuples,
    terms: Sequence[Term],
    beyond_s: Mapping[str, Sequence[float]],
    depth: int | None = None,
) -> list[dict[str, Any]]:
    """A model's cost by the module that calls its operators, largest first.

    `beyond_s` are seconds of each of the model's calls beyond its operator, by column. With
    `depth`, paths are cut after that many names, modules of one path are added up, and the class
    is None.
    """
    by_id = {term.record.operator_tuple.tuple_id: term for term in terms}
    ids = list(model.by_id)
    calls: dict[tuple[str, str | None], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    first_calls: dict[tuple[str, str | None], int] = {}
    more_s: dict[str, dict[tuple[str, str | None], list[float]]] = {
        column: defaultdict(list) for column in beyond_s
    }
    for number, (index, path, kind) in enumerate(model.calls):
        module = (path, kind) if depth is None else (".".join(path.split(".")[:depth]), None)
        first_calls.setdefault(module, number)
        for column, seconds in beyond_s.items():
            more_s[column][module].append(seconds[number])
        if ids[index] in by_id:
            calls[module][ids[index]] += 1
        elif any(seconds[number] for seconds in beyond_s.values()):
            calls[module]  # a module of views alone has no operator, but overhead
    return _costliest_first(
        [
            {
                "module_path": path,
                "module_class": kind,
                "first_call": first_calls[path, kind],
                "tuple_ids": list(counts),
                "tuple_calls": list(counts.values()),
                **_costs(
                    [replace(by_id[tuple_id], calls=count) for tuple_id, count in counts.items()]
                ),
                **{
                    column: math.fsum(more_s[column][path, kind]) if column in more_s else None
                    for column in BEYOND_COLUMNS
                },
            }
            for (path, kind), counts in calls.items()
        ]
    )


def _costs(terms: Sequence[Term]) -> dict[str, Any]:
    complete = all(term.measured for term in terms)
    return {
        "calls": sum(term.calls for term in terms),
        "tuples": len(terms),
        "measured_tuples": sum(term.measured for term in terms),
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
            **dict.fromkeys(("time_s", "energy_j", "partial_time_s", "partial_energy_j")),
        }
        for operator, calls in sorted(counts.items())
    ]


def _sum(terms: Sequence[Term], column: str) -> float | None:
    values = [(term.calls, term.row[column]) for term in terms if term.row]
    if any(value is None for _, value in values):
        return None
    return math.fsum(calls * value for calls, value in values)


def _partial_sum(terms: Sequence[Term], column: str) -> float:
    return math.fsum(
        term.calls * (term.row[column] or 0.0) for term in terms if term.measured and term.row
    )
