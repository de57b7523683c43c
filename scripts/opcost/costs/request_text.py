"""Requests to language models as text: what a token costs, what a request costs, where it goes."""

from collections.abc import Sequence

from opcost.costs.breakdown import breakdown, shares_text
from opcost.costs.headline import ESTIMATED
from opcost.costs.requests import Request, interpolation_half
from opcost.costs.terms import Row
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import (
    difference,
    digits,
    margin,
    significant,
    table,
    with_interval,
    wrapped,
)

_COSTLIEST = 5
_NOTHING = "-"
_UNCERTAIN_DIGITS = 2
_UNKNOWN_ERROR = (
    "by an unknown error (± ?), which a third length would tell (generation.cache_lengths)"
)
TITLE = "Requests: a prompt, whose prefill makes the first token, and a step for each further token"


def request_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Requests as a table: title -> text. Titles that say nothing for any row are left out."""
    several = len({row["target"] for row in rows}) > 1
    cells = [
        {
            "request": row["model"],
            **({"target": row["target"]} if several else {}),
            "batch": _NOTHING if row["batch_size"] == 1 else str(row["batch_size"]),
            "tokens": f"{row['prompt_tokens']} + {row['new_tokens']}",
            "first token": _cost(row, TIME, "_prefill"),
            "each further": _cost(row, TIME, "_token"),
            "time": _cost(row, TIME),
            "tokens/s": _rate(row),
            "energy of the first": _cost(row, ENERGY, "_prefill"),
            "of each further": _cost(row, ENERGY, "_token"),
            "energy": _cost(row, ENERGY),
            "sum and whole": difference(TIME.error.read(row)),
            "of energy": difference(ENERGY.error.read(row)),
        }
        for row in rows
    ]
    shown = [
        title
        for title in (cells[0] if cells else ())
        if any(row[title] != _NOTHING for row in cells)
    ]
    return [{title: row[title] for title in shown} for row in cells]


def request_lines(requests: Sequence[Request], shares: Sequence[Row]) -> list[str]:
    """The requests as text, with where their cost goes: `shares` are those of their steps.

    Empty if there are none.
    """
    if not requests:
        return []
    rows = [each.columns() for each in requests]
    cells = request_cells(rows)
    lines = [f"{TITLE}:", "", *table(list(cells[0]), [list(row.values()) for row in cells])]
    for quantity in COMPARED:
        parts = [
            (row["model"], _parts(row, request.operators(shares), quantity))
            for row, request in zip(rows, requests, strict=True)
        ]
        if any(text for _, text in parts):
            lines += ["", f"Where the {quantity} of a request goes:"]
            lines += wrapped((f"{model}: {text}" for model, text in parts if text), "  ")
    return [*lines, "", *wrapped(request_notes(rows))]


def request_notes(rows: Sequence[Row]) -> list[str]:
    """How steps were interpolated, and why costs are missing."""
    notes = []
    for row in rows:
        lengths = row["cache_lengths"]
        if row["new_tokens"] - 1 > len(lengths) and _read(row, TIME, "_token"):
            half = row[interpolation_half(TIME)]
            by = _UNKNOWN_ERROR if half is None else f"to within {margin(half)}"
            notes.append(
                f"{row['model']}: of its {row['new_tokens'] - 1} steps, {len(lengths)} were "
                f"measured, at {', '.join(map(str, lengths))} cached tokens; the others are "
                f"interpolated, {by}."
            )
        notes += [
            f"No {_missing(row, quantity)} of {row['model']}: {reason}."
            for quantity in COMPARED
            if (reason := row[f"{quantity}_reason"])
            if quantity == TIME or reason != row[f"{TIME}_reason"]
        ]
    return list(dict.fromkeys(notes))


def _missing(row: Row, quantity: Quantity) -> str:
    """What there is not: a sum, a whole, or either."""
    known = [quantity.of(whose).read(row) for whose in ("estimate", "end_to_end")]
    if known[0] is not None:
        return f"{quantity} of whole steps"
    return f"sum of {quantity}" if known[1] is not None else str(quantity)


def _parts(row: Row, operators: Sequence[Row], quantity: Quantity) -> str:
    return shares_text(breakdown(row, operators, quantity), _COSTLIEST)


def _read(row: Row, quantity: Quantity, part: str) -> tuple[Estimate, bool] | None:
    """The cost of a part, and whether it is a sum: that of whole steps if all were measured. So the
    parts of a row add up.
    """
    whole = quantity.of("end_to_end").read(row) is not None
    whose = "end_to_end" if whole else "estimate"
    found = quantity.of(f"{whose}{part}").read(row)
    return None if found is None else (found, not whole)


def _cost(row: Row, quantity: Quantity, part: str = "") -> str:
    found = _read(row, quantity, part)
    if found is None:
        return _NOTHING
    cost, is_sum = found
    shown = with_interval(cost, quantity.show)
    if cost.low is None:
        shown = f"{quantity.show(cost.value, _UNCERTAIN_DIGITS)} ± ?"
    return shown + (ESTIMATED if is_sum else "")


def _rate(row: Row) -> str:
    found = _read(row, TIME, "")
    if found is None:
        return _NOTHING
    cost, _ = found
    tokens = row["batch_size"] * row["new_tokens"]
    shown = _UNCERTAIN_DIGITS if cost.low is None else digits(cost)
    return significant(tokens / cost.value, shown)
