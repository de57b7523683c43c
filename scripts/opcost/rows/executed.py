"""The executions of a row, and their combined result."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.executions import (
    MANY_DEGREES,
    Executions,
    Scatter,
    SpeedLaw,
    SpeedsBeside,
    at_speed_of_run,
    batch_error,
    combined,
    in_any_run,
    near_the_middle,
    outlying,
    speeds_beside,
)
from opcost.results_folder import series_of
from opcost.rows.flags import DISTURBED, EXECUTIONS_DISAGREE
from opcost.rows.quantities import (
    ENERGY,
    EXECUTED,
    MODEL_SPEED,
    MODEL_SPEED_ERROR,
    MODEL_SPEED_SD,
    POWER,
    ROUND_SPEEDS,
    SPEED_COLUMNS,
    TIME,
    USUAL_SPEED,
    Quantity,
)
from opcost.statistics import Estimate

Row = Mapping[str, Any]

ROUND = "round"
"""What rows of whole models have beside their columns: the round of their file."""


_OF_MODELS = (MODEL_SPEED, MODEL_SPEED_ERROR, MODEL_SPEED_SD)


def in_round(row: Row, path: Path) -> dict[str, Any]:
    """A row of a whole model with the round of its file."""
    return {**row, ROUND: series_of(path).round}


def is_copy(rows: Sequence[Row]) -> list[bool]:
    """Whether each row of a subject is a copy of one before it, as of a copied folder. Those that
    began at the same moment are one run: a device has one at a time.
    """
    began = [row.get("started_at") for row in rows]
    return [moment is not None and moment in began[:n] for n, moment in enumerate(began)]


def distinct(rows: Sequence[Row]) -> list[Row]:
    """The executions of a subject, without copies of others."""
    return [row for row, copied in zip(rows, is_copy(rows), strict=True) if not copied]


def undisturbed(rows: Sequence[Row]) -> Sequence[Row]:
    """The executions of a subject that are not flagged `disturbed`, if there are some; otherwise
    all: the speed of the core tells only in part how much longer they took.
    """
    return [row for row in rows if DISTURBED not in (row["flags"] or ())] or rows


def executions_in(row: Row, quantity: Quantity) -> Executions | None:
    """The executions of a row that found a value of the quantity; of times, with their speeds."""
    values = row[quantity.executed] or ()
    unknown = [None] * len(values)
    errors = row[quantity.executed_error] or unknown
    speeds = (row["execution_core_speed_per_s"] if quantity == TIME else None) or unknown
    found = [each for each in zip(values, errors, speeds, strict=True) if each[0] is not None]
    if not found:
        return None
    times, batch_errors, core_speeds = map(list, zip(*found, strict=True))
    return Executions(times, batch_errors, core_speeds)


def executions_of(rows: Sequence[Row], quantity: Quantity) -> Executions | None:
    """The executions of which each has a row, as far as they found a value of the quantity."""
    found = [(estimate, row) for row in rows if (estimate := quantity.read(row)) is not None]
    if not found:
        return None
    return Executions(
        [each.value for each, _ in found],
        [batch_error(each) for each, _ in found],
        [row["core_speed_per_s"] for _, row in found],
    )


def scatter_columns(scatters: Mapping[Quantity, Scatter]) -> dict[str, Any]:
    """The columns of a target's scatters."""
    speed_law = scatters[TIME].speed_law if TIME in scatters else None
    # The error of the usual speed is that of a subject (`scatter_beside`).
    speed = dict(zip(SPEED_COLUMNS, astuple(speed_law), strict=False)) if speed_law else {}
    return speed | {
        name: value
        for quantity, each in scatters.items()
        for name, value in zip(
            quantity.scatter_columns,
            (each.sd, each.degrees_of_freedom, each.slope, each.centre),
            strict=True,
        )
    }


def scatter_in(row: Row, quantity: Quantity) -> Scatter | None:
    """The scatter of the row's target; one of unknown degrees of freedom counts as that of many."""
    sd, degrees, slope, centre = (row[name] for name in quantity.scatter_columns)
    if sd is None:
        return None
    speed_law = speed_law_in(row) if quantity == TIME else None
    return Scatter(
        sd, MANY_DEGREES if degrees is None else degrees, slope or 0.0, centre, speed_law
    )


def speed_law_in(row: Row) -> SpeedLaw | None:
    """How times on the row's target follow the speed of its core, if that is known."""
    speed = [row[name] for name in SPEED_COLUMNS]
    return None if None in speed else SpeedLaw(*speed)


def scatter_beside(row: Row, executions: Sequence[Row]) -> Scatter | None:
    """The scatter of times of a whole model on the row's target, at the speed that is usual beside
    it, as these executions of it tell.
    """
    scatter, known = scatter_in(row, TIME), [row[each] for each in _OF_MODELS]
    if scatter is None or scatter.speed_law is None or None in known:
        return scatter
    speeds = [speed for each in executions if (speed := speed_in_a_usual_round(each, row))]
    beside = scatter.speed_law.beside(speeds, SpeedsBeside(*known))
    return replace(scatter, speed_law=beside)


def speed_in_a_usual_round(execution: Row, row: Row) -> float | None:
    """The speed of the core in an execution of a whole model, had its round been as fast as is
    usual on the row's target.
    """
    speed, usual = execution["core_speed_per_s"], row[USUAL_SPEED]
    of_round = speed_of_round(row, execution[ROUND])
    return speed / of_round * usual if speed and of_round and usual else speed


def speed_of_round(row: Row, number: int) -> float | None:
    """The speed that is usual beside operators in a round on the row's target, if it is known."""
    speeds = row[ROUND_SPEEDS] or ()
    return speeds[number - 1] if number <= len(speeds) else None


def model_speed_columns(row: Row, models: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The columns of the speed that is usual beside whole models on the row's target, from those of
    the executions of each, had all rounds been as fast as is usual.
    """
    speed_law = speed_law_in(row)
    found = speeds_beside(models, speed_law.speed_sd) if speed_law else None
    return dict(zip(_OF_MODELS, astuple(found) if found else [None] * 3, strict=True))


def result_of(row: Row, scatters: Mapping[Quantity, Scatter]) -> dict[str, Any]:
    """The columns of the combined result of a row's executions; empty if it has none."""
    columns: dict[str, Any] = {}
    estimates = {}
    for quantity in EXECUTED:
        found = executions_in(row, quantity)
        if found is None:
            continue
        estimate = combined(found, scatters.get(quantity))
        if quantity == TIME and TIME in scatters:
            estimate = in_any_run(estimate, scatters[TIME].speed_law)
        estimates[quantity] = estimate
        columns |= quantity.columns(estimate)
        columns[quantity.degrees] = estimate.degrees_of_freedom
    times = executions_in(row, TIME)
    if times is None:
        return columns
    scatter = scatters.get(TIME)
    columns["executions"] = len(times.values)
    columns["outlying_executions"] = sum(outlying(times, scatter))
    others = [flag for flag in row["flags"] if flag != EXECUTIONS_DISAGREE]
    agree = all(near_the_middle(times, scatter))
    columns["flags"] = others if agree else [*others, EXECUTIONS_DISAGREE]
    if POWER in estimates:
        energy = statistics.product(estimates[TIME], estimates[POWER])
        columns |= ENERGY.columns(energy)
        columns[ENERGY.degrees] = energy.degrees_of_freedom
    return columns


def combined_value(
    rows: Sequence[Row], quantity: Quantity, scatter: Scatter | None
) -> Estimate | None:
    """A quantity of a subject, such as a whole model, from the rows of its executions: of those
    that have a value, the undisturbed ones if there are some.
    """
    known = [row for row in rows if row[quantity.value] is not None]
    executions = executions_of(undisturbed(known), quantity)
    return combined(executions, scatter) if executions else None


def measured_value(row: Row, quantity: Quantity) -> Estimate | None:
    """A quantity of a row of a database, as a term of a sum. A single measurement,
    which combines no executions, gets the scatter of its target.
    """
    if row["executions"] is not None:
        return value_at_speed_of_run(row, quantity)
    estimate = quantity.read(row)
    scatter = quantity.scatter if quantity in EXECUTED else TIME.scatter
    return estimate.widened(row[scatter] or 0.0) if estimate else None


def value_at_speed_of_run(row: Row, quantity: Quantity) -> Estimate | None:
    """A quantity of a row of a database, in an interval of runs at the usual speed of this one."""
    estimate = quantity.read(row)
    speed_law = speed_law_in(row) if quantity in (TIME, ENERGY) and row["executions"] else None
    if estimate is None or speed_law is None:
        return estimate
    if quantity == ENERGY:
        time, power = value_at_speed_of_run(row, TIME), POWER.read(row)
        if time is not None and power is not None:
            return statistics.product(time, power)
    return at_speed_of_run(estimate, speed_law)
