"""Where the time of a running model goes, as a table whose rows add up to the whole model."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opcost import statistics
from opcost.costs.in_context import IN_CONTEXT, between_calls, of_operators, of_tuples, together
from opcost.costs.in_context_text import against_isolated, beyond_s, in_the_sum
from opcost.costs.terms import Row
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import (
    difference,
    percent,
    shortened,
    with_interval,
    with_margin,
    without_interval,
)

if TYPE_CHECKING:
    from opcost.costs.estimate import ModelEstimate

KINDS = ("operator", "tuple", "module", "call")
"""What a row of the table may be."""

BETWEEN, WHOLE = "(between calls)", "(whole model)"
MEANING = (
    "Share: of the whole model's time, which is without the clock. Between calls: what the whole "
    "model takes beyond its operators in place; views are part of it. Its alone is the call "
    "overhead or the wait for the host that the sum has, to two digits; that of the whole model is "
    "the sum. -: not measured alone. The intervals in place hold the error of the whole model, "
    "which all rows have in common, and that of the row's share."
)
_MARK = "~"
MARKED = (
    f"{_MARK}: flagged {DISTURBED}: alone, one of the row's operators was; in place, the whole "
    "model, and so all that is in place."
)

_Named = tuple[Mapping[str, str], Row]
"""The cells that name a row, by title, and the row."""


def table_cells(
    estimate: "ModelEstimate", compared: Row, kind: str, most: int
) -> list[dict[str, str]]:
    """A row for each operator, tuple, module or call, of which `most` are shown and the others
    added up; then what is between the calls, and the whole model.

    `compared` is the model's row of the comparison. Empty if the calls were not timed in place.
    """
    named = _named(estimate, kind)
    whole, total = (TIME.of(each).read(compared) for each in ("end_to_end", "estimate"))
    between, in_sum_s = between_calls(compared), beyond_s(compared)
    if whole is None or between is None or not named:
        return []
    rows = [row for _, row in named]
    shown, others = named[:most], rows[most:]
    first = next(iter(named[0][0]))
    if others:
        shown = [*shown, ({first: f"({len(others)} more: --top)"}, together(others))]
    amounts = [*(row[IN_CONTEXT.value] for _, row in shown), between.value]
    disturbed = _disturbed(estimate)
    found = [
        {
            **names,
            "calls": str(row["calls"]),
            "in place": _seconds(row, IN_CONTEXT.read(compared)),
            **_marked(against_isolated(row), "alone", not disturbed.isdisjoint(row["tuple_ids"])),
        }
        for names, row in shown
    ]
    rest = {
        first: BETWEEN,
        "in place": with_margin(between, TIME.show),
        "alone": in_the_sum(compared),
        "adds": "-" if in_sum_s is None else with_margin(between.plus(-in_sum_s), TIME.show),
    }
    all_of_it = {
        first: WHOLE,
        "calls": str(sum(row["calls"] for row in rows)),
        "in place": with_interval(whole, TIME.show),
        "alone": with_interval(total, TIME.show),
        "more": difference(statistics.ratio(whole, total).plus(-1)) if total else "-",
        "adds": with_margin(_beyond(whole, total), TIME.show),
    }
    all_of_it = _marked(all_of_it, "in place", DISTURBED in (compared["end_to_end_flags"] or ()))
    shares = [percent(each / math.fsum(amounts), 1) for each in [*amounts, math.fsum(amounts)]]
    counts = [] if kind == "call" else ["calls"]
    titles = [*named[0][0], *counts, "in place", "share", "alone", "more", "adds"]
    return [
        {title: (cells | {"share": share}).get(title, "") for title in titles}
        for cells, share in zip([*found, rest, all_of_it], shares, strict=True)
    ]


def is_marked(cells: Sequence[Mapping[str, str]]) -> bool:
    """Whether a row of the table has a mark."""
    return any(text.endswith(_MARK) for row in cells for text in row.values())


def _disturbed(estimate: "ModelEstimate") -> set[str]:
    """The operator tuples whose measurement alone was disturbed."""
    return {
        term.record.operator_tuple.tuple_id
        for term in estimate.measured
        if term.row and DISTURBED in (term.row["flags"] or ())
    }


def _marked(cells: Mapping[str, str], title: str, mark: bool) -> dict[str, str]:
    return {**cells, title: f"{cells[title]} {_MARK}"} if mark else {**cells}


def _named(estimate: "ModelEstimate", kind: str) -> list[_Named]:
    in_context = estimate.in_context
    if kind == "operator":
        return [({kind: row["operator"]}, row) for row in of_operators(in_context.rows())]
    if kind == "tuple":
        tuples = of_tuples(in_context.rows())
        return [({kind: text}, row) for text, row in zip(_texts(tuples), tuples, strict=True)]
    rows = in_context.modules() if kind == "module" else in_context.calls()
    several = len({row["phase"] for row in rows}) > 1
    return [(_place(kind, row) | ({"phase": row["phase"]} if several else {}), row) for row in rows]


def _place(kind: str, row: Row) -> dict[str, str]:
    """Where calls happen: a module with its class, or a call with its module."""
    module = row["module_path"] or "(model)"
    if kind == "module":
        return {kind: module, "class": row["module_class"] or ""}
    text = shortened(row["description"])
    return {kind: str(row["number"]), "module": module, "operator": text}


def _texts(tuples: Sequence[Row]) -> list[str]:
    """Short descriptions of tuples; those of which several have the same, with the tuple's id."""
    short = [shortened(row["description"]) for row in tuples]
    counts = Counter(short)
    return [
        text if counts[text] == 1 else f"{text} [{row['tuple_id'][:12]}]"
        for text, row in zip(short, tuples, strict=True)
    ]


def _seconds(row: Row, total: Estimate | None) -> str:
    """What a row takes in place; without an interval, no more precise than all rows together."""
    in_context, relative = IN_CONTEXT.read(row), total and total.relative_half_width
    if in_context and in_context.half_width is None and relative:
        return without_interval(in_context.value, relative * in_context.value, TIME.show)
    return with_interval(in_context, TIME.show)


def _beyond(whole: Estimate, total: Estimate | None) -> Estimate | None:
    """What the whole model takes beyond its sum."""
    return total and statistics.weighted_sum([(1, whole), (-1, total)])
