"""Which models call an operator tuple, how often, and what share of their time that takes."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from opcost.costs.breakdown import breakdown, total_of
from opcost.report.results import Results


class Use(NamedTuple):
    """The calls of a tuple in a model. `share` is of the model's time; None if unknown."""

    model: str
    calls: int
    share: float | None


def uses(results: Results) -> Mapping[tuple[str, str], list[Use]]:
    """(target, tuple id) -> the models that call it, the one of which it takes most first."""
    frame = results.operators
    time_s: dict[tuple[str, str], Any] = dict(
        zip(zip(frame["target"], frame["tuple_id"], strict=True), frame["time_s"], strict=True)
    )
    found: dict[tuple[str, str], list[Use]] = defaultdict(list)
    for row in results.comparison:
        total_s: Any = total_of(breakdown(row, results.shares_of(row)))
        calls: dict[str, int] = defaultdict(int)
        for module in results.modules_of(row):
            ids, counts = module["tuple_ids"] or (), module["tuple_calls"] or ()
            for tuple_id, count in zip(ids, counts, strict=True):
                calls[tuple_id] += count
        for tuple_id, count in calls.items():
            key = row["target"], tuple_id
            own_s: Any = time_s.get(key)
            unknown = total_s is None or own_s is None or own_s != own_s
            share = None if unknown else count * own_s / total_s
            found[key].append(Use(row["model"], count, share))
    for each in found.values():
        each.sort(key=lambda use: -(use.share or 0.0))
    return found
