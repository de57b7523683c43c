"""The rounds of a target, from the files of a study: what is known, what is planned."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.executions import Executions
from opcost.files import read_json, write_json
from opcost.planning.plan import Plan
from opcost.planning.rounds import Known, Round, Subject, expect_rounds, plan_round
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    extraction,
    measurement,
    round_plan,
    series_of,
    target_folder,
)
from opcost.rows import records, schemas
from opcost.rows.comparability import meaning
from opcost.rows.executed import executions_of
from opcost.rows.quantities import TIME
from opcost.study import Study
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.recordings import calls_on
from opcost.values import TEXT, check_values, list_of

_COLUMNS = ("status", *TIME.names, "core_speed_per_s", "device_time_s", "conditions_json")
_Rows = Mapping[Subject, Mapping[int, Mapping[str, Any]]]
"""Subject -> round -> its row there."""

_RULES = {OPERATORS: list_of(TEXT), MODELS: list_of(TEXT)}


def plan_target_round(study: Study, target: str, number: int, results: Path, first: Plan) -> Round:
    """The plan of a round of one target, after the rounds before it have been measured.

    `first` is the present plan of round 1. The time that it still needs is left to the next run: a
    sum that lacks an operator is null, so completing it is worth more than a narrow interval.
    Raises OpcostError for a damaged file.
    """
    models = calls_on(target_folder(target, results), list(extracted(study, results)))
    last = max(number, study.rounds)
    measured = _measured(study, target, last, results, models, first.known)
    done = [subject for subject, rows in measured.items() if number in rows]
    before = _known(measured, range(1, number))
    # Of this round, what was planned counts, not what it took: planned again, it is the same.
    spent_s = _spent_s(measured, [*range(1, number), *range(number + 1, last + 1)])
    left_s = _left_s(study, spent_s + first.needed_s + first.beyond_s())
    return plan_round(number, models, before, study.precision, done, left_s)


def expect_target_rounds(
    study: Study,
    target: str,
    results: Path,
    models: Sequence[ModelTuples],
    times_s: Mapping[str, float],
    job_s: float,
    needed_s: float,
) -> list[Round]:
    """What rounds after the first still measure, as far as can be expected now.

    A tuple without a result is expected to take the `times_s` of its id, and its jobs `job_s` of
    device time. `needed_s` is what round 1 still needs, also beyond the budget. Raises OpcostError
    for a damaged file.
    """
    folder = target_folder(target, results)
    further = range(2, study.rounds + 1)
    planned = {
        number: read_round(path)
        for number in further
        if (path := round_plan(folder, number)).exists()
    }
    wholes = [model.model for model in models if not model.is_operator]
    if not all(measurement(folder, MODELS, name).exists() for name in wholes):
        planned = {}  # of other models: rounds are planned again once these have a first one
    number = max(planned, default=1)
    measured = _measured(study, target, number, results, models, list(times_s))
    rounds = range(1, number + 1)
    known, spent_s = _known(measured, rounds), _spent_s(measured, rounds)
    model_s = job_s + study.conditions[target].measurement.model_time_s
    for name, time_s in times_s.items():
        known.setdefault((OPERATORS, name), Known(Executions([time_s], [None]), job_s))
    for model in models:
        sum_s = sum(times_s.get(name, 0.0) * n for name, n in model.call_counts().items())
        if sum_s and not model.is_operator:
            known.setdefault((MODELS, model.model), Known(Executions([sum_s], [None]), model_s))
    begun = [
        Round(new=new, needed_s=sum(known[each].device_time_s for each in new))
        for number, each in planned.items()
        if (new := [name for name in _missing(each, number, folder) if name in known])
    ]
    if planned and not planned[number]:
        return begun
    left_s = _left_s(study, spent_s + needed_s + sum(each.needed_s for each in begun))
    later = range(number + 1, study.rounds + 1)
    return begun + expect_rounds(later, models, known, study.precision, left_s=left_s)


def _missing(planned: Round, number: int, folder: Path) -> list[Subject]:
    """The subjects of a planned round that have not been measured in it."""
    subjects = [
        *((OPERATORS, name) for name in planned.operators),
        *((MODELS, name) for name in planned.models),
    ]
    return [each for each in subjects if not measurement(folder, *each, number).exists()]


def _left_s(study: Study, spent_s: float) -> float:
    budget_s = study.max_device_time_s
    return float("inf") if budget_s is None else budget_s - spent_s


def _measured(
    study: Study,
    target: str,
    number: int,
    results: Path,
    models: Sequence[ModelTuples],
    tuple_ids: Sequence[str],
) -> _Rows:
    """The rows of all subjects up to a round."""
    folder = target_folder(target, results)
    names = {OPERATORS: tuple_ids, MODELS: [model.model for model in models]}
    return {
        (kind, name): _executions(study, target, kind, name, number, folder)
        for kind, subjects in names.items()
        for name in subjects
    }


def _known(measured: _Rows, rounds: Collection[int]) -> dict[Subject, Known]:
    """What rows of these rounds tell of each subject that has a result."""
    found = {
        subject: _known_of([row for number, row in rows.items() if number in rounds])
        for subject, rows in measured.items()
    }
    return {subject: known for subject, known in found.items() if known is not None}


def _spent_s(measured: _Rows, rounds: Collection[int]) -> float:
    """The device time of rows of these rounds."""
    return sum(
        row["device_time_s"] or 0.0
        for rows in measured.values()
        for number, row in rows.items()
        if number in rounds
    )


def extracted(study: Study, results: Path) -> list[ModelTuples]:
    """The models of the study that could be extracted."""
    paths = (extraction(name, results) for name in study.models)
    return [model for model in read_extractions(paths) if model.refusal is None]


def _executions(
    study: Study, target: str, kind: str, name: str, number: int, folder: Path
) -> dict[int, dict]:
    """Round -> the row of a subject measured under the study's conditions, up to a round."""
    wanted = meaning(study.conditions[target].to_json())
    found = {}
    schema = schemas.MEASUREMENTS[kind]
    columns = [*_COLUMNS, *(["definition_json"] if kind == MODELS else [])]
    for each in range(1, number + 1):
        path = measurement(folder, kind, name, each)
        if not path.exists():
            continue
        for row in records.read(path, schema, columns).to_pylist():
            current = kind == OPERATORS or row["definition_json"] == study.models[name].to_json()
            if current and meaning(row["conditions_json"]) == wanted:
                found[series_of(path).round] = row
    return found


def _known_of(rows: Sequence[Mapping]) -> Known | None:
    found = [row for row in rows if row["status"] == "ok"]
    executions = executions_of(found, TIME)
    if executions is None:
        return None
    times_s = [row["device_time_s"] for row in found if row["device_time_s"]]
    return Known(executions, max(sum(times_s) / len(times_s) if times_s else 1.0, 0.01))


def write_round(path: Path, planned: Round) -> None:
    """Write what is measured in a round."""
    document = {
        OPERATORS: list(planned.operators),
        MODELS: list(planned.models),
        "needed_s": planned.needed_s,
        "half_widths": dict(planned.half_widths),
        "is_cut": planned.is_cut,
    }
    write_json(path, document)


def read_round(path: Path) -> Round:
    """What is measured in a round. Raises OpcostError for a damaged file."""
    remedy = f"delete {path}, and run again to plan the round again; what was measured is kept"
    document = read_json(path, remedy)
    check_values({key: document.get(key) for key in _RULES}, _RULES, path, remedy)
    return Round(document[OPERATORS], document[MODELS], is_cut=bool(document.get("is_cut")))
