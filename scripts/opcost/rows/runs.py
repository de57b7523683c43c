"""The runs of a subject, in rows of measurements and of databases, and the noise of a target."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opcost import noise, statistics
from opcost.noise import ModelError, Runs, Variation, block_error, combined, disagree, pooled
from opcost.rows import comparability
from opcost.rows.flags import DISTURBED, IMPORTED, PREDICTED, RUNS_DISAGREE
from opcost.rows.quantities import ENERGY, HOST_TIME, MEASURED, POWER, TIME, Quantity
from opcost.statistics import Estimate

Row = Mapping[str, Any]

# ASSUME run-to-run variation as on the machines of docs/explanation/uncertainty.md, until the runs
# of a target show it.
_USUAL_SD = {TIME: 0.02, HOST_TIME: 0.02, POWER: 0.01}
_USUAL_SD_ON_A_GPU = {TIME: 0.005, HOST_TIME: 0.05, POWER: 0.01}


COLUMNS = (
    *("conditions_json", "device"),
    *(name for each in MEASURED for name in (*each.names, each.runs, each.run_errors)),
)
"""The columns of a database that the noise of a target is from."""


def usual_sd(row: Row | None, quantity: Quantity) -> float:
    """The usual run-to-run variation of a quantity on the kind of device of a row."""
    kind = comparability.kind_of(row) if row else None
    of_kind = _USUAL_SD if kind is None or kind.host_sets_pace else _USUAL_SD_ON_A_GPU
    return of_kind[quantity]


def is_copy(rows: Sequence[Row]) -> list[bool]:
    """Whether each row of a subject is a copy of one before it, as of a copied folder. Rows that
    began at the same moment are one run: a device has one at a time.
    """
    began = [row.get("started_at") for row in rows]
    return [moment is not None and moment in began[:n] for n, moment in enumerate(began)]


def distinct(rows: Sequence[Row]) -> list[Row]:
    """The runs of a subject, without copies."""
    return [row for row, copied in zip(rows, is_copy(rows), strict=True) if not copied]


def undisturbed(rows: Sequence[Row]) -> Sequence[Row]:
    """The runs of a subject that are not flagged `disturbed`, if there are some; otherwise all."""
    return [row for row in rows if DISTURBED not in (row["flags"] or ())] or rows


def runs_of(rows: Iterable[Row], quantity: Quantity) -> Runs | None:
    """The runs of which each has a row, as far as they found a value of the quantity."""
    found = [estimate for row in rows if (estimate := quantity.read(row)) is not None]
    return Runs([each.value for each in found], [*map(block_error, found)]) if found else None


def runs_in(row: Row, quantity: Quantity) -> Runs | None:
    """The runs of a row of a database that found a value of the quantity; of a row that lists no
    runs, as an imported one, its value.
    """
    values = row.get(quantity.runs)
    if values is None:
        return runs_of([row], quantity)
    errors = row[quantity.run_errors] or [None] * len(values)
    found = [pair for pair in zip(values, errors, strict=True) if pair[0] is not None]
    return Runs(*map(list, zip(*found, strict=True))) if found else None


def result_of(row: Row) -> dict[str, Any]:
    """The columns of the result of a row's own runs; empty if it has none."""
    columns: dict[str, Any] = {}
    for quantity in MEASURED:
        runs = runs_in(row, quantity)
        if runs is not None:
            usual = usual_sd(row, quantity)
            columns |= quantity.columns(_of_runs_alone(runs, usual))
            if quantity == TIME:
                columns["runs"] = len(runs.values)
                if disagree(runs, Variation(usual)):
                    columns["flags"] = [*row["flags"], RUNS_DISAGREE]
    time, power = (each.read(columns) if each.value in columns else None for each in (TIME, POWER))
    if time is not None and power is not None:
        columns |= ENERGY.columns(statistics.product(time, power))
    return columns


def _of_runs_alone(runs: Runs, usual: float) -> Estimate:
    """The value of runs with their own variation. They raise it when they disagree, so its interval
    need not hold all of them: that is extended.
    """
    found = combined(runs, pooled([runs], usual))
    if not disagree(runs, Variation(usual)):
        return found
    low, high = ([each or found.value, *runs.values] for each in (found.low, found.high))
    return Estimate(found.value, min(low), max(high))


def combined_value(
    rows: Sequence[Row], quantity: Quantity, variation: Variation
) -> Estimate | None:
    """A quantity of a subject, such as a model end to end, from the rows of its runs: of those that
    have a value, the undisturbed ones if there are some.
    """
    runs = runs_of(undisturbed([row for row in rows if row[quantity.value] is not None]), quantity)
    return combined(runs, variation) if runs else None


@dataclass(frozen=True)
class ModelRatio:
    """ln(estimate / end-to-end) of a model on a target; None where one of the two is unknown.

    `measured_at` is when it was last measured end to end, in ISO 8601 and UTC; `calls` are the
    numbers of its calls by tuple id.
    """

    model: str
    trains: bool
    time: float | None
    energy: float | None
    measured_at: str | None = None
    calls: Mapping[str, int] = field(default_factory=dict, hash=False)

    def of(self, quantity: Quantity) -> float | None:
        """The one of time or energy."""
        return self.time if quantity == TIME else self.energy


@dataclass(frozen=True)
class Noise:
    """The noise of a target: its run-to-run variations, and what the model error is from."""

    variations: Mapping[Quantity, Variation]
    ratios: Sequence[ModelRatio] = ()

    def value(self, row: Row, quantity: Quantity) -> Estimate | None:
        """A quantity of an operator's row, with the run-to-run variation of the target; that of a
        row without runs, imported or predicted, as it is.
        """
        if {IMPORTED, PREDICTED} & {*(row["flags"] or ())}:
            return quantity.read(row)
        if quantity == ENERGY:
            time, power = self.value(row, TIME), self.value(row, POWER)
            if time is not None and power is not None:
                return statistics.product(time, power)
        runs = runs_in(row, quantity)
        return combined(runs, self.variations[quantity]) if runs else None

    def model_error(self, model: str, trains: bool, quantity: Quantity) -> ModelError | None:
        """The model error of a model, from the others of its mode that are no variants of it."""
        others = (
            each.of(quantity)
            for each in self.ratios
            if each.trains == trains and not is_variant(each.model, model)
        )
        usual = noise.USUAL_TRAINING_ERROR if trains else noise.USUAL_MODEL_ERROR
        return noise.model_error([ratio for ratio in others if ratio is not None], usual)


def is_variant(name: str, model: str) -> bool:
    """Whether a name is the model's, or has a suffix, as `resnet50_b32` of `resnet50`."""
    return f"{name}_".startswith(f"{model}_")


def noise_of(rows: Sequence[Row], ratios: Sequence[ModelRatio] = ()) -> Noise:
    """The noise of a target, from its rows of a database with the columns `COLUMNS`."""
    first = next(iter(rows), None)
    found = {
        quantity: pooled(
            [runs for row in rows if (runs := runs_in(row, quantity))], usual_sd(first, quantity)
        )
        for quantity in MEASURED
    }
    time, power = found[TIME], found[POWER]
    found[ENERGY] = Variation(
        math.hypot(time.sd, power.sd), min(time.degrees_of_freedom, power.degrees_of_freedom)
    )
    return Noise(found, ratios)
