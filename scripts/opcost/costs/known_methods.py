"""The method's own error on each target of a results folder, as columns of its database."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, median
from typing import Any

from opcost import statistics
from opcost.costs.estimate import OPERATOR_COLUMNS, ModelEstimate
from opcost.costs.method import Difference, method_columns
from opcost.costs.terms import Row, terms_of
from opcost.databases.measured import Damages, Measured
from opcost.errors import OpcostError
from opcost.executions import MIN_SUBJECTS
from opcost.results_folder import extraction, key_of
from opcost.rows import comparability, records, schemas
from opcost.rows.executed import (
    ROUND,
    in_round,
    model_speed_columns,
    speed_in_a_usual_round,
    speed_of_round,
)
from opcost.rows.quantities import COMPARED, ENERGY, ROUND_SPEEDS, TIME, USUAL_SPEED, Quantity
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import read_extractions
from opcost.tuples.recordings import calls_on

_Differences = dict[Quantity, Difference | None]


def methods_of(measured: Measured, damages: Damages, database: Path) -> dict[str, dict[str, Any]]:
    """Target -> the columns of its rows, from those of a database without these columns.

    A model tells nothing if one of its operators is not measured, or if it is defined otherwise
    than when it was measured; nor does a layer, which is called otherwise than a model. Notes
    damaged files in `damages`.
    """
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    if measured.models:
        read = [*OPERATOR_COLUMNS, "execution_round", "execution_core_speed_per_s"]
        for row in records.read(database, schemas.DATABASE, read).to_pylist():
            rows[row["target"]][row["tuple_id"]] = row
    speeds = speeds_of_models(measured.models, rows)
    for target, columns in speeds.items():
        rows[target] = {each: {**row, **columns} for each, row in rows[target].items()}
    found: dict[str, dict[str, _Differences]] = defaultdict(dict)
    for paths in measured.models:
        target, model = key_of(paths[0])
        with damages.tolerated(paths[0]):
            differences = _differences(paths, rows[target], damages)
            if any(differences.values()):
                found[target][model] = differences
    methods = {
        target: method_columns(
            list(models), {each: [known[each] for known in models.values()] for each in COMPARED}
        )
        for target, models in found.items()
    }
    return {target: columns | methods.get(target, {}) for target, columns in speeds.items()}


def speeds_of_models(
    models: Sequence[Sequence[Path]], rows: Mapping[str, Mapping[str, Row]]
) -> dict[str, dict[str, Any]]:
    """Target -> the columns of the speeds of its rounds, and of those beside its whole models.

    Most operators are measured in round 1, and whole models in each.
    """
    found: dict[str, list[Sequence[Row]]] = defaultdict(list)
    for paths in models:
        executions = []
        for path in paths:
            with suppress(OpcostError):  # a damaged file is told where its model is compared
                table = records.read(path, schemas.MODEL, ["core_speed_per_s"])
                executions += [in_round(row, path) for row in table.to_pylist()]
        found[key_of(paths[0])[0]].append(executions)
    return {
        target: _speed_columns(list(rows[target].values()), of_models)
        for target, of_models in found.items()
        if rows[target]
    }


def _speed_columns(rows: Sequence[Row], models: Sequence[Sequence[Row]]) -> dict[str, Any]:
    speeds = _speeds_of_rounds(rows)
    first = {**rows[0], ROUND_SPEEDS: _with_those_of_models(speeds, models, rows[0])}
    of_models = [
        [speed for each in executions if (speed := speed_in_a_usual_round(each, first))]
        for executions in models
    ]
    return {ROUND_SPEEDS: first[ROUND_SPEEDS], **model_speed_columns(first, of_models)}


def _with_those_of_models(
    speeds: Sequence[float | None], models: Sequence[Sequence[Row]], row: Row
) -> list[float | None] | None:
    """The speeds of rounds, of which those of few operators are told by whole models: by how much
    the core was slower beside these than in the rounds of many operators.
    """
    usual, known = row[USUAL_SPEED], {**row, ROUND_SPEEDS: speeds}
    faster: dict[int, list[float]] = defaultdict(list)
    for executions in models if usual else ():
        told = [each for each in executions if each["core_speed_per_s"]]
        of_many = [
            math.log(each["core_speed_per_s"] / of_round * usual)
            for each in told
            if (of_round := speed_of_round(known, each[ROUND]))
        ]
        if of_many:
            for each in told:
                faster[each[ROUND]].append(math.log(each["core_speed_per_s"]) - fmean(of_many))
    number = max([len(speeds), *faster])
    rounds = [*speeds, *[None] * (number - len(speeds))]
    return [
        usual * math.exp(median(faster[place])) if speed is None and faster.get(place) else speed
        for place, speed in enumerate(rounds, 1)
    ] or None


def _speeds_of_rounds(rows: Iterable[Row]) -> list[float | None]:
    """The median speed of the core beside operators in each round, from the first; None for those
    of few operators.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        numbers, speeds = row["execution_round"] or (), row["execution_core_speed_per_s"] or ()
        for number, speed in zip(numbers, speeds, strict=True):
            if speed:
                found[number].append(speed)
    return [
        median(found[number]) if len(found[number]) >= MIN_SUBJECTS else None
        for number in range(1, max(found, default=0) + 1)
    ]


def _differences(paths: Sequence[Path], rows: Mapping[str, Row], damages: Damages) -> _Differences:
    """How far the sum of a model, as if it had never been measured as a whole, lies from that."""
    folder, name = paths[0].parent.parent, paths[0].stem
    extracted = extraction(name, folder.parent)
    if not extracted.is_file():
        return {}
    wholes = [
        in_round(row, path)
        for path in paths
        for row in records.read(path, schemas.MODEL, remedy=damages.remedy(path)).to_pylist()
    ]
    [model] = calls_on(folder, read_extractions([extracted]))
    if model.definition is not None and model.definition.layer is not None:
        return {}
    defined = model.definition and model.definition.to_json()
    wholes = [row for row in wholes if row["definition_json"] == defined]
    terms = terms_of(model, rows, set())
    estimate, measured = ModelEstimate(model, terms), ModelEstimate(model, terms, wholes)
    if comparability.conflict([*estimate.rows, *wholes]) is not None:
        return {}
    pairs = {
        TIME: (estimate.summed_time, measured.whole_time),
        ENERGY: (estimate.summed_energy, measured.whole_energy),
    }
    return {quantity: _difference(*pair) for quantity, pair in pairs.items()}


def _difference(total: Estimate | None, whole: Estimate | None) -> Difference | None:
    if total is None or whole is None:
        return None
    ratio = statistics.ratio(total, whole)
    return None if ratio.sd is None else Difference(ratio.value - 1, ratio.sd / ratio.value)
