"""Operators in place against alone as text: where the sum and the whole model part company."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opcost.costs.in_place import ALONE, IN_PLACE, RATIO, of_operators
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME
from opcost.text import difference, shortened, table, with_interval
from opcost.tuples.operator_tuple import short_name

if TYPE_CHECKING:
    from opcost.costs.estimate import ModelEstimate

TITLE = "Where do the sum and the whole model part company?"
MEANING = (
    "In place is inside the running model, with a clock around each call; alone is as in the sum. "
    "Whole - sum = (in place - alone) + (between calls - the sum's overhead or wait). With the "
    "clock, the model takes longer by the last column, most of it between calls."
)

_NAMED = 3
_DIGITS = 4


def model_cells(comparison: Iterable[Row]) -> list[dict[str, str]]:
    """A row of a table for each model whose calls were timed in place."""
    cells = []
    for row in comparison:
        in_place = IN_PLACE.read(row)
        if in_place is None:
            continue
        alone_s = row["operators_time_s"]
        beyond_s = row["idle_time_s"] if row["overhead_time_s"] is None else row["overhead_time_s"]
        cells.append(
            {
                "model": row["model"],
                "sum - whole": difference(TIME.error.read(row)),
                "alone": _seconds(alone_s),
                "in place": with_interval(in_place, TIME.show),
                "more": _more(in_place.value, alone_s),
                "between calls": _seconds(row["between_calls_time_s"]),
                "in the sum": _seconds(beyond_s),
                "with clock": _more(row["clocked_time_s"], row[TIME.of("reference").value]),
            }
        )
    return cells


def operator_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each operator of a model, the costliest first."""
    return [_cells(short_name(row["operator"]), row, "") for row in of_operators(rows)]


def tuple_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each operator tuple of a model, the costliest first."""
    return [
        _cells(shortened(row["description"]), row, " (a call)")
        for row in sorted(rows, key=lambda row: -(row["calls"] * row[IN_PLACE.value]))
    ]


def module_cells(modules: Sequence[Row]) -> list[dict[str, str]]:
    """A row of a table for each module of a model with calls of its own, the costliest first."""
    known = [row for row in modules if row["in_place_time_s"] is not None]
    return [
        {
            "module": row["module_path"] or "(model)",
            "class": row["module_class"] or "",
            "phase": row["phase"],
            "calls": str(row["calls"]),
            "alone": _seconds(row["time_s"]),
            "in place": _seconds(row["in_place_time_s"]),
            "more": _more(row["in_place_time_s"], row["time_s"]),
        }
        for row in sorted(known, key=lambda row: -row["in_place_time_s"])
    ]


def call_cells(estimate: "ModelEstimate") -> list[dict[str, str]]:
    """A row of a table for each call of a model, in their order."""
    alone = {term.record.operator_tuple.tuple_id: term for term in estimate.addable}
    cells = []
    calls = zip(estimate.model.calls, estimate.in_place.by_call_s, strict=True)
    for number, (call, in_place_s) in enumerate(calls):
        operator_tuple = estimate.model.tuples[call.position].operator_tuple
        term = alone.get(operator_tuple.tuple_id)
        alone_s = term.row["time_s"] if term is not None and term.row else None
        cells.append(
            {
                "call": str(number),
                "module": call.module_path or "(model)",
                "operator": shortened(str(operator_tuple)),
                "alone": "view" if term is None else _seconds(alone_s),
                "in place": _seconds(in_place_s),
                "more": _more(in_place_s, alone_s),
            }
        )
    return cells


def lines(cells: Sequence[Mapping[str, str]], left: int = 1) -> list[str]:
    """Rows of a table as lines; none without rows."""
    return table(list(cells[0]), [list(row.values()) for row in cells], left) if cells else []


def note(compared: Row, rows: Sequence[Row]) -> str | None:
    """What a model's operators take in place, in a sentence; None if that is unknown."""
    in_place, alone_s = IN_PLACE.read(compared), compared["operators_time_s"]
    if in_place is None or alone_s is None:
        return None
    named = ", ".join(
        f"{short_name(row['operator'])} {row[RATIO.value] - 1:+.0%}"
        for row in of_operators(rows)[:_NAMED]
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
    """The models whose difference is within its interval, and those in which the clock was not
    slower, which only noise explains.
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
    return found


def _cells(name: str, row: Mapping[str, Any], each: str) -> dict[str, str]:
    ratio = RATIO.read(row)
    return {
        "operator": name,
        "calls": str(row["calls"]),
        f"alone{each}": with_interval(ALONE.read(row), TIME.show),
        f"in place{each}": with_interval(IN_PLACE.read(row), TIME.show),
        "more": difference(ratio.plus(-1)) if ratio else "-",
        "adds": _seconds(row["added_time_s"]),
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else TIME.show(value, _DIGITS)


def _more(in_place_s: float | None, alone_s: float | None) -> str:
    return f"{in_place_s / alone_s - 1:+.1%}" if in_place_s is not None and alone_s else "-"
