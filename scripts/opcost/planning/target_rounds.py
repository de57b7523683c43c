"""The rounds of a target, from the files of a study: what is known, what is planned."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from opcost.executions import Executions, batch_error
from opcost.files import read_json, write_json
from opcost.planning.rounds import Known, Round, Subject, plan_round
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    extraction,
    measurement,
    series_of,
    target_folder,
)
from opcost.rows import records, schemas
from opcost.rows.comparability import meaning
from opcost.rows.quantities import TIME
from opcost.study import Study
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.recordings import calls_on
from opcost.values import TEXT, check_values, list_of

_COLUMNS = ("status", *TIME.names, "device_time_s", "conditions_json")
_RULES = {OPERATORS: list_of(TEXT), MODELS: list_of(TEXT)}


def plan_target_round(
    study: Study, target: str, number: int, results: Path, tuple_ids: Sequence[str]
) -> Round:
    """The plan of a round of one target, after the rounds before it have been measured.

    `tuple_ids` are those of round 1. Raises OpcostError for a damaged file.
    """
    folder = target_folder(target, results)
    models = calls_on(folder, list(extracted(study, results)))
    names = {OPERATORS: tuple_ids, MODELS: [model.model for model in models]}
    known: dict[Subject, Known] = {}
    done, spent_s = [], 0.0
    for kind, subjects in names.items():
        for name in subjects:
            rows = _executions(study, target, kind, name, number, folder)
            spent_s += sum(row["device_time_s"] or 0.0 for row in rows.values())
            if number in rows:
                done.append((kind, name))
            if found := _known(list(rows.values())):
                known[kind, name] = found
    budget_s = study.max_device_time_s
    left_s = float("inf") if budget_s is None else budget_s - spent_s
    return plan_round(number, models, known, study.precision, done, left_s)


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


def _known(rows: Sequence[Mapping]) -> Known | None:
    found = [row for row in rows if row["status"] == "ok"]
    if not found:
        return None
    estimates = [estimate for row in found if (estimate := TIME.read(row)) is not None]
    executions = Executions([each.value for each in estimates], list(map(batch_error, estimates)))
    times_s = [row["device_time_s"] for row in found if row["device_time_s"]]
    return Known(executions, max(sum(times_s) / len(times_s) if times_s else 1.0, 0.01))


def write_round(path: Path, planned: Round) -> None:
    """Write what is measured in a round."""
    document = {
        OPERATORS: list(planned.operators),
        MODELS: list(planned.models),
        "needed_s": planned.needed_s,
        "half_widths": dict(planned.half_widths),
    }
    write_json(path, document)


def read_round(path: Path) -> Round:
    """What is measured in a round. Raises OpcostError for a damaged file."""
    remedy = f"delete {path}, and run again to plan the round again; what was measured is kept"
    document = read_json(path, remedy)
    check_values({key: document.get(key) for key in _RULES}, _RULES, path, remedy)
    return Round(document[OPERATORS], document[MODELS])
