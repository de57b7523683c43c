"""Operators in context and isolated as text: where estimate and measurement differ."""

import math
from collections.abc import Iterable, Mapping, Sequence

from opcost import statistics
from opcost.costs.in_context import IN_CONTEXT, ISOLATED, RATIO, between_calls, of_operators
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import (
    counted,
    difference,
    is_too_noisy,
    shortened,
    significant,
    table,
    with_interval,
    with_margin,
    without_interval,
)

TITLE = "Where do the estimate and the end-to-end measurement differ?"
MEANING = (
    "Estimate - end-to-end = (isolated - in context) + (overhead - between calls), where overhead "
    "is the estimate's call overhead or wait for the host; with clock: how much longer the model "
    "takes with a clock around each call."
)

_NAMED = 3
_COARSE = 0.01
_FAR, _LEAST_SHARE = 2.0, 0.02


def model_cells(comparison: Iterable[Row]) -> list[dict[str, str]]:
    """A row of a table for each model with times in context."""
    rows, cells = list(comparison), []
    several = len({row["target"] for row in rows}) > 1
    for row in rows:
        in_context = IN_CONTEXT.read(row)
        if in_context is None:
            continue
        isolated_s, half_s = row["operators_time_s"], in_context.half_width
        end_to_end_s, relative = row[TIME.of("end_to_end").value], in_context.relative_half_width
        overhead_s = beyond_operators(row)
        cells.append(
            {
                "model": row["model"],
                **({"target": row["target"]} if several else {}),
                "estimate - end-to-end": difference(TIME.error.read(row)),
                "in context": with_interval(in_context, TIME.show),
                "isolated": without_interval(isolated_s, half_s, TIME.show),
                "relative": _relative(in_context.value, isolated_s, relative),
                "between calls": with_margin(between_calls(row), TIME.show),
                "overhead": "-" if overhead_s is None else TIME.show(overhead_s, 2),
                "with clock": _relative(row["clocked_time_s"], end_to_end_s, relative),
            }
        )
    return cells


def beyond_operators(compared: Row) -> float | None:
    """Seconds of call overhead in a model's estimate, or of the wait for the host."""
    overhead_s: float | None = compared["overhead_time_s"]
    return compared["idle_time_s"] if overhead_s is None else overhead_s


def operator_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each operator of a model, costliest first."""
    return [
        {
            "operator": row["operator"],
            "calls": str(row["calls"]),
            "in context": with_interval(IN_CONTEXT.read(row), TIME.show),
            **against_isolated(row),
        }
        for row in of_operators(rows)
    ]


def against_isolated(row: Row) -> dict[str, str]:
    """The cells that compare calls in context with the same isolated calls."""
    return compared_cells(*(each.read(row) for each in (IN_CONTEXT, ISOLATED, RATIO)))


def compared_cells(
    in_context: Estimate | None, isolated: Estimate | None, ratio: Estimate | None
) -> dict[str, str]:
    """The cells that compare two times, of which the ratio is given."""
    both = [(1, in_context), (-1, isolated)]
    known = [(sign, each) for sign, each in both if each is not None]
    added = statistics.weighted_sum(known) if len(known) == len(both) else None
    return {
        "isolated": with_interval(isolated, TIME.show),
        "difference": with_margin(added, TIME.show),
        "relative": difference(ratio.plus(-1)) if ratio else "-",
    }


def lines(cells: Sequence[Mapping[str, str]], left: int = 1) -> list[str]:
    """Rows of a table as lines; none without rows."""
    return table(list(cells[0]), [list(row.values()) for row in cells], left) if cells else []


def note(compared: Row, rows: Sequence[Row]) -> str | None:
    """A sentence about a model's operators in context; None if unknown or too noisy."""
    in_context, isolated_s = IN_CONTEXT.read(compared), compared["operators_time_s"]
    if in_context is None or isolated_s is None or is_too_noisy(in_context):
        return None
    known = [row for row in of_operators(rows) if not is_too_noisy(RATIO.read(row))]
    named = ", ".join(f"{row['operator']} {row[RATIO.value] - 1:+.0%}" for row in known[:_NAMED])
    text = (
        f"In context, the operators take {with_interval(in_context, TIME.show)}, "
        f"{in_context.value / isolated_s - 1:+.1%} against isolated{f' ({named})' if named else ''}"
    )
    between, overhead_s = between_calls(compared), compared["overhead_time_s"]
    if between is None or overhead_s is None:
        return f"{text}."
    return (
        f"{text}; between calls: {with_margin(between, TIME.show)}, call overhead in the estimate: "
        f"{TIME.show(overhead_s, 2)}."
    )


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


def verdicts(comparison: Iterable[Row]) -> list[str]:
    """The models that were faster with the clock, which only noise explains, and those whose
    operators take longer than the model, beyond noise.
    """
    rows = [row for row in comparison if IN_CONTEXT.read(row) is not None]
    noisy = [
        row["model"]
        for row in rows
        if row["clocked_time_s"] < (row[TIME.of("end_to_end").value] or 0.0)
    ]
    negative = [
        row["model"]
        for row in rows
        if (between := between_calls(row)) and (between.high or between.value) < 0
    ]
    found = []
    if noisy:
        found.append(
            f"Faster with the clock than without, which only disturbance explains: "
            f"{', '.join(noisy)}. Measure again on a quiet machine."
        )
    if negative:
        found.append(
            f"The time between calls is negative: {', '.join(negative)}. The clock slows the "
            "operators, or the machine's speed changed."
        )
    return found


def _relative(time_s: float | None, base_s: float | None, half: float | None) -> str:
    """A relative difference, without decimals if its error is 1 % or more."""
    if time_s is None or not base_s:
        return "-"
    return f"{time_s / base_s - 1:+z.{0 if (half or 0.0) >= _COARSE else 1}%}"
