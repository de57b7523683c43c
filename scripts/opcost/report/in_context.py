"""The tables of operators inside the running model, for each model and target."""

from collections.abc import Mapping, Sequence

from opcost.costs.in_context_text import operator_cells
from opcost.report.results import Results, Row

_MOST = 30
"""More models than these have no tables by operator on the page: the file has them."""


def operators_in_context(results: Results) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Model, with its target if there are several -> the rows of its table by operator."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in results.in_context:
        groups.setdefault((row["model"], row["target"]), []).append(row)
    if len(groups) > _MOST:
        return {}
    several = len(results.targets) > 1
    return {
        f"{model} on {target}" if several else model: cells
        for (model, target), rows in groups.items()
        if (cells := operator_cells(rows))
    }
