"""Compare estimates from operators with end-to-end measurements, for each model and target."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from opcost import statistics
from opcost.costs.completion import Target, completed
from opcost.costs.estimate import ModelEstimate
from opcost.costs.estimate_columns import PARTS, estimate_columns
from opcost.costs.launches import launch_rows
from opcost.costs.shares import operator_shares
from opcost.costs.terms import Row, terms_of
from opcost.launch_modes import EAGER
from opcost.rows import comparability
from opcost.rows.flags import RUNS_DISAGREE
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.rows.runs import Noise
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

CONDITIONS = ("cache_state", "operation", "device_name", "torch_version", "protocol_version")
"""Columns of the reference that the comparison has, too."""


class Tables(NamedTuple):
    """Rows of the comparison, of each model's cost by operator, of its cost by module, of its
    operators in place, and of its launch modes.
    """

    comparison: list[dict[str, Any]]
    shares: list[dict[str, Any]]
    modules: list[dict[str, Any]]
    in_context: list[dict[str, Any]]
    launches: list[dict[str, Any]]


def compare_study(
    models: Mapping[str, Sequence[ModelTuples]],
    operator_rows: Sequence[Row],
    model_rows: Sequence[Row],
    manifest: Mapping[str, Mapping[str, Any]],
    noises: Mapping[str, Noise],
    precision: float | None = None,
    predict_from: Callable[[], Mapping[str, Sequence[Row]]] = dict,
) -> Tables:
    """Compare every measured model on every target. A model has one row for each replicate.

    `models` and `noises` are those of each target, models with the calls that they make there.
    Operator rows need at least the columns `estimate.OPERATOR_COLUMNS`. `precision` is the relative
    half-width that the study requests of its models. `predict_from` gives all rows of each target
    with a result, with `predictor.COLUMNS`: what is missing is predicted if that makes a sum.
    """
    targets = cache(lambda name: Target.among(predict_from(), name, noises[name].ratios))
    filtered = {tuple_id for tuple_id, entry in manifest.items() if entry["excluded"] == "filtered"}
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in operator_rows:
        rows[row["target"]][row["tuple_id"]] = row
    named = {(model.model, target): model for target in models for model in models[target]}
    tables = Tables([], [], [], [], [])
    references: dict[tuple[str, str], list[Row]] = defaultdict(list)
    launched: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in model_rows:
        eager = row["launch_mode"] in (EAGER, None)
        (references if eager else launched)[row["model"], row["target"]].append(row)
    for (name, target), measurements in references.items():
        model = named[name, target]
        terms = terms_of(model, rows[target], filtered)
        keys: dict[str, Any] = {"model": model.model, "target": target}
        estimate = ModelEstimate(model, terms, measurements, noises[target])
        if any(term.row is None for term in terms) and not any(term.filtered for term in terms):
            found = completed(terms, targets(target))
            estimate = replace(estimate, terms=found.terms, prediction_ranges=found.ranges)
        comparison = keys | compare(estimate) | {"requested_half_width": precision}
        tables.comparison.append(comparison)
        tables.launches.extend(launch_rows(keys, comparison, estimate, launched[name, target]))
        tables.shares.extend(keys | row for row in operator_shares(model, estimate.addable))
        tables.modules.extend(keys | row for row in estimate.modules())
        tables.in_context.extend(keys | row for row in estimate.in_context.rows())
    return tables


def compare(estimate: ModelEstimate) -> dict[str, Any]:
    """The comparison row of one model on one target; without its columns of the end-to-end
    measurement if there is none.
    """
    columns, references = estimate_columns(estimate), estimate.end_to_end
    time_reason, energy_reason = estimate.time_reason, estimate.energy_reason
    measured, timed = estimate.end_to_end_rows, estimate.timed_rows
    rows = [*estimate.rows, *references]
    mixed = comparability.conflict(rows)
    columns["provenance_differences"] = comparability.provenance_differences(rows)
    if mixed is not None:
        columns |= TIME.of("estimate").columns(None) | ENERGY.of("estimate").columns(None)
        columns |= dict.fromkeys(PARTS)
        time_reason = energy_reason = mixed
    if comparability.conflict(references) is not None:
        measured = timed = []
    end_to_end_time = estimate.end_to_end_time if measured else None
    end_to_end_energy = estimate.end_to_end_energy if measured else None
    if references and end_to_end_time is None and mixed is None:
        reference = references[0]
        failure = f"it was not measured end to end: {reference['status']}: {reference['error']}"
        time_reason = f"{time_reason}; {failure}" if time_reason else failure
        energy_reason = time_reason
    known = mixed is None
    return {
        **columns,
        **TIME.of("end_to_end").columns(end_to_end_time),
        "end_to_end_measurements": len(timed) if references else None,
        "end_to_end_disagreeing_s": estimate.disagreeing_s if timed else [],
        "end_to_end_disturbed_s": [row["time_s"] for row in estimate.disturbed_rows if timed],
        "end_to_end_flags": _flags(timed, bool(estimate.disagreeing_s)),
        **_relative_error(TIME, estimate.time if known else None, end_to_end_time),
        "time_reason": time_reason,
        **_in_context(estimate, mixed),
        **ENERGY.of("end_to_end").columns(end_to_end_energy),
        **_relative_error(ENERGY, estimate.energy if known else None, end_to_end_energy),
        "energy_reason": energy_reason or (None if end_to_end_energy else _no_energy(measured)),
        **{name: next((row[name] for row in rows[::-1]), None) for name in CONDITIONS},
    }


def _flags(runs: Sequence[Row], disagree: bool) -> list[str]:
    """The flags of the end-to-end measurement: those of its runs, and whether these disagree."""
    found = {flag for row in runs for flag in row["flags"] or ()}
    return sorted({*found, RUNS_DISAGREE} if disagree and runs else found)


def _in_context(estimate: ModelEstimate, mixed: str | None) -> dict[str, Any]:
    columns = estimate.in_context.columns()
    return columns if mixed is None else dict.fromkeys(columns) | {"in_context_reason": mixed}


def _no_energy(rows: Sequence[Row]) -> str | None:
    return next((row["energy_reason"] for row in rows if row["energy_reason"]), None)


def _relative_error(
    quantity: Quantity, estimate: Estimate | None, reference: Estimate | None
) -> dict[str, Any]:
    error = None
    if estimate is not None and reference is not None:
        error = statistics.ratio(estimate, reference).plus(-1)
    return quantity.error.columns(error)
