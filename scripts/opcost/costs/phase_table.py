"""The phases of training steps as a table: what each takes, summed and in the whole step."""

from collections.abc import Iterable, Sequence

from opcost import statistics
from opcost.costs.headline import ESTIMATED
from opcost.costs.terms import Row
from opcost.models.phases import BACKWARD, COMPARED_PHASES, FORWARD
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import difference, percent, significant, table, with_interval

_TIMES = "x forward"
_MEANINGS = {
    _TIMES: f"{_TIMES}: how many times as long as forward, in the whole step",
    ESTIMATED: f"{ESTIMATED.strip()}: in the sum, where the whole step's phases are unknown",
}


def phase_lines(comparison: Iterable[Row], named: bool = True) -> list[str]:
    """The phases of the training steps among rows of the comparison; empty if there is none.

    A row may lack the whole step. With `named`, models are named.
    """
    cells = [cell for row in comparison for cell in _cells(row, named)]
    if not cells:
        return []
    return table(list(cells[0]), [list(cell.values()) for cell in cells], left=1 + named)


def phase_notes(comparison: Sequence[Row]) -> list[str]:
    """What the table of phases says of these rows; empty without a table."""
    times = [_times_forward(row) for row in comparison]
    if not any(times):
        return []
    said = [_MEANINGS[_TIMES]]
    if any(ESTIMATED in each for each in times):
        said.append(_MEANINGS[ESTIMATED])
    return [f"{'; '.join(said)}."]


def _cells(row: Row, named: bool) -> Sequence[dict[str, str]]:
    summed = {phase: _summed(row, phase) for phase in COMPARED_PHASES}
    whole = {phase: _whole(row, phase) for phase in COMPARED_PHASES}
    known = [phase for phase in COMPARED_PHASES if summed[phase] or whole[phase]]
    total_s = sum(each.value for each in summed.values() if each)
    cells = []
    for phase in known:
        estimate, measured = summed[phase], whole[phase]
        cells.append(
            ({"model": row["model"]} if named else {})
            | {
                "phase": phase,
                "sum": with_interval(estimate, TIME.show),
                "share": percent(estimate.value / total_s if estimate else None),
                "whole step": with_interval(measured, TIME.show),
                "difference": difference(
                    statistics.ratio(estimate, measured).plus(-1) if estimate and measured else None
                ),
                _TIMES: _times_forward(row) if phase == BACKWARD else "",
            }
        )
    return cells


def _times_forward(row: Row) -> str:
    """How many times as long as forward backward takes: in the whole step, or else in the sum."""
    for read, mark in ((_whole, ""), (_summed, ESTIMATED)):
        forward, backward = read(row, FORWARD), read(row, BACKWARD)
        if forward is not None and backward is not None:
            return with_interval(statistics.ratio(backward, forward), significant) + mark
    return ""


def _summed(row: Row, phase: str) -> Estimate | None:
    return TIME.of(f"estimate_{phase}").read(row)


def _whole(row: Row, phase: str) -> Estimate | None:
    quantity = TIME.of(f"end_to_end_{phase}")
    return quantity.read(row) if quantity.value in row else None
