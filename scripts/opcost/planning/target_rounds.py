"""The rounds of a target, from the files of a study: what is known, what is planned."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opcost.addresses import Addresses
from opcost.executions import Executions, Scatter, scatter_of
from opcost.files import read_json, write_json
from opcost.planning.measured import Row, measured_tuples, measured_wholes
from opcost.planning.plan import Plan
from opcost.planning.rounds import Known, Round, Subject, expect_rounds, plan_round
from opcost.results_folder import MODELS, OPERATORS, all_measurements, series_of
from opcost.rows import records, schemas
from opcost.rows.executed import distinct, executions_of, undisturbed
from opcost.rows.quantities import TIME
from opcost.study import Study
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.recordings import calls_on
from opcost.values import BOOLEAN, TEXT, check_values, list_of, optional
from opcost.values import number as at_least

_Rows = Mapping[Subject, Mapping[int, Row]]
"""Subject -> round -> its row there."""

_RULES = {
    OPERATORS: list_of(TEXT),
    MODELS: list_of(TEXT),
    "is_cut": optional(BOOLEAN),
    "anew": optional(at_least(0)),
}


def plan_target_round(addresses: Addresses, target: str, number: int, first: Plan) -> Round:
    """The plan of a round of one target, after the rounds before it have been measured.

    `first` is the present plan of round 1, within the budget that is left. The time that round 1
    still needs is left to it: a sum that lacks an operator is null, so completing it is worth more
    than a narrow interval.
    Raises OpcostError for a damaged file.
    """
    study = addresses.study
    models = calls_on(addresses.folders[target], extracted(addresses))
    every = _measured(addresses, target, max(number, study.rounds))
    measured = _of_study(every, models, first.known)
    known, done = _known(measured, range(1, number)), _done(measured, number)
    left_s = _left_s(study, first)
    return plan_round(number, models, known, study.precision, done, left_s, _scatter(every))


def expect_target_rounds(
    addresses: Addresses,
    target: str,
    models: Sequence[ModelTuples],
    times_s: Mapping[str, float],
    first: Plan,
) -> list[Round]:
    """What rounds after the first still measure, as far as can be expected now: each is planned as
    a run will plan it, after what is expected of the rounds before it.

    A tuple without a result is expected to take the `times_s` of its id; `first` is the present
    plan of round 1. Raises OpcostError for a damaged file.
    """
    study = addresses.study
    every = _measured(addresses, target, study.rounds)
    measured = _of_study(every, models, list(times_s))
    scatter, later_s = _scatter(every), 0.0
    begun = max((number for rows in measured.values() for number in rows), default=1)
    expected = Counter[Subject]()
    found: list[Round] = []
    while len(found) < study.rounds - 1:
        number = len(found) + 2
        known = _known(measured, range(1, number))
        known |= _expected(models, measured, times_s, first)
        known = {name: replace(each, expected=expected[name]) for name, each in known.items()}
        further = [number] if number <= begun else range(number, study.rounds + 1)
        left_s = _left_s(study, first) - later_s
        done = _done(measured, number)
        planned = expect_rounds(further, models, known, study.precision, done, left_s, scatter)
        for each in planned:
            expected.update(each.new)
            later_s += each.needed_s
        found += planned
    return found


def _expected(
    models: Sequence[ModelTuples],
    measured: _Rows,
    times_s: Mapping[str, float],
    first: Plan,
) -> dict[Subject, Known]:
    """What round 1 is expected to find of the subjects that it has not measured yet."""
    found = {
        (OPERATORS, name): Known(Executions([times_s[name]], [None]), first.job_s)
        for name in first.chosen
    }
    for model in models:
        sum_s = sum(times_s.get(name, 0.0) * n for name, n in model.call_counts().items())
        if sum_s and not model.is_operator and 1 not in measured[MODELS, model.model]:
            found[MODELS, model.model] = Known(Executions([sum_s], [None]), first.model_s)
    return found


def with_rest_of_budget(addresses: Addresses, target: str, began_s: float) -> Addresses:
    """The study with what its budget leaves after the measurements of a run that began then, in
    seconds since the epoch. What was measured before costs nothing.
    """
    budget_s = addresses.study.max_device_time_s
    if budget_s is None:
        return addresses
    spent_s = 0.0
    for path in all_measurements(addresses.folders[target]):
        if path.stat().st_mtime >= began_s:
            schema = schemas.MODEL if series_of(path).kind == MODELS else schemas.OPERATOR
            [row] = records.read(path, schema, ["device_time_s"]).to_pylist()
            spent_s += row["device_time_s"] or 0.0
    return replace(addresses, study=replace(addresses.study, max_device_time_s=budget_s - spent_s))


def _left_s(study: Study, first: Plan) -> float:
    """What the budget leaves to rounds after the first."""
    if study.max_device_time_s is None:
        return float("inf")
    return study.max_device_time_s - first.needed_s - first.beyond_s()


def _measured(addresses: Addresses, target: str, number: int) -> _Rows:
    """The rows of all subjects up to a round, of this study or another, but for models that this
    one defines otherwise.
    """
    found: dict[Subject, dict[int, Row]] = defaultdict(dict)
    for each in range(1, number + 1):
        for row in measured_tuples(addresses.folders[target], each):
            found[OPERATORS, row["tuple_id"]][each] = row
        for row in measured_wholes(addresses, target, each):
            found[MODELS, row["model"]][each] = row
    return found


def _of_study(
    measured: _Rows, models: Sequence[ModelTuples], tuple_ids: Collection[str]
) -> dict[Subject, Mapping[int, Row]]:
    names = [(OPERATORS, each) for each in tuple_ids] + [(MODELS, each.model) for each in models]
    return {name: measured.get(name, {}) for name in names}


def _done(measured: _Rows, number: int) -> list[Subject]:
    return [subject for subject, rows in measured.items() if number in rows]


def _known(measured: _Rows, rounds: Collection[int]) -> dict[Subject, Known]:
    """What rows of these rounds tell of each subject that has a result."""
    found = {
        subject: _known_of([row for number, row in rows.items() if number in rounds])
        for subject, rows in measured.items()
    }
    return {subject: known for subject, known in found.items() if known is not None}


def _scatter(measured: _Rows) -> Scatter | None:
    """How executions of all subjects vary on the target, if that is known."""
    executions = (_executions(_ok(rows.values())) for rows in measured.values())
    return scatter_of([each for each in executions if each is not None])


def extracted(addresses: Addresses) -> list[ModelTuples]:
    """The models of the study that could be extracted."""
    paths = map(addresses.extraction, addresses.study.models)
    return [model for model in read_extractions(paths) if model.refusal is None]


def _ok(rows: Iterable[Row]) -> list[Row]:
    return [row for row in distinct(list(rows)) if row["status"] == "ok"]


def _executions(rows: Sequence[Row]) -> Executions | None:
    """Those that the time of the subject will combine."""
    return executions_of(undisturbed(rows), TIME)


def _known_of(rows: Sequence[Row]) -> Known | None:
    found = _ok(rows)
    executions = _executions(found)
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
        "anew": planned.anew,
    }
    write_json(path, document)


def read_round(path: Path) -> Round:
    """What is measured in a round. Raises OpcostError for a damaged file."""
    remedy = f"delete {path}, and run again to plan the round again; what was measured is kept"
    document = read_json(path, remedy)
    check_values({key: document.get(key) for key in _RULES}, _RULES, path, remedy)
    return Round(
        document[OPERATORS],
        document[MODELS],
        is_cut=bool(document.get("is_cut")),
        anew=document.get("anew") or 0.0,
    )
