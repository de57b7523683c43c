"""The comparison as people read it: a page of text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY, TIME
from opcost.text import counted, difference, percent, seconds, table
from opcost.tuples.model_table import not_extracted
from opcost.tuples.operator_tuple import short_name

Row = Mapping[str, Any]

_COSTLIEST = 5
_NAMED = 6
_MUCH_SPREAD = 0.1


def summarise(
    comparison: Sequence[Row], shares: Sequence[Row], refused: Mapping[str, str] | None = None
) -> str:
    """The comparison of every target as text, and which models were refused for which reason."""
    targets = dict.fromkeys(row["target"] for row in comparison)
    parts = [
        _target_summary(
            [row for row in comparison if row["target"] == target],
            [row for row in shares if row["target"] == target],
        )
        for target in targets
    ]
    return "\n\n".join([*parts, *(["\n".join(not_extracted(refused))] if refused else [])])


def disturbed_overhead(columns: Row) -> str:
    """A sentence, after others, if the overhead of calls was measured under disturbances."""
    if not columns["overhead_disturbed"]:
        return ""
    return (
        " Something else slowed the core all the time in which the overhead of calls was measured, "
        "so it is too high: delete the target's device.json and overhead_again.json in results and "
        "run again on a quiet machine; its rows are kept."
    )


def _target_summary(comparison: Sequence[Row], shares: Sequence[Row]) -> str:
    first = comparison[0]
    lines = [
        f"Target {first['target']}: {first['device_name']}, torch {first['torch_version']}, "
        f"cache state {first['cache_state']}",
        "",
        *table(
            ["model", "sum of operators", "whole model", "difference", "calls", "FLOPs", "tuples"],
            [_comparison_cells(row) for row in comparison],
        ),
    ]
    if any(row["reference_energy_j"] is not None for row in comparison):
        header = ["model", "energy of operators", "whole model", "difference"]
        lines += ["", *table(header, [_energy_cells(row) for row in comparison])]
    lines += ["", *_notes(comparison)]
    lines += ["", "Where the time goes (share of the whole model's time):"]
    for row in comparison:
        lines.append(f"  {row['model']}: {_costliest(row['model'], shares)}")
    return "\n".join(lines)


def _comparison_cells(row: Row) -> list[str]:
    return [
        row["model"],
        TIME.of("estimate").shown(row),
        TIME.of("reference").shown(row),
        difference(TIME.error.read(row)),
        percent(row["coverage_calls"]),
        percent(row["coverage_flops"]),
        f"{row['measured_tuples']}/{row['tuples']}",
    ]


def _energy_cells(row: Row) -> list[str]:
    return [
        row["model"],
        ENERGY.of("estimate").shown(row),
        ENERGY.of("reference").shown(row),
        difference(ENERGY.error.read(row)),
    ]


def _notes(comparison: Sequence[Row]) -> list[str]:
    """What must be known to read the table, each reason once."""
    notes = [
        "calls, FLOPs: the share that the measured operators account for.",
        "±: half of the 95 % interval.",
    ]
    overheads = {row["model"]: row["overhead_time_s"] for row in comparison}
    if any(overheads.values()):
        notes.append(
            "The sum contains the overhead of calls (Python, dispatch, code that the core's cache "
            f"has lost): {_of_models(overheads, seconds)}.{disturbed_overhead(comparison[0])}"
        )
    spread = comparison[0]["spread"]
    if spread is not None:
        notes[1] += (
            " It contains how well measurements reproduce: operators measured again at the end "
            f"differed by {spread:.1%} (standard deviation of one measurement)."
        )
        if spread > _MUCH_SPREAD:
            notes[1] += (
                " That is much: the machine's speed changed meanwhile, as it does where others use "
                "its memory. Delete the target's folder in results and run again when it is quiet."
            )
    for quantity in ("time", "energy"):
        reasons: dict[str, list[str]] = {}
        for row in comparison:
            if row[f"{quantity}_reason"] is not None:
                reasons.setdefault(row[f"{quantity}_reason"], []).append(row["model"])
        for reason, models in reasons.items():
            names = "all models" if len(models) == len(comparison) else _some(models)
            notes.append(f"No {quantity} for {names}: {reason}.")
    told: dict[str, list[str]] = {}
    for row in comparison:
        if row["told_differences"]:
            told.setdefault(row["told_differences"], []).append(row["model"])
    notes += [
        f"Added up all the same, for {_some(models)}: {text}." for text, models in told.items()
    ]
    unconverged = {row["model"]: row["unconverged_tuples"] for row in comparison}
    if any(unconverged.values()):
        notes.append(f"Tuples with a wider interval than asked for: {_of_models(unconverged)}.")
    for flag in sorted({flag for row in comparison for flag in row["reference_flags"] or ()}):
        models = [row["model"] for row in comparison if flag in (row["reference_flags"] or ())]
        notes.append(f"Whole models flagged {flag}: {_some(models)} ({explained(flag)}).")
    for flag in sorted({flag for row in comparison for flag in row["flag_counts"]}):
        counts = {row["model"]: row["flag_counts"].get(flag, 0) for row in comparison}
        notes.append(f"Tuples flagged {flag}: {_of_models(counts)} ({explained(flag)}).")
    return notes


def _some(models: Sequence[str]) -> str:
    """The names of models, some of many."""
    others = [counted(len(models) - _NAMED, "other")] if len(models) > _NAMED else []
    return ", ".join([*models[:_NAMED], *others])


def _of_models(amounts: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """How much of each model, the largest amounts of many."""
    found = {model: amount for model, amount in amounts.items() if amount}
    largest = sorted(found, key=lambda model: found[model], reverse=True)[:_NAMED]
    parts = [f"{show(found[model])} of {model}" for model in found if model in largest]
    others = [f"less of {counted(len(found) - _NAMED, 'other')}"] if len(found) > _NAMED else []
    return ", ".join([*parts, *others])


def _costliest(model: str, shares: Sequence[Row]) -> str:
    rows = [row for row in shares if row["model"] == model and row["launches_kernel"]]
    known = [row for row in rows if row["share_of_reference_time"] is not None]
    parts = [
        f"{short_name(row['operator'])} {row['share_of_reference_time']:.0%} "
        f"({counted(row['calls'], 'call')})"
        for row in known[:_COSTLIEST]
    ]
    return ", ".join(parts) or "not measured"
