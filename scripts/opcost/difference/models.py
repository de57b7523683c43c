"""Changes of whole models between two studies, from the answers beside their databases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.results_folder import ANSWERS
from opcost.rows import records, schemas
from opcost.rows.quantities import COMPARED, Quantity
from opcost.statistics import Estimate
from opcost.text import difference, table, with_interval

_SOURCES = ("end_to_end", "estimate")
_Costs = Mapping[tuple[str, str], Mapping[tuple[str, str], Estimate]]
"""Model and target -> source and quantity -> cost of an iteration."""


def model_lines(before: Path, after: Path) -> list[str]:
    """A table of the models that both studies have: the cost measured end to end or else estimated,
    and the change with its 95 % interval. Empty without answers beside both databases, and where
    both have the same.
    """
    studies = [_costs(path.parent / ANSWERS.name) for path in (before, after)]
    rows = [
        row
        for key in studies[0].keys() & studies[1].keys()
        for quantity in COMPARED
        if (row := _row(*key, quantity, *(study[key] for study in studies)))
    ]
    if not rows:
        return []
    header = ["model", "target", "cost", "source", "before", "after", "change", ""]
    return ["Models, of an iteration:", *table(header, sorted(rows), left=4)]


def _costs(path: Path) -> _Costs:
    found: dict[tuple[str, str], dict[tuple[str, str], Estimate]] = {}
    columns = ["model", "target", "part", "source", "quantity", "value", "low", "high"]
    rows = records.read(path, schemas.ANSWERS, columns).to_pylist() if path.is_file() else []
    for row in rows:
        if row["part"] == "model" and row["source"] in _SOURCES and row["value"] is not None:
            costs = found.setdefault((row["model"], row["target"]), {})
            cost = Estimate(row["value"], row["low"], row["high"])
            costs[row["source"], row["quantity"]] = cost
    return found


def _row(
    model: str,
    target: str,
    quantity: Quantity,
    before: Mapping[tuple[str, str], Any],
    after: Mapping[tuple[str, str], Any],
) -> list[str] | None:
    for source in _SOURCES:
        old, new = (costs.get((source, quantity.value)) for costs in (before, after))
        if old is None or new is None:
            continue
        if old == new:
            return None
        change = statistics.ratio(new, old).plus(-1)
        verdict = "more" if change.value > 0 else "less"
        if change.low is None or change.high is None:
            verdict = "interval unknown"
        elif change.low <= 0 <= change.high:
            verdict = "not told apart"
        shown = [with_interval(each, quantity.show) for each in (old, new)]
        name = source.replace("_", " ")
        return [model, target, str(quantity), name, *shown, difference(change), verdict]
    return None
