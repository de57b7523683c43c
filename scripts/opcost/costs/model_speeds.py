"""The speeds of a target's core in each round, and beside its whole models, as columns of its
database.

Most operators are measured in round 1, and whole models in each.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean, median
from typing import Any

from opcost.costs.terms import Row
from opcost.databases.measured import Measured
from opcost.errors import OpcostError
from opcost.executions import MIN_SUBJECTS
from opcost.results_folder import folder_of
from opcost.rows import records, schemas
from opcost.rows.executed import (
    ROUND,
    distinct,
    in_round,
    model_speed_columns,
    speed_in_a_usual_round,
    speed_of_round,
    undisturbed,
)
from opcost.rows.quantities import ROUND_SPEEDS, USUAL_SPEED

_COLUMNS = ("status", "flags", "core_speed_per_s", "started_at")


def speeds_of_models(
    measured: Measured, rows: Mapping[str, Mapping[str, Row]]
) -> dict[str, dict[str, Any]]:
    """Target -> the columns of the speeds of its rounds, and of those beside its whole models."""
    found: dict[str, list[Sequence[Row]]] = defaultdict(list)
    for paths in measured.models:
        executions = []
        for path in paths:
            with suppress(OpcostError):  # a damaged file is told where its model is compared
                table = records.read(path, schemas.MODEL, _COLUMNS)
                rows_of_round = (in_round(row, path) for row in table.to_pylist())
                executions += [row for row in rows_of_round if row["status"] == "ok"]
        found[measured.target_in(folder_of(paths[0]))].append(undisturbed(distinct(executions)))
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
