"""The text that a run prints when it ends: the costs of its models on its targets."""

from collections.abc import Mapping
from typing import Any

from opcost.addresses import Addresses
from opcost.costs.answers import costs_of_models
from opcost.costs.headline import RUNS
from opcost.costs.requests import request_lines, requests_in
from opcost.costs.summary import details, first_screen
from opcost.costs.sweep_text import operator_lines, sweep_lines
from opcost.costs.sweeps import by_sweep
from opcost.planning.target_plan import beyond_budget
from opcost.results_folder import (
    ANSWERS,
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
from opcost.tuples.model_tuples import refusals

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
    shares, in_context = (
        [row for row in records.read(path, schema).to_pylist() if _pair(row) in asked]
        for path, schema in ((SHARES, schemas.SHARES), (IN_CONTEXT, schemas.IN_CONTEXT))
    )
    # Points of other runs are shown beside those of this one: one of them may be the best.
    every = by_sweep(records.read(SWEEPS, schemas.SWEEPS).to_pylist()).values()
    sweeps = [
        row for points in every if any(_pair(each) in asked for each in points) for row in points
    ]
    for row in comparison:
        row[RUNS] = _runs_s(addresses, *_pair(row))
    models = [*extracted(study).values()]
    requests = request_lines(requests_in(study.generations, comparison), shares)
    at_points = operator_lines(study.target_sweeps, shares)
    further = [sweep_lines(sweeps), at_points, requests]
    text = first_screen(comparison, shares, refusals(models), further)
    if detailed:
        text += f"\n\n{details(comparison, shares, in_context)}"
    compared = (
        row
        for row in comparison
        if row[TIME.error.value] is not None and not row["predicted_tuples"]
    )
    isolated = (row for row in sweeps if row["tuple_id"] and row[TIME.value] is not None)
    known = {_pair(row) for row in (*compared, *isolated)}
    return text, known >= asked


def _runs_s(addresses: Addresses, target: str, model: str) -> list[float]:
    """End-to-end seconds of each run of a model."""
    paths = runs_of_subject(addresses.folders[target], MODELS, addresses.definition(model))
    rows = records.read_all(paths, schemas.MODEL, [TIME.value])
    return [row[TIME.value] for row in rows.to_pylist() if row[TIME.value] is not None]


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
