"""Operators in place against alone as text: where the sum and the whole model part company."""

from collections.abc import Iterable, Mapping, Sequence

from opcost import statistics
from opcost.costs.in_place import ALONE, IN_PLACE, RATIO, of_operators
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import difference, table, with_interval, without_interval

TITLE = "Where do the sum and the whole model part company?"
MEANING = (
    "In place is inside the running model, with a clock around each call; alone is as in the sum. "
    "Whole - sum = (in place - alone) + (between calls - the sum's overhead or wait). With the "
    "clock, the model takes longer by the last column, most of it between calls."
)

_NAMED = 3
_COARSE = 0.01


def model_cells(comparison: Iterable[Row]) -> list[dict[str, str]]:
    """A row of a table for each model whose calls were timed in place."""
    cells = []
    for row in comparison:
        in_place = IN_PLACE.read(row)
        if in_place is None:
            continue
        alone_s, half_s = row["operators_time_s"], known_to_s(row)
        whole_s, relative = row[TIME.of("reference").value], in_place.relative_half_width
        cells.append(
            {
                "model": row["model"],
                "sum - whole": difference(TIME.error.read(row)),
                "alone": without_interval(alone_s, half_s, TIME.show),
                "in place": with_interval(in_place, TIME.show),
                "more": _more(in_place.value, alone_s, relative),
                "between calls": without_interval(row["between_calls_time_s"], half_s, TIME.show),
                "in the sum": without_interval(beyond_s(row), half_s, TIME.show),
                "with clock": _more(row["clocked_time_s"], whole_s, relative),
            }
        )
    return cells


def beyond_s(compared: Row) -> float | None:
    """What the sum of a model has for the time between calls: overhead or the wait for the host."""
    overhead_s: float | None = compared["overhead_time_s"]
    return compared["idle_time_s"] if overhead_s is None else overhead_s


def operator_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each operator of a model, the costliest first."""
    return [
        {
            "operator": row["operator"],
            "calls": str(row["calls"]),
            "in place": with_interval(IN_PLACE.read(row), TIME.show),
            **against_alone(row),
        }
        for row in of_operators(rows)
    ]


def against_alone(row: Row) -> dict[str, str]:
    """The cells that compare calls in place with the same calls alone."""
    in_place, alone, ratio = (each.read(row) for each in (IN_PLACE, ALONE, RATIO))
    added = statistics.weighted_sum([(1, in_place), (-1, alone)]) if in_place and alone else None
    return {
        "alone": with_interval(alone, TIME.show),
        "more": difference(ratio.plus(-1)) if ratio else "-",
        "adds": without_interval(row["added_time_s"], half_width(added), TIME.show),
    }


def known_to_s(compared: Row) -> float | None:
    """How well differences between a model's times are known, of which the wider interval tells."""
    times = (IN_PLACE.read(compared), TIME.of("reference").read(compared))
    return max(filter(None, map(half_width, times)), default=None)


def half_width(estimate: Estimate | None) -> float | None:
    """Half of the interval, in the estimate's unit; None if unknown."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / 2


def lines(cells: Sequence[Mapping[str, str]], left: int = 1) -> list[str]:
    """Rows of a table as lines; none without rows."""
    return table(list(cells[0]), [list(row.values()) for row in cells], left) if cells else []


def note(compared: Row, rows: Sequence[Row]) -> str | None:
    """What a model's operators take in place, in a sentence; None if that is unknown."""
    in_place, alone_s = IN_PLACE.read(compared), compared["operators_time_s"]
    if in_place is None or alone_s is None:
        return None
    named = ", ".join(
        f"{row['operator']} {row[RATIO.value] - 1:+.0%}" for row in of_operators(rows)[:_NAMED]
    )
    text = (
        f"Inside the running model, the operators take {with_interval(in_place, TIME.show)}, "
        f"{in_place.value / alone_s - 1:+.1%} against alone ({named})"
    )
    between_s, overhead_s = compared["between_calls_time_s"], compared["overhead_time_s"]
    if between_s is None or overhead_s is None:
        return f"{text}."
    return (
        f"{text}; between their calls pass {TIME.show(between_s, 3)}, for which the sum has "
        f"{TIME.show(overhead_s, 3)} of call overhead."
    )


def verdicts(comparison: Iterable[Row]) -> list[str]:
    """The models whose difference is within its interval, those in which the clock was not slower,
    which only noise explains, and those whose operators leave no time between calls.
    """
    rows = [row for row in comparison if IN_PLACE.read(row) is not None]
    errors = {row["model"]: TIME.error.read(row) for row in rows}
    within = [
        name
        for name, error in errors.items()
        if error and error.low is not None and error.high is not None and error.low < 0 < error.high
    ]
    noisy = [
        row["model"]
        for row in rows
        if row["clocked_time_s"] < (row[TIME.of("reference").value] or 0.0)
    ]
    negative = [row["model"] for row in rows if (row["between_calls_time_s"] or 0.0) < 0]
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
