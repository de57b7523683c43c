"""Caveats about sums over operators, shared by the summary, `explain` and the report."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from opcost.costs.in_context_text import far_off
from opcost.costs.terms import Row
from opcost.groups import grouped
from opcost.rows.flags import DISTURBED, explained
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.text import (
    counted,
    percent,
    plus_minus,
    seconds,
    some,
)

INTERVAL = "±: half of the 95 % interval"
CALL_OVERHEAD = "call overhead"
CALL_OVERHEAD_PARTS = "Python, dispatch, cold code"

_MEASUREMENT_ALONE = (
    "The interval of an estimate lacks the model error: its database names no other model that was "
    "measured end to end (those of schema version 1 name none)."
)
_NAMED = 6
_MUCH_VARIATION = 0.1
_MUCH_AGAIN = 0.1
_MUCH = (
    "That is much: something slowed the machine for a part of the study, as other tenants do when "
    "they use its memory. Move its folder in results away, and run again when it is idle."
)
_AGAIN = " (opcost retry --flag disturbed measures them again)"
_NEARLY = 1.02


def caveats(
    rows: Sequence[Row],
    most: int = _NAMED,
    quantities: Sequence[Quantity] = COMPARED,
    in_context: Iterable[Row] = (),
) -> list[str]:
    """Caveats about the sums of models on one target, each reason once.

    `rows` are those of the comparison. A caveat names at most `most` models, the most affected.
    Missing `quantities` are given with their reasons. `in_context` are the models' operators in
    context, as far as known.
    """
    return [
        *far_off(rows, in_context),
        *_interval(rows),
        *_gain(rows),
        *_read_again(rows, most),
        *(f"{line}." for line in precision_missed(rows)),
        *_overhead(rows),
        *(text for quantity in quantities for text in _missing(rows, quantity, most)),
        *_partial(rows, most),
        *_differing_calls(rows, most),
        *_mixed_provenance(rows, most),
        *_left_out(rows, most),
        *_flags(rows, most),
    ]


def _interval(rows: Sequence[Row]) -> list[str]:
    """Run-to-run variation, and whether the intervals of sums hold the model error."""
    variation = next((sd for row in rows if (sd := row[TIME.run_sd]) is not None), None)
    texts = [f"{INTERVAL}.", *variation_text(variation)]
    known = [
        row["model_error_models"] for row in rows if row[TIME.of("estimate").value] is not None
    ]
    if None in known:
        texts.append(_MEASUREMENT_ALONE)
    return texts


def _gain(rows: Sequence[Row]) -> list[str]:
    """How far all joules of a target may be off together."""
    shares = [
        share
        for row in rows
        if row[ENERGY.of("estimate").value] is not None
        and (share := row["energy_gain_uncertainty"])
    ]
    if not shares:
        return []
    return [
        f"All joules and watts may be too high, or too low, by the same {max(shares):.0%}, the "
        "error of the sensor's gain: no interval holds it. Shares, and differences on this target, "
        "do not depend on it; those from other devices do."
    ]


def _read_again(rows: Sequence[Row], most: int) -> list[str]:
    """Weights that several calls use, as those that layers share, and steps of a loop."""
    shares = {
        row["model"]: share
        for row in rows
        if (share := row.get("weights_read_again") or 0.0) > _MUCH_AGAIN
        and row.get("cache_state") != "warm"
    }
    if not shares:
        return []
    return [
        "Several calls use the same weights, and later ones may find them in a cache; operators "
        "were measured with weights from memory, so these estimates may be too high. Read again, "
        f"of all bytes of weights: {_of_models(shares, most, percent)}."
    ]


def variation_is_much(rows: Sequence[Row]) -> list[str]:
    """A line for each target whose runs vary so much that its costs are of little use."""
    return [
        f"Runs on {target} vary by {sd:.0%}: the machine was busy; run again when it is idle"
        for target, sd in {row["target"]: row[TIME.run_sd] for row in rows}.items()
        if sd is not None and sd > _MUCH_VARIATION
    ]


def variation_text(sd: float | None) -> list[str]:
    """By how much runs of one operator vary, a relative standard deviation; nothing if unknown."""
    if sd is None:
        return []
    text = f"Runs of an operator are taken to vary by {sd:.1%} (standard deviation)."
    return [f"{text} {_MUCH}" if sd > _MUCH_VARIATION else text]


def precision_missed(rows: Sequence[Row]) -> list[str]:
    """The models that are not as precise as the study requests."""
    requested = rows[0].get("requested_half_width")
    if requested is None:
        return []
    wide: dict[str, float] = {}
    for row in rows:
        whole = TIME.of("end_to_end").read(row)
        half = max(row[TIME.measurement_half] or 0.0, (whole and whole.relative_half_width) or 0.0)
        if half > _NEARLY * requested:
            wide[row["model"]] = half
    if not wide:
        return []
    found = f"{plus_minus(max(wide.values()))} reached by {counted(len(wide), 'model')}"
    return [
        f"Precision: {plus_minus(requested)} requested, {found}; more rounds or a quieter machine "
        "narrow it"
    ]


def _overhead(rows: Sequence[Row]) -> list[str]:
    parts = []
    if any(row["overhead_time_s"] for row in rows):
        parts.append(f"{CALL_OVERHEAD.capitalize()}: {CALL_OVERHEAD_PARTS}.")
    if any(row["overhead_disturbed"] for row in rows):
        parts.append(
            f"There was interference throughout the measurement of {CALL_OVERHEAD}, so it is too "
            "high: delete the target's device.json and overhead_*.json in results and run "
            "again on an idle machine; its rows are kept."
        )
    return [" ".join(parts)] if parts else []


def _missing(rows: Sequence[Row], quantity: Quantity, most: int) -> list[str]:
    """Why the quantity is null; for energy, only a reason that differs from that of time."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reason = row[f"{quantity}_reason"]
        if reason is None or (quantity != TIME and reason == row[f"{TIME}_reason"]):
            continue
        has_whole = row.get(quantity.of("end_to_end").value) is not None
        what = f"sum of {quantity}" if has_whole else str(quantity)
        found.setdefault((what, reason), []).append(row["model"])
    return [
        f"No {what}{_for_models(models, rows, most, every='any model')}: {reason}."
        for (what, reason), models in found.items()
    ]


def _partial(rows: Sequence[Row], most: int) -> list[str]:
    value = TIME.of("estimate").value
    partial = {_with_coverage(row): row["partial_time_s"] for row in rows if row[value] is None}
    if not any(partial.values()):
        return []
    shown = _of_models(partial, most, seconds)
    text = "a lower limit: with one operator missing, there is no sum"
    return [f"The measured operators alone take {shown}, {text}."]


def _with_coverage(row: Row) -> str:
    of_flops, reference = row["coverage_flops"], TIME.of("end_to_end")
    notes = [f"{percent(of_flops)} of its FLOPs"] if of_flops else []
    whole = reference.read(row) if row.get(reference.value) else None
    if whole and (row["partial_time_s"] or 0.0) > (whole.high or whole.value):
        more = f"more than the measured model, {TIME.show(whole.value, 3)}"
        notes.append(f"{more}: the operators or the model were disturbed")
    return row["model"] + (f" ({'; '.join(notes)})" if notes else "")


def _differing_calls(rows: Sequence[Row], most: int) -> list[str]:
    found = [(some(row["differing_calls"] or (), most), row["model"]) for row in rows]
    return [
        f"Kernels that were launched and not expected (+), or the reverse (-)"
        f"{_for_models(models, rows, most)}: {calls}."
        for calls, models in grouped(pair for pair in found if pair[0]).items()
    ]


def _mixed_provenance(rows: Sequence[Row], most: int) -> list[str]:
    differences = [
        (row["provenance_differences"], row["model"])
        for row in rows
        if row["provenance_differences"]
    ]
    return [
        f"Added up anyway{_for_models(models, rows, most)}: {text}."
        for text, models in grouped(differences).items()
    ]


def _left_out(rows: Sequence[Row], most: int) -> Iterator[str]:
    """The runs of whole models that are left out, or disagree, and those of tuples left out."""
    for runs, what, counts in (
        (
            DISTURBED,
            "Left out, as these runs were disturbed and others not",
            "disturbed_runs",
        ),
        ("disagreeing", "Runs that disagree, so that the interval holds all of them", None),
    ):
        wholes = [
            f"whole model of {row['model']} ({_times(times_s)}; it counts as "
            f"{TIME.show(row[TIME.of('end_to_end').value], 3)})"
            for row in rows
            if (times_s := row.get(f"end_to_end_{runs}_s"))
        ]
        parts = [some(wholes, most)] if wholes else []
        of_tuples = {row["model"]: row[counts] for row in rows} if counts else {}
        if any(of_tuples.values()):
            parts.append(f"runs of operator tuples: {_of_models(of_tuples, most)}")
        if parts:
            yield f"{what}: {'; '.join(parts)}{_AGAIN if counts else ''}."


def _times(times_s: Sequence[float]) -> str:
    return ", ".join(TIME.show(each_s, 3) for each_s in times_s)


def _flags(rows: Sequence[Row], most: int) -> Iterable[str]:
    """A line for each flag: the whole models and the tuples that have it."""
    wholes = grouped((flag, row["model"]) for row in rows for flag in row["end_to_end_flags"] or ())
    counts = {row["model"]: dict(row["flag_counts"]) for row in rows}
    for flag in sorted({*wholes, *(flag for found in counts.values() for flag in found)}):
        parts = [f"whole model of {some(wholes[flag], most)}"] if flag in wholes else []
        tuples = {model: found.get(flag, 0) for model, found in counts.items()}
        if any(tuples.values()):
            parts.append(f"tuples: {_of_models(tuples, most)}")
        yield f"Flagged {flag}: {'; '.join(parts)} ({explained(flag)})."


def _for_models(
    models: Sequence[str], rows: Sequence[Row], most: int, every: str = "all models"
) -> str:
    if len(rows) == 1:
        return ""
    return f" for {every if len(models) == len(rows) else some(models, most)}"


def _of_models(amounts: Mapping[str, Any], most: int, show: Callable[[Any], str] = str) -> str:
    """The amount of each model, at most the `most` largest."""
    found = {model: amount for model, amount in amounts.items() if amount}
    largest = sorted(found, key=lambda model: found[model], reverse=True)[:most]
    parts = [f"{show(found[model])} of {model}" for model in found if model in largest]
    others = [f"less of {counted(len(found) - most, 'other')}"] if len(found) > most else []
    return ", ".join([*parts, *others])
