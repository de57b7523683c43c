"""Section: can the breakdown be trusted? Estimates beside end-to-end measurements."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from opcost.costs.caveats import caveats
from opcost.costs.host import waits_of
from opcost.costs.in_context_text import tuple_cells
from opcost.groups import grouped
from opcost.report.results import Results, Row
from opcost.report.theme import INK, Figure, dots
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import counted, difference, is_too_noisy

_MOST_IN_CONTEXT, _COSTLIEST = 30, 10
"""More models than these have no tables of operators on the page: the file has them."""


@dataclass(frozen=True)
class Agreement:
    """The comparison of time or energy: a verdict for each target, and a chart of models."""

    quantity: Quantity
    verdicts: dict[str, str]
    figure: Figure | None = None


def agreement(results: Results, quantity: Quantity) -> Agreement:
    """How estimates of time or energy compare with end-to-end measurements."""
    verdicts = {
        target: verdict(results.compared(target), quantity)
        for target in results.targets
        if results.compared(target) and (quantity == TIME or target in results.targets_with_energy)
    }
    return Agreement(quantity, verdicts, _figure(results, quantity))


def verdict(rows: Sequence[Row], quantity: Quantity) -> str:
    """The differences between estimates and measurements on a target, in a sentence or two."""
    errors = {row["model"]: error for row in rows if (error := quantity.error.read(row))}
    known = {name: each for name, each in errors.items() if not is_too_noisy(each.plus(1.0))}
    if not known:
        return f"no model's {quantity} can be compared; the caveats give the reasons."
    worst = max(known, key=lambda model: abs(known[model].value))
    typical = statistics.median(abs(error.value) for error in known.values())
    text = f"{len(known)} of {counted(len(rows), 'model')} can be compared. "
    text += f"The estimate differs from the end-to-end {quantity} by "
    if len(known) > 1:
        text += f"{typical:.1%} in the median, and by "
    text += f"{known[worst].value:+.1%} in {worst}{', the most' if len(known) > 1 else ''}."
    limits = [
        (each.low, each.high)
        for each in known.values()
        if each.low is not None and each.high is not None
    ]
    if limits:
        agree = sum(low <= 0 <= high for low, high in limits)
        text += f" The 95 % interval of the difference contains zero for {agree} of {len(limits)}."
    return text


def all_caveats(results: Results) -> list[tuple[str, str]]:
    """(targets, caveat) of all estimates, each caveat once."""
    models = len(results.models)
    found = grouped(
        (caveat, target)
        for target in results.targets
        if results.compared(target)
        for caveat in caveats(
            results.compared(target),
            models,
            # Where there is no energy, the cards give the reason.
            COMPARED if target in results.targets_with_energy else [TIME],
            [row for row in results.in_context if row["target"] == target],
        )
    )
    return [(", ".join(targets), caveat) for caveat, targets in found.items()]


def all_waits(results: Results) -> list[tuple[str, str]]:
    """(target, for how long a model waits for its host) of each model on a GPU."""
    return [
        (target, text) for target in results.targets for text in waits_of(results.compared(target))
    ]


def operators_in_context(results: Results) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Model, with its target if there are several -> a table of its costliest operators."""
    several = len(results.targets) > 1
    groups = grouped(
        (f"{row['model']} on {row['target']}" if several else row["model"], row)
        for row in results.in_context
    )
    if len(groups) > _MOST_IN_CONTEXT:
        return {}
    return {title: tuple_cells(rows[:_COSTLIEST]) for title, rows in groups.items()}


def _figure(results: Results, quantity: Quantity) -> Figure | None:
    """Each model's relative error with its interval, around zero."""
    values = [
        {
            **{name: row[name] for name in ("model", "target")},
            **{name: row[name] for name in quantity.of("estimate").names},
            **{name: row[name] for name in quantity.of("end_to_end").names},
            "value": error.value,
            "low": error.low,
            "high": error.high,
            "shown": difference(error),
        }
        for row in results.comparison
        if (error := quantity.error.read(row)) and not is_too_noisy(error.plus(1.0))
    ]
    if not values:
        return None
    ends = [0.0, *(each[limit] or 0.0 for each in values for limit in ("low", "high"))]
    scale = alt.Scale(domain=[min(ends), max(ends) + 0.3 * (max(ends) - min(ends))], nice=False)
    grid = {"condition": {"test": "datum.value == 0", "value": INK}, "value": "var(--grid)"}
    title = "estimate / end-to-end - 1"
    axis = alt.Axis(title=title, format="+~%", orient="top", tickCount=8, gridColor=grid)
    x = alt.X("value:Q", scale=scale, axis=axis)
    title = f"Estimate relative to end-to-end {quantity}"
    label = f"{title}, of each model and target, with 95 % intervals."
    return dots(values, results.targets, x, title, label, quantity.error.names)
