"""Section: can the breakdown be trusted? Sums over operators compared with whole models."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from opcost.costs.caveats import caveats
from opcost.costs.trust import trust_cells
from opcost.costs.waiting import waits_of
from opcost.report.results import NOTHING, Results, Row
from opcost.report.theme import INK, Figure, figure, targets_scale
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import difference, is_too_noisy, names_by_text

_STEP = 16


@dataclass(frozen=True)
class Agreement:
    """The comparison of time or energy: a verdict for each target, and a table of models."""

    quantity: Quantity
    verdicts: dict[str, str]
    table: list[dict[str, str]] = field(default_factory=list)
    figure: Figure | None = None


def agreement(results: Results, quantity: Quantity) -> Agreement:
    """How sums of `time` or `energy` compare with whole models."""
    verdicts = {
        target: verdict(results.compared(target), quantity)
        for target in results.targets
        if results.compared(target)
    }
    known = any(row[quantity.error.value] is not None for row in results.comparison)
    measured = any(row[quantity.of("end_to_end").value] for row in results.comparison)
    return Agreement(
        quantity,
        verdicts,
        [_cells(row, quantity) for row in results.comparison] if known or measured else [],
        _figure(results, quantity) if known else None,
    )


def verdict(rows: Sequence[Row], quantity: Quantity) -> str:
    """The differences between sums and whole models on a target, in a sentence or two."""
    known = {row["model"]: error for row in rows if (error := quantity.error.read(row))}
    if not known:
        return f"no model's {quantity} can be compared; the caveats give the reasons."
    worst = max(known, key=lambda model: abs(known[model].value))
    typical = statistics.median(abs(error.value) for error in known.values())
    text = f"{len(known)} of {len(rows)} models can be compared. "
    text += f"The sum differs from the whole model by {typical:.1%} in the median"
    text += f", and by {known[worst].value:+.1%} at most ({worst})."
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
    """(targets, caveat) of all sums, each caveat once."""
    models = len(results.models)
    found = names_by_text(
        (caveat, target)
        for target in results.targets
        if results.compared(target)
        for caveat in caveats(
            results.compared(target),
            models,
            _compared_on(results, target),
            [row for row in results.in_context if row["target"] == target],
        )
    )
    return [(", ".join(targets), caveat) for caveat, targets in found.items()]


def _compared_on(results: Results, target: str) -> Sequence[Quantity]:
    """Without energy where there is none: that is said once, of the target."""
    return COMPARED if target in results.targets_with_energy else [TIME]


def all_waits(results: Results) -> list[tuple[str, str]]:
    """(target, for how long a model waits for its host) of each model on a GPU."""
    return [
        (target, text) for target in results.targets for text in waits_of(results.compared(target))
    ]


def _cells(row: Row, quantity: Quantity) -> dict[str, str]:
    cells = {"model": row["model"], "target": row["target"], **trust_cells(row, quantity)}
    return {title: NOTHING if cell == "-" else cell for title, cell in cells.items()}


def _figure(results: Results, quantity: Quantity) -> Figure:
    """Each model's relative error with its interval, around zero."""
    values = [
        {
            "model": row["model"],
            "target": row["target"],
            "difference": error.value,
            "low": error.low,
            "high": error.high,
            "shown": difference(error),
        }
        for row in results.comparison
        if (error := quantity.error.read(row)) and not is_too_noisy(error.plus(1.0))
    ]
    colour, shape = targets_scale(results.targets)
    tooltip: list[Any] = ["model:N", "target:N", alt.Tooltip("shown:N", title="difference")]
    base = alt.Chart(alt.NamedData("models")).encode(
        y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(grid=True, labelLimit=160)),
        yOffset=alt.YOffset("target:N", sort=results.targets),
    )
    axis = alt.Axis(format="+~%", orient="top", tickCount=8)
    x = alt.X("difference:Q", title="sum / whole - 1", axis=axis)
    points = base.mark_point(filled=True, size=70, opacity=1)
    points = points.encode(x=x, color=colour, shape=shape, tooltip=tooltip)
    intervals = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=colour)
    zero = alt.Chart(alt.NamedData("zero")).mark_rule(color=INK).encode(x="at:Q")
    chart = alt.layer(zero, intervals, points)
    height = len({row["model"] for row in values}) * max(26, _STEP * len(results.targets) + 8)
    title = f"Sum relative to whole model, {quantity}"
    label = f"For each model and target, the relative difference in {quantity} of sum and whole."
    datasets = {"models": values, "zero": [{"at": 0}]}
    return figure(chart, height, title, label, datasets, tall=len(values) > 40)
