"""The text that a run prints when it ends: the costs of its models on its targets."""

from collections.abc import Mapping, Sequence
from typing import Any

from opcost.addresses import Addresses
from opcost.costs import operators_at_points
from opcost.costs.answers import costs_of_models
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.headline import RUNS
from opcost.costs.request_text import request_lines
from opcost.costs.requests import requests_in
from opcost.costs.summary import details, first_screen
from opcost.costs.sweep_text import sweep_lines
from opcost.databases.selection import asked_for
from opcost.planning.target_plan import beyond_budget
from opcost.results_folder import (
    ANSWERS,
    DATABASE,
    IN_CONTEXT,
    MODELS,
    SHARES,
    SWEEPS,
    runs_of_subject,
)
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.runs.request import Request, extracted
from opcost.study import Study
from opcost.text import duration, wrapped
from opcost.tuples.model_tuples import ModelTuples, refusals
from opcost.tuples.traces import calls_on

_CONTINUE = (
    "The same command goes on from here, with the full budget again; without a budget, it "
    "measures the rest."
)


def answer(request: Request, detailed: bool = False) -> tuple[str, bool]:
    """The summary of these models on these targets, with all details if asked for, and whether each
    has an estimate and an end-to-end measurement; an operator without a model has its own cost.
    """
    study, asked = request.study, request.asked
    addresses = Addresses(study)
    comparison = [row for row in costs_of_models(ANSWERS) if _pair(row) in asked]
    shares, in_context, sweeps = (
        [row for row in records.read(path, schema).to_pylist() if _pair(row) in asked]
        for path, schema in (
            (SHARES, schemas.SHARES),
            (IN_CONTEXT, schemas.IN_CONTEXT),
            (SWEEPS, schemas.SWEEPS),
        )
    )
    for row in comparison:
        row[RUNS] = _runs_s(addresses, *_pair(row))
    models = [*extracted(study).values()]
    requests = request_lines(requests_in(study.generations, comparison), shares)
    further = [sweep_lines(sweeps), *_at_points(study, addresses, models), requests]
    text = first_screen(comparison, shares, refusals(models), further)
    if detailed:
        text += f"\n\n{details(comparison, shares, in_context)}"
    compared = (row for row in comparison if row[TIME.error.value] is not None)
    isolated = (row for row in sweeps if row["tuple_id"] and row[TIME.value] is not None)
    known = {_pair(row) for row in (*compared, *isolated)}
    return text, known == asked


def _runs_s(addresses: Addresses, target: str, model: str) -> list[float]:
    """End-to-end seconds of each run of a model."""
    paths = runs_of_subject(addresses.folders[target], MODELS, addresses.definition(model))
    rows = records.read_all(paths, schemas.MODEL, [TIME.value])
    return [row[TIME.value] for row in rows.to_pylist() if row[TIME.value] is not None]


def _at_points(
    study: Study, addresses: Addresses, models: Sequence[ModelTuples]
) -> list[list[str]]:
    """For each sweep of targets, the table of operators at its points."""
    if not study.target_sweeps or not DATABASE.exists():
        return []
    on_targets = {target: calls_on(folder, models) for target, folder in addresses.folders.items()}
    tuple_ids = sorted({each for model in models for each in model.by_id})
    conditions = {target: each.to_json() for target, each in study.conditions.items()}
    database = records.read(DATABASE, schemas.DATABASE, OPERATOR_COLUMNS)
    rows = asked_for(database, conditions, tuple_ids).to_pylist()
    return operators_at_points.tables(study.target_sweeps, on_targets, rows)


def ended_by_budget(study: Study) -> list[str]:
    """Lines about each target whose measurements were ended by the budget, and what is missing;
    empty if everything was measured.
    """
    if study.max_device_time_s is None:
        return []
    addresses = Addresses(study)
    missing_on = {
        target: missing
        for target in study.conditions
        if (missing := beyond_budget(addresses, target))
    }
    budget = duration(study.max_device_time_s)
    notes = [
        f"The budget of measuring time ({budget}: --max-device-time, max_device_time_s) ended the "
        f"measurements on {target}. Not measured: {'; and '.join(missing)}."
        for target, missing in missing_on.items()
    ]
    return wrapped([*notes, _CONTINUE]) if notes else []


def _pair(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["target"], row["model"]
