"""Operators in context beside isolated ones, as tables of text: where the time of a running model
goes, and where estimate and measurement differ.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opcost import statistics
from opcost.costs.in_context import IN_CONTEXT, ISOLATED, RATIO, between_calls
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import (
    counted,
    difference,
    percent,
    shortened,
    significant,
    with_interval,
    with_margin,
    without_interval,
)

if TYPE_CHECKING:
    from opcost.costs.estimate import ModelEstimate

BETWEEN, WHOLE = "(between calls)", "(end to end)"
MEANING = (
    "In context: inside the running model, timed call by call; isolated: the same calls as in the "
    "estimate; difference, relative: in context compared with isolated. Between calls: Python, "
    "modules, views and waiting, which the estimate has as call overhead or wait for the host."
)
DIFFERENCE_TITLE = "Where do the estimate and the end-to-end measurement differ?"
DIFFERENCE_MEANING = (
    "Estimate - end-to-end = (isolated - in context) + (overhead - between calls), where overhead "
    "is the estimate's call overhead or wait for the host; with clock: how much longer the model "
    "takes with a clock around each call. The time between calls is negative if the clock slows "
    "the operators by more; only disturbance makes a model faster with the clock."
)

_NAMED = 3
_COARSE = 0.01
_FAR, _LEAST_SHARE = 2.0, 0.02


def context_cells(
    estimate: "ModelEstimate", compared: Row, by: str, most: int
) -> list[dict[str, str]]:
    """Where the time of a running model goes: a row of a table for each operator, tuple, module or
    call, of which `most` are listed and the others added up; then the time between calls, and the
    end-to-end time, to which all rows add up.

    `compared` is the model's row of the comparison. Empty without times in context.
    """
    in_context, groups = estimate.in_context, estimate.in_context.groups(by)
    end_to_end, between = TIME.of("end_to_end").read(compared), between_calls(compared)
    if end_to_end is None or between is None or not groups:
        return []
    first = next(iter(groups[0].names))
    listed = [(each.names, each.numbers) for each in groups[:most]]
    if others := groups[most:]:
        numbers = [*itertools.chain.from_iterable(each.numbers for each in others)]
        listed.append(({first: f"({len(others)} more: --top)"}, numbers))
    rows = [
        (names, str(len(numbers)), here, compared_cells(here, in_context.isolated(numbers)))
        for names, numbers in listed
        if (here := in_context.in_context(numbers)) is not None
    ]
    overhead_s = beyond_operators(compared)
    of_rest = {"isolated": "-", "difference": "-"}
    if overhead_s is not None:
        added = with_margin(between.plus(-overhead_s), TIME.show)
        of_rest = {"isolated": TIME.show(overhead_s, 2), "difference": added}
    of_all = compared_cells(end_to_end, TIME.of("estimate").read(compared))
    rows += [({first: BETWEEN}, "", between, of_rest)]
    rows += [({first: WHOLE}, str(estimate.calls), end_to_end, of_all)]
    return [
        {
            **{title: shortened(names.get(title, "")) for title in groups[0].names},
            **({} if by == "call" else {"calls": calls}),
            "in context": (with_margin if here is between else with_interval)(here, TIME.show),
            "share": percent(here.value / end_to_end.value, 1),
            **{title: cells.get(title, "") for title in ("isolated", "difference", "relative")},
        }
        for names, calls, here, cells in rows
    ]


def tuple_cells(rows: Iterable[Row]) -> list[dict[str, str]]:
    """A row of a table for each row of `schemas.IN_CONTEXT`."""
    return [
        {
            "operator": shortened(row["description"]),
            "calls": str(row["calls"]),
            "in context": with_interval(here, TIME.show),
            **compared_cells(here, isolated),
        }
        for row in rows
        for costs in [[each.read(row) for each in (IN_CONTEXT, ISOLATED)]]
        for here, isolated in [[cost and cost.times(row["calls"]) for cost in costs]]
    ]


def compared_cells(in_context: Estimate | None, isolated: Estimate | None) -> dict[str, str]:
    """The cells that compare a time in context with the isolated one."""
    if in_context is None or isolated is None:
        return {"isolated": "-", "difference": "-", "relative": "-"}
    added = statistics.weighted_sum([(1, in_context), (-1, isolated)])
    return {
        "isolated": with_interval(isolated, TIME.show),
        "difference": with_margin(added, TIME.show),
        "relative": difference(statistics.ratio(in_context, isolated).plus(-1)),
    }


def difference_cells(comparison: Iterable[Row]) -> list[dict[str, str]]:
    """Where estimate and measurement differ: a row of a table for each model with times in context,
    from its row of the comparison.
    """
    rows = [row for row in comparison if IN_CONTEXT.read(row) is not None]
    several = len({row["target"] for row in rows}) > 1
    return [_difference_cells(row, several) for row in rows]


def _difference_cells(row: Row, with_target: bool) -> dict[str, str]:
    in_context = IN_CONTEXT.read(row)
    assert in_context is not None
    isolated_s, relative = row["operators_time_s"], in_context.relative_half_width
    overhead_s = beyond_operators(row)
    return {
        "model": row["model"],
        **({"target": row["target"]} if with_target else {}),
        "estimate - end-to-end": difference(TIME.error.read(row)),
        "in context": with_interval(in_context, TIME.show),
        "isolated": without_interval(isolated_s, in_context.half_width, TIME.show),
        "relative": _relative(in_context.value, isolated_s, relative),
        "between calls": with_margin(between_calls(row), TIME.show),
        "overhead": "-" if overhead_s is None else TIME.show(overhead_s, 2),
        "with clock": _relative(row["clocked_time_s"], row[TIME.of("end_to_end").value], relative),
    }


def beyond_operators(compared: Row) -> float | None:
    """Seconds of call overhead in a model's estimate, or of the wait for the host."""
    overhead_s: float | None = compared["overhead_time_s"]
    return compared["idle_time_s"] if overhead_s is None else overhead_s


def far_off(comparison: Sequence[Row], rows: Iterable[Row]) -> list[str]:
    """The operators whose part of an estimate is far off: in context they take more than twice as
    long as isolated, or less than half, by more than noise, the estimate's call overhead and a
    little of the model's time. At most one sentence.

    `rows` are tuples of the models in context. The estimate adds call overhead for the microseconds
    that short operators take longer in context.
    """
    models = {row["model"]: row for row in comparison}
    found = []
    for row in rows:
        model, calls, ratio = models[row["model"]], row["calls"], RATIO.read(row)
        end_to_end_s, added_s = model[TIME.of("end_to_end").value], row["added_time_s"]
        if model["in_context_reason"] or not end_to_end_s or ratio is None:
            continue
        low, high = ratio.low or 0.0, ratio.high or math.inf
        overhead_s = calls * (model["overhead_time_s"] or 0.0) / model["calls"]
        longer = low > _FAR and added_s > overhead_s
        share = abs(added_s) / end_to_end_s
        if share < _LEAST_SHARE or not (longer or high < 1 / _FAR):
            continue
        in_context, isolated = (
            TIME.show(calls * row[each.value], 2) for each in (IN_CONTEXT, ISOLATED)
        )
        text = (
            f"{shortened(row['description'])} takes {significant(ratio.value, 2)} times as long in "
            f"{'the model' if len(models) == 1 else row['model']} ({in_context}) as isolated "
            f"({isolated}): its part of the estimate is too {'small' if longer else 'large'}"
        )
        found.append((share, text))
    texts = [text for _, text in sorted(found, reverse=True)]
    others = [f"{counted(len(texts) - _NAMED, 'other')} alike"] if len(texts) > _NAMED else []
    return [f"{'; '.join([*texts[:_NAMED], *others])}."] if texts else []


def _relative(time_s: float | None, base_s: float | None, half: float | None) -> str:
    """A relative difference, without decimals if its error is 1 % or more."""
    if time_s is None or not base_s:
        return "-"
    return f"{time_s / base_s - 1:+z.{0 if (half or 0.0) >= _COARSE else 1}%}"
