"""Caveats: what a reader must know of sums over operators.

The terminal's summary, `explain` and the report show these texts; none of them words its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opcost.costs.terms import Row
from opcost.rows.flags import explained
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import counted, names_by_text, seconds

INTERVAL = "±: half of the 95 % interval"
COVERAGE = (
    "Calls, FLOPs: the share that the measured operators account for; with one operator missing "
    "there is no sum, never a smaller one"
)
WIDE = "a wider interval than requested"
CALL_OVERHEAD = "call overhead"
CALL_OVERHEAD_PARTS = "Python, dispatch, code evicted from the private cache"

_NAMED = 6
_MUCH_SPREAD = 0.1


def caveats(rows: Sequence[Row], most: int = _NAMED) -> list[str]:
    """What must be known of the sums of models on one target, each reason once.

    `rows` are those of the comparison. Of very many models, the `most` that a caveat matters to
    most are named.
    """
    wide = {row["model"]: row["unconverged_tuples"] for row in rows}
    return [
        f"{COVERAGE}.",
        _interval(rows[0]["spread"]),
        *_overhead(rows, most),
        *(text for quantity in COMPARED for text in _missing(rows, quantity, most)),
        *_partial(rows, most),
        *_added_up_anyway(rows, most),
        *([f"Tuples with {WIDE}: {_of_models(wide, most)}."] if any(wide.values()) else []),
        *_flags(rows, most),
    ]


def _interval(spread: float | None) -> str:
    if spread is None:
        return f"{INTERVAL}, without the spread between replicates, which is unknown."
    text = f"{INTERVAL}, with a spread of {spread:.1%} between replicates."
    if spread > _MUCH_SPREAD:
        text += (
            " That is much: the machine's speed changed meanwhile, as it does where other tenants "
            "use its memory. Delete the target's folder in results and run again when it is idle."
        )
    return text


def _overhead(rows: Sequence[Row], most: int) -> list[str]:
    overheads = {row["model"]: row["overhead_time_s"] for row in rows}
    if not any(overheads.values()):
        return []
    text = (
        f"The sum contains {CALL_OVERHEAD} ({CALL_OVERHEAD_PARTS}): "
        f"{_of_models(overheads, most, seconds)}."
    )
    if rows[0]["overhead_disturbed"]:
        text += (
            f" There was interference all the time in which {CALL_OVERHEAD} was measured, so it is "
            "too high: delete the target's device.json and overhead_again.json in results and run "
            "again on an idle machine; its rows are kept."
        )
    return [text]


def _missing(rows: Sequence[Row], quantity: Quantity, most: int) -> list[str]:
    """Why there is no time, and why no energy where that has another reason."""
    reasons = [
        (row[f"{quantity}_reason"], row["model"])
        for row in rows
        if row[f"{quantity}_reason"] is not None
        and (quantity == TIME or row[f"{quantity}_reason"] != row[f"{TIME}_reason"])
    ]
    return [
        f"No {quantity}{_for_models(models, rows, most)}: {reason}."
        for reason, models in names_by_text(reasons).items()
    ]


def _partial(rows: Sequence[Row], most: int) -> list[str]:
    value = TIME.of("estimate").value
    partial = {row["model"]: row["partial_time_s"] for row in rows if row[value] is None}
    if not any(partial.values()):
        return []
    shown = _of_models(partial, most, seconds)
    return [f"The measured operators alone take {shown}, which is no estimate."]


def _added_up_anyway(rows: Sequence[Row], most: int) -> list[str]:
    told = [(row["told_differences"], row["model"]) for row in rows if row["told_differences"]]
    return [
        f"Added up anyway{_for_models(models, rows, most)}: {text}."
        for text, models in names_by_text(told).items()
    ]


def _flags(rows: Sequence[Row], most: int) -> Iterable[str]:
    flagged = [(flag, row["model"]) for row in rows for flag in row["reference_flags"] or ()]
    wholes = names_by_text(flagged)
    for flag, models in sorted(wholes.items()):
        yield f"Whole models flagged {flag}: {_some(models, most)} ({explained(flag)})."
    found = {row["model"]: dict(row["flag_counts"]) for row in rows}
    for flag in sorted({flag for counts in found.values() for flag in counts}):
        counts = {model: counts.get(flag, 0) for model, counts in found.items()}
        yield f"Tuples flagged {flag}: {_of_models(counts, most)} ({explained(flag)})."


def _for_models(models: Sequence[str], rows: Sequence[Row], most: int) -> str:
    if len(rows) == 1:
        return ""
    return f" for {'all models' if len(models) == len(rows) else _some(models, most)}"


def _some(models: Sequence[str], most: int) -> str:
    """The names of models, some of many."""
    others = [counted(len(models) - most, "other")] if len(models) > most else []
    return ", ".join([*models[:most], *others])


def _of_models(amounts: Mapping[str, Any], most: int, show: Callable[[Any], str] = str) -> str:
    """How much of each model, the largest amounts of many."""
    found = {model: amount for model, amount in amounts.items() if amount}
    largest = sorted(found, key=lambda model: found[model], reverse=True)[:most]
    parts = [f"{show(found[model])} of {model}" for model in found if model in largest]
    others = [f"less of {counted(len(found) - most, 'other')}"] if len(found) > most else []
    return ", ".join([*parts, *others])
