"""The plan of a target, from the files of a study, and as people read it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from opcost.devices.device import Device
from opcost.errors import OpcostError
from opcost.planning.plan import Plan, memory_bytes, plan
from opcost.rows import records, schemas
from opcost.study import Study, Target
from opcost.text import duration
from opcost.tuples.manifest import collect
from opcost.tuples.model_tuples import ModelTuples, read_model_tuples
from opcost.tuples.tuple_record import TupleRecord

_MIB = 2**20
_SPENT = ("device_time_s",)


def plan_target(study: Study, target: str, results: Path) -> Plan:
    """The plan of one target, by what lies in the folder of results.

    Raises OpcostError for a damaged file.
    """
    models = _extracted(study, results)
    return _plan(study, target, results, models, _to_benchmark(study, models))


def describe_plans(study: Study, results: Path, open_device: Callable[[Target], Device]) -> str:
    """What is to be measured on each target, in how much time and memory.

    `open_device` raises OpcostError where a target's device is not here.
    """
    models = _extracted(study, results)
    tuples = _to_benchmark(study, models)
    parts = []
    for target, conditions in study.conditions.items():
        planned = _plan(study, target, results, models, tuples)
        new_models = _models_to_measure(study, target, results, models)
        lines = [
            f"Target {target}",
            f"  operators: {len(tuples)} tuples, {len(planned.known)} measured, "
            f"{len(planned.chosen)} to measure{_beyond(planned)}",
            f"  models: {len(models)}, {len(models) - new_models} measured, "
            f"{new_models} to measure",
            _device_time(planned),
            *_budget(study.max_device_time_s, planned),
            *_memory(tuples, planned, conditions.target, open_device),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _extracted(study: Study, results: Path) -> list[ModelTuples]:
    models = (read_model_tuples(results / "tuples" / f"{name}.pkl") for name in study.models)
    return [model for model in models if model.refusal is None]


def _to_benchmark(study: Study, models: Sequence[ModelTuples]) -> dict[str, TupleRecord]:
    manifest = collect(models, study.operators)
    return {
        tuple_id: TupleRecord.from_document(entry)
        for tuple_id, entry in manifest.items()
        if entry["excluded"] is None
    }


def _plan(
    study: Study,
    target: str,
    results: Path,
    models: Sequence[ModelTuples],
    tuples: Mapping[str, TupleRecord],
) -> Plan:
    conditions, folder = study.conditions[target], results / target
    again = records.measured_under(conditions, folder / "again", schemas.OPERATOR, _SPENT)
    others = [
        *again,
        *records.measured_under(conditions, folder / "models", schemas.MODEL, _SPENT),
        *records.measured_under(conditions, folder / "models_again", schemas.MODEL, _SPENT),
    ]
    return plan(
        models,
        tuples,
        records.measured_under(
            conditions, folder / "operators", schemas.OPERATOR, ("tuple_id", "time_s", *_SPENT)
        ),
        conditions.measurement,
        study.max_device_time_s,
        sum(row["device_time_s"] or 0.0 for row in others),
        _models_to_measure(study, target, results, models)
        + _models_to_measure(study, target, results, models, "models_again")
        * (study.measured_again > 0),
        max(0, study.measured_again - len(again)),
    )


def _models_to_measure(
    study: Study,
    target: str,
    results: Path,
    models: Sequence[ModelTuples],
    kind: str = "models",
) -> int:
    rows = records.measured_under(
        study.conditions[target],
        results / target / kind,
        schemas.MODEL,
        ("model", "definition_json"),
    )
    done = {(row["model"], row["definition_json"]) for row in rows}
    return sum((model.model, study.models[model.model].to_json()) not in done for model in models)


def _beyond(planned: Plan) -> str:
    return f", {len(planned.beyond)} beyond the budget" if planned.beyond else ""


def _device_time(planned: Plan) -> str:
    source = "as jobs took so far" if planned.known else "by the settings, until some are measured"
    each = f"about {planned.job_s:.1f} s a tuple, {source}"
    end = datetime.now() + timedelta(seconds=planned.needed_s)
    return (
        f"  device time: {duration(planned.needed_s)} to come ({each}), "
        f"{duration(planned.spent_s)} spent; if begun now, done at {end:%a %H:%M}"
    )


def _budget(max_device_time_s: float | None, planned: Plan) -> list[str]:
    if max_device_time_s is None:
        return []
    return [
        f"  budget: {duration(max_device_time_s)} (max_device_time_s); what is measured then is "
        f"expected to explain {planned.expected_coverage():.0%} of the models' time"
    ]


def _memory(
    tuples: Mapping[str, TupleRecord],
    planned: Plan,
    target: Target,
    open_device: Callable[[Target], Device],
) -> list[str]:
    if not planned.chosen:
        return []
    largest = max(planned.chosen, key=lambda tuple_id: memory_bytes(tuples[tuple_id]))
    needed = memory_bytes(tuples[largest])
    text = f"  memory: {needed / _MIB:.0f} MiB for {tuples[largest].operator_tuple}"
    try:
        free = open_device(target).free_memory_bytes()
    except OpcostError as error:
        return [f"{text}; whether it fits is not known here: {error}"]
    lines = [f"{text}, the largest, beside its workspace; {free / _MIB:.0f} MiB are free"]
    for tuple_id in planned.chosen:
        if memory_bytes(tuples[tuple_id]) > free:
            lines.append(f"  does not fit: {tuples[tuple_id].operator_tuple}")
    return lines
