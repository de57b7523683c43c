"""Where the time of a running model goes: a table whose rows add up to the end-to-end time."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opcost import statistics
from opcost.costs.in_context import IN_CONTEXT, between_calls, of_operators, of_tuples, together
from opcost.costs.in_context_text import against_isolated, beyond_operators, compared_cells
from opcost.costs.terms import Row
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import percent, shortened, with_interval, with_margin, without_interval

if TYPE_CHECKING:
    from opcost.costs.estimate import ModelEstimate

BETWEEN, WHOLE = "(between calls)", "(end to end)"
MEANING = (
    "In context: inside the running model, timed call by call; isolated: the same calls as in the "
    "estimate; difference, relative: in context compared with isolated. Between calls: Python, "
    "modules, views and waiting, which the estimate has as call overhead or wait for the host."
)
_MARK = "~"
MARKED = f"{_MARK}: flagged {DISTURBED}."

_Named = tuple[Mapping[str, str], Row]
"""The cells that name a row, by title, and the row."""


def table_cells(
    estimate: "ModelEstimate", compared: Row, kind: str, most: int
) -> list[dict[str, str]]:
    """A row for each operator, tuple, module or call, of which `most` are shown and the others
    added up; then the time between calls, and the end-to-end time.

    `compared` is the model's row of the comparison. Empty without times in context.
    """
    named = _named(estimate, kind)
    end_to_end, total = (TIME.of(each).read(compared) for each in ("end_to_end", "estimate"))
    between, overhead_s = between_calls(compared), beyond_operators(compared)
    if end_to_end is None or between is None or not named:
        return []
    rows = [row for _, row in named]
    shown, others = named[:most], rows[most:]
    first = next(iter(named[0][0]))
    if others:
        shown = [*shown, ({first: f"({len(others)} more: --top)"}, together(others))]
    amounts = [*(row[IN_CONTEXT.value] for _, row in shown), between.value]
    disturbed = {
        term.record.operator_tuple.tuple_id
        for term in estimate.measured
        if term.row and DISTURBED in (term.row["flags"] or ())
    }
    found = [
        {
            **names,
            "calls": str(row["calls"]),
            "in context": _seconds(row, IN_CONTEXT.read(compared)),
            **_marked(
                against_isolated(row), "isolated", not disturbed.isdisjoint(row["tuple_ids"])
            ),
        }
        for names, row in shown
    ]
    rest = {
        first: BETWEEN,
        "in context": with_margin(between, TIME.show),
        "isolated": "-" if overhead_s is None else TIME.show(overhead_s, 2),
        "difference": "-"
        if overhead_s is None
        else with_margin(between.plus(-overhead_s), TIME.show),
    }
    ratio = statistics.ratio(end_to_end, total) if total else None
    all_of_it = {
        first: WHOLE,
        "calls": str(sum(row["calls"] for row in rows)),
        "in context": with_interval(end_to_end, TIME.show),
        **compared_cells(end_to_end, total, ratio),
    }
    is_disturbed = DISTURBED in (compared["end_to_end_flags"] or ())
    all_of_it = _marked(all_of_it, "in context", is_disturbed)
    shares = [percent(each / math.fsum(amounts), 1) for each in [*amounts, math.fsum(amounts)]]
    counts = [] if kind == "call" else ["calls"]
    compared_titles = ("in context", "share", "isolated", "difference", "relative")
    titles = [*named[0][0], *counts, *compared_titles]
    return [
        {title: (cells | {"share": share}).get(title, "") for title in titles}
        for cells, share in zip([*found, rest, all_of_it], shares, strict=True)
    ]


def is_marked(cells: Sequence[Mapping[str, str]]) -> bool:
    """Whether a row of the table has a mark."""
    return any(text.endswith(_MARK) for row in cells for text in row.values())


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
    module = row["module_path"] or "(model)"
    if kind == "module":
        return {kind: module, "class": row["module_class"] or ""}
    text = shortened(row["description"])
    return {kind: str(row["number"]), "module": module, "operator": text}


def _texts(tuples: Sequence[Row]) -> list[str]:
    """Short descriptions of tuples; with the tuple's id where several have the same."""
    short = [shortened(row["description"]) for row in tuples]
    counts = Counter(short)
    return [
        text if counts[text] == 1 else f"{text} [{row['tuple_id'][:12]}]"
        for text, row in zip(short, tuples, strict=True)
    ]


def _seconds(row: Row, total: Estimate | None) -> str:
    """The time of a row in context; without an interval, no more precise than the total."""
    in_context, relative = IN_CONTEXT.read(row), total and total.relative_half_width
    if in_context and in_context.half_width is None and relative:
        return without_interval(in_context.value, relative * in_context.value, TIME.show)
    return with_interval(in_context, TIME.show)
