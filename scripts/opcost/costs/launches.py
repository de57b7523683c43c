"""The cost of launching a model and the gain of fusion: its launch modes beside the estimate.

The estimate of an eager model is in the comparison. A graph has no host, and a compiled model
little: their estimate is the sum over the operators, without call overhead or waits. A compiled
model is faster than that by the gain of fusion. Both intervals hold the model error.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from opcost import statistics
from opcost.costs.estimate import ModelEstimate
from opcost.costs.terms import Row
from opcost.launch_modes import EAGER
from opcost.rows import comparability
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.rows.runs import combined_value
from opcost.text import difference, percent, shortened, table_of

_LINE = 100


def launch_rows(
    keys: Row, comparison: Row, estimate: ModelEstimate, rows: Iterable[Row]
) -> list[dict[str, Any]]:
    """The rows of one model on one target: eager, as in its comparison, then `rows` of other modes;
    empty without other modes.
    """
    found = [_further(estimate, row) for row in rows]
    return [dict(keys) | row for row in ([_eager(comparison), *found] if found else [])]


def _eager(comparison: Row) -> dict[str, Any]:
    columns = {
        "launch_mode": EAGER,
        "reason": comparison["time_reason"],
        "flags": comparison["end_to_end_flags"],
    }
    for quantity in COMPARED:
        for each in (quantity.of("estimate"), quantity.error):
            columns |= each.columns(each.read(comparison))
        columns |= quantity.columns(quantity.of("end_to_end").read(comparison))
    return columns


def _further(estimate: ModelEstimate, row: Row) -> dict[str, Any]:
    mixed = comparability.conflict([*estimate.rows, {**row, "launch_mode": EAGER}])
    failure = None if row["status"] == "ok" else f"{row['status']}: {row['error']}"
    columns = {
        "launch_mode": row["launch_mode"],
        "reason": failure or mixed or estimate.time_reason,
        "flags": row["flags"],
    }
    operators = (estimate.operators_time, estimate.operators_energy)
    for quantity, expected in zip(COMPARED, operators, strict=True):
        measured = combined_value([row], quantity, estimate.noise.variations[quantity])
        known = None if mixed else estimate.with_model_error(expected, quantity)
        error = measured and known and statistics.ratio(known, measured).plus(-1)
        columns |= quantity.columns(measured) | quantity.of("estimate").columns(known)
        columns |= quantity.error.columns(error)
    return columns


def launch_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each launch mode, for a table."""
    eager = {
        (row["target"], row["model"]): row[TIME.value]
        for row in rows
        if row["launch_mode"] == EAGER
    }
    cells = []
    for row in rows:
        time_s, eager_s = row[TIME.value], eager[row["target"], row["model"]]
        further = time_s and eager_s and row["launch_mode"] != EAGER
        cells.append(
            {
                "model": row["model"],
                "target": row["target"],
                "mode": row["launch_mode"],
                "time": TIME.shown(row),
                "of eager": percent(time_s / eager_s) if further else "-",
                "estimate - end-to-end": difference(TIME.error.read(row)),
                "energy": ENERGY.shown(row),
                "of energy": difference(ENERGY.error.read(row)),
                "reason": shortened((row["reason"] or "").partition("\n")[0], _LINE),
            }
        )
    return cells


def launch_lines(rows: Sequence[Row]) -> list[str]:
    """The launch modes of all models as text; empty without modes other than eager."""
    if not rows:
        return []
    cells = launch_cells(rows)
    return [
        "Launch modes (except for eager, the estimate lacks call overhead and waits):",
        "",
        *table_of(cells),
    ]
