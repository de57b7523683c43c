"""The phases of training steps as a table: what each takes, summed and in the whole step."""

from collections.abc import Iterable, Sequence

from opcost import statistics
from opcost.costs.terms import Row
from opcost.models.phases import BACKWARD, COMPARED_PHASES, FORWARD
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import difference, percent, table, with_interval


def phase_lines(comparison: Iterable[Row], named: bool = True) -> list[str]:
    """The phases of the training steps among rows of the comparison; empty if there is none.

    A row may lack the whole step. With `named`, models are named.
    """
    cells = [cell for row in comparison for cell in _cells(row, named)]
    if not cells:
        return []
    return table(list(cells[0]), [list(cell.values()) for cell in cells], left=1 + named)


def _cells(row: Row, named: bool) -> Sequence[dict[str, str]]:
    summed = {phase: TIME.of(f"estimate_{phase}").read(row) for phase in COMPARED_PHASES}
    whole = {phase: _whole(row, phase) for phase in COMPARED_PHASES}
    known = [phase for phase in COMPARED_PHASES if summed[phase] or whole[phase]]
    total_s = sum(each.value for each in summed.values() if each)
    forward = summed[FORWARD]
    cells = []
    for phase in known:
        estimate, measured = summed[phase], whole[phase]
        of_forward = estimate and forward and estimate.value / forward.value
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
                "x forward": f"{of_forward:.2f}" if of_forward and phase == BACKWARD else "",
            }
        )
    return cells


def _whole(row: Row, phase: str) -> Estimate | None:
    quantity = TIME.of(f"reference_{phase}")
    return quantity.read(row) if quantity.value in row else None
