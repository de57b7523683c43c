"""Each model's modules in the order of their calls, which the page's script draws as an icicle."""

from collections.abc import Sequence
from typing import Any

from opcost.costs.breakdown import breakdown, total_of
from opcost.costs.module_tree import module_amounts
from opcost.report.operator_table import significant
from opcost.report.results import Results, Row
from opcost.rows.quantities import COMPARED, TIME

_DIGITS = 4


def icicles(results: Results) -> list[dict[str, Any]]:
    """Of each model and target, `modules` that call operators themselves, in that order.

    `totals` are what shares are of, by quantity: with what is not measured, if that is known.
    A module is a list: path, class, calls, cost by quantity, the costliest operator, and its rows
    in the table of operators, if known.
    """
    frame = results.operators
    keys = zip(frame["target"], frame["tuple_id"], strict=True)
    rows = {key: number for number, key in enumerate(keys)}
    facts = list(zip(frame["name"], frame["time_s"], strict=True))
    return [
        {
            "model": row["model"],
            "target": row["target"],
            "totals": [
                total_of(breakdown(row, results.shares_of(row), quantity)) for quantity in COMPARED
            ],
            "modules": _modules(results, row, rows, facts),
        }
        for row in results.comparison
        if results.modules_of(row)
    ]


def _modules(
    results: Results,
    compared: Row,
    rows: dict[tuple[str, str], int],
    facts: Sequence[tuple[str, float]],
) -> list[list[Any]]:
    modules = sorted(results.modules_of(compared), key=lambda row: row["first_call"] or 0)
    energy = compared["target"] in results.targets_with_energy
    amounts = [
        module_amounts(compared, modules, quantity)
        for quantity in COMPARED
        if quantity == TIME or energy
    ]
    found = []
    for module, *costs in zip(modules, *amounts, strict=True):
        ids, counts = module["tuple_ids"] or (), module["tuple_calls"] or ()
        calls = {
            rows[compared["target"], tuple_id]: count
            for tuple_id, count in zip(ids, counts, strict=True)
            if (compared["target"], tuple_id) in rows
        }
        costliest = max(calls, key=lambda row: _cost(calls[row], facts[row][1]), default=None)
        found.append(
            [
                module["module_path"],
                module["module_class"],
                module["calls"],
                [significant(cost, _DIGITS) for cost in costs],
                None if costliest is None else facts[costliest][0],
                list(calls),
            ]
        )
    return found


def _cost(calls: int, time_s: float) -> float:
    return calls * time_s if time_s == time_s else 0.0
