"""Operators in place against alone as text: where the sum and the whole model part company."""

import math
from collections.abc import Iterable, Mapping, Sequence

from opcost import statistics
from opcost.costs.in_context import IN_CONTEXT, ISOLATED, RATIO, between_calls, of_operators
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME
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

TITLE = "Where do the sum and the whole model part company?"
MEANING = (
    "In place is inside the running model, with a clock around each call; alone is as in the sum. "
    "Sum - whole = (alone - in place) + (in the sum - between calls). In the sum: its call "
    "overhead or wait for the host. With the clock, the model takes longer by the last column, "
    "most of it between calls."
)

_NAMED = 3
_COARSE = 0.01
_FAR, _LEAST_SHARE = 2.0, 0.02


def model_cells(comparison: Iterable[Row]) -> list[dict[str, str]]:
    """A row of a table for each model whose calls were timed in place."""
    rows, cells = list(comparison), []
    several = len({row["target"] for row in rows}) > 1
    for row in rows:
        in_context = IN_CONTEXT.read(row)
        if in_context is None:
            continue
        alone_s, half_s = row["operators_time_s"], in_context.half_width
        whole_s, relative = row[TIME.of("end_to_end").value], in_context.relative_half_width
        cells.append(
            {
                "model": row["model"],
                **({"target": row["target"]} if several else {}),
                "sum - whole": difference(TIME.error.read(row)),
                "alone": without_interval(alone_s, half_s, TIME.show),
                "in place": with_interval(in_context, TIME.show),
                "more": _more(in_context.value, alone_s, relative),
                "between calls": with_margin(between_calls(row), TIME.show),
                "in the sum": in_the_sum(row),
                "with clock": _more(row["clocked_time_s"], whole_s, relative),
            }
        )
    return cells


def beyond_s(compared: Row) -> float | None:
    """What the sum of a model has for the time between calls: overhead or the wait for the host."""
    overhead_s: float | None = compared["overhead_time_s"]
    return compared["idle_time_s"] if overhead_s is None else overhead_s


def in_the_sum(compared: Row) -> str:
    """What the sum has for the time between calls, as text: to two digits, or a dash."""
    beyond = beyond_s(compared)
    return "-" if beyond is None else TIME.show(beyond, 2)


def operator_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each operator of a model, the costliest first."""
    return [
        {
            "operator": row["operator"],
            "calls": str(row["calls"]),
            "in place": with_interval(IN_CONTEXT.read(row), TIME.show),
            **against_isolated(row),
        }
        for row in of_operators(rows)
    ]


def against_isolated(row: Row) -> dict[str, str]:
    """The cells that compare calls in place with the same calls alone."""
    in_context, alone, ratio = (each.read(row) for each in (IN_CONTEXT, ISOLATED, RATIO))
    added = (
        statistics.weighted_sum([(1, in_context), (-1, alone)]) if in_context and alone else None
    )
    return {
        "alone": with_interval(alone, TIME.show),
        "more": difference(ratio.plus(-1)) if ratio else "-",
        "adds": with_margin(added, TIME.show),
    }


def lines(cells: Sequence[Mapping[str, str]], left: int = 1) -> list[str]:
    """Rows of a table as lines; none without rows."""
    return table(list(cells[0]), [list(row.values()) for row in cells], left) if cells else []


def note(compared: Row, rows: Sequence[Row]) -> str | None:
    """What a model's operators take in place, in a sentence; None if unknown or too noisy."""
    in_context, alone_s = IN_CONTEXT.read(compared), compared["operators_time_s"]
    if in_context is None or alone_s is None or is_too_noisy(in_context):
        return None
    known = [row for row in of_operators(rows) if not is_too_noisy(RATIO.read(row))]
    named = ", ".join(f"{row['operator']} {row[RATIO.value] - 1:+.0%}" for row in known[:_NAMED])
    text = (
        f"Inside the running model, the operators take {with_interval(in_context, TIME.show)}, "
        f"{in_context.value / alone_s - 1:+.1%} against alone{f' ({named})' if named else ''}"
    )
    between = between_calls(compared)
    if between is None or compared["overhead_time_s"] is None:
        return f"{text}."
    return (
        f"{text}; between their calls pass {with_margin(between, TIME.show)}, for which the sum "
        f"has {in_the_sum(compared)} of call overhead."
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
        whole_s, added_s = model[TIME.of("end_to_end").value], row["added_time_s"]
        if model["in_context_reason"] or not whole_s or ratio is None:
            continue
        low, high = ratio.low or 0.0, ratio.high or math.inf
        overhead_s = calls * (model["overhead_time_s"] or 0.0) / model["calls"]
        longer = low > _FAR and added_s > overhead_s
        share = abs(added_s) / whole_s
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
    """The models whose difference is within its interval, those in which the clock was not slower,
    which only noise explains, and those whose operators take longer than they do, beyond noise.
    """
    rows = [row for row in comparison if IN_CONTEXT.read(row) is not None]
    errors = {row["model"]: TIME.error.read(row) for row in rows}
    within = [
        name
        for name, error in errors.items()
        if error and error.low is not None and error.high is not None and error.low < 0 < error.high
    ]
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
    if within:
        found.append(
            f"Sum and whole agree within their uncertainty: {', '.join(within)}. The parts of such "
            "a difference may be noise, too."
        )
    if noisy:
        found.append(
            f"Faster with the clock than without, which only disturbance explains: measure again "
            f"on a quiet machine: {', '.join(noisy)}."
        )
    if negative:
        found.append(
            "The operators in place take longer than the whole model without the clock, so the "
            "time between calls is negative: the clock slows them, or the machine's speed changed: "
            f"{', '.join(negative)}."
        )
    return found


def _more(more_s: float | None, than_s: float | None, half: float | None) -> str:
    """By how much one exceeds the other, in whole per cent if it is known to no less than that."""
    if more_s is None or not than_s:
        return "-"
    return f"{more_s / than_s - 1:+z.{0 if (half or 0.0) >= _COARSE else 1}%}"
