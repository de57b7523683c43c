"""What launching costs a whole model, and what fusion saves: its launch modes beside the estimate.

The estimate of an eager model is that of the comparison. A graph has no host, and a compiled model
little: their estimate is the sum over the operators, without what the host adds. A compiled model
is faster than that by what fusion saves.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from opcost import statistics
from opcost.costs.estimate import ModelEstimate, measured_value
from opcost.costs.terms import Row
from opcost.rows import comparability
from opcost.rows.quantities import COMPARED, TIME
from opcost.text import difference, percent, with_interval


def launch_rows(
    keys: Row, comparison: Row, estimate: ModelEstimate, rows: Iterable[Row]
) -> list[dict[str, Any]]:
    """The rows of one model on one target: eager as in its comparison, then `rows` of other modes.

    None if there are no other modes.
    """
    found = [_further(estimate, row) for row in rows]
    return [dict(keys) | row for row in ([_eager(comparison), *found] if found else [])]


def _eager(comparison: Row) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "launch_mode": "eager",
        "reason": comparison["time_reason"],
        "flags": comparison["reference_flags"],
    }
    for quantity in COMPARED:
        measured = quantity.of("reference").read(comparison)
        columns |= quantity.columns(measured)
        columns |= quantity.of("estimate").columns(quantity.of("estimate").read(comparison))
        columns |= quantity.error.columns(quantity.error.read(comparison))
    return columns


def _further(estimate: ModelEstimate, row: Row) -> dict[str, Any]:
    mixed = comparability.conflict([*estimate.rows, {**row, "launch_mode": "eager"}])
    failure = None if row["status"] == "ok" else f"{row['status']}: {row['error']}"
    columns: dict[str, Any] = {
        "launch_mode": row["launch_mode"],
        "reason": failure or mixed or estimate.time_reason,
        "flags": row["flags"],
    }
    estimates = (estimate.operators_time, estimate.operators_energy)
    for quantity, expected in zip(COMPARED, estimates, strict=True):
        measured = measured_value(row, quantity, estimate.spread)
        known = None if mixed else expected
        error = measured and known and statistics.ratio(known, measured).plus(-1)
        columns |= quantity.columns(measured) | quantity.of("estimate").columns(known)
        columns |= quantity.error.columns(error)
    return columns


def launch_lines(rows: Sequence[Row]) -> list[str]:
    """The launch modes of all models as text; empty if there are none but eager."""
    if not rows:
        return []
    lines = ["Launch modes (time of an iteration, and the sum over its operators against it):"]
    for target, model in dict.fromkeys((row["target"], row["model"]) for row in rows):
        own = [row for row in rows if (row["target"], row["model"]) == (target, model)]
        eager = TIME.read(own[0])
        lines.append(f"  {model} on {target}:")
        for row in own:
            measured = TIME.read(row)
            if measured is None:
                lines.append(f"    {row['launch_mode']}: {row['reason']}")
                continue
            saved = f", {percent(1 - measured.value / eager.value)} less" if eager else ""
            lines.append(
                f"    {row['launch_mode']}: {with_interval(measured, TIME.show)}"
                f"{saved if row is not own[0] else ''}; sum {difference(TIME.error.read(row))}"
            )
    return lines
