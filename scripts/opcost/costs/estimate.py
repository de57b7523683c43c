"""What a model costs by the sum over its operators.

A sum is an answer only if it is complete: with a tuple missing, time and energy are null and say
why. What could be measured is there all the same, named `partial`.

On a processor, a call costs more than its operator's own time: the estimate adds this overhead, as
measured for the target, at the mean power of the operators.

A measurement made again later, in another process, gives another number, by more than its interval
says: memory lies elsewhere, the machine's own speed varies. A study measures some operators twice
to know by how much (`spread`). Intervals here hold both errors: the one within a measurement and,
independent for each, this one.
"""

# ASSUME that all measurements reproduce as well as those that are made twice.

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from opcost import statistics
from opcost.costs.displacement import displaced_calls
from opcost.costs.terms import Row, Term, flops_of, why_incomplete
from opcost.rows import alike
from opcost.rows.columns import ANSWER, OVERHEAD
from opcost.rows.quantities import ENERGY, OVERHEADS, TIME, Quantity
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

OPERATOR_COLUMNS = (
    "tuple_id",
    "target",
    *ANSWER,
    "spread",
    *(column.name for column in OVERHEAD),
    *alike.COLUMNS,
)
"""What an estimate asks of an operator's row: raw values are not among it."""


@dataclass(frozen=True)
class ModelEstimate:
    """The sum over a model's operators on one target, and what it rests on.

    `terms` are the model's kernel-launching tuples, each with its row, if any.
    """

    model: ModelTuples
    terms: Sequence[Term]

    @cached_property
    def measured(self) -> list[Term]:
        """The terms that have a result."""
        return [term for term in self.terms if term.measured]

    @cached_property
    def rows(self) -> list[Row]:
        """The results."""
        return [term.row for term in self.measured if term.row]

    @cached_property
    def calls(self) -> int:
        """Calls that launch kernels."""
        return sum(term.calls for term in self.terms)

    @cached_property
    def spread(self) -> float | None:
        """The relative standard deviation of one measurement among others of the same."""
        return next((row["spread"] for row in self.rows), None)

    @cached_property
    def conflict(self) -> str | None:
        """What the rows differ in that must not be added up, or None."""
        return alike.conflict(self.rows)

    @cached_property
    def addable(self) -> Sequence[Term]:
        """The terms, without their rows if these must not be added up."""
        return [replace(term, row=None) for term in self.terms] if self.conflict else self.terms

    @cached_property
    def time_reason(self) -> str | None:
        """Why there is no time, or None."""
        return self.conflict or why_incomplete(self.terms) or self._unknown_overhead

    @cached_property
    def energy_reason(self) -> str | None:
        """Why there is no energy, or None."""
        return self.time_reason or next(
            (row["energy_reason"] for row in self.rows if row["energy_reason"] is not None), None
        )

    @cached_property
    def _unknown_overhead(self) -> str | None:
        """Why there is no sum of a database that does not say what calls cost on its processor."""
        row = next(iter(self.rows), None)
        if row is None or row["call_overhead_s"] is not None or not alike.host_sets_pace(row):
            return None
        return (
            f"the database does not say what calls cost on target {row['target']} beyond their "
            f"operators, as those of opcost.schema_version 1 to 4. Run the study again where it "
            "was measured: its rows are kept, and what calls cost is added"
        )

    @cached_property
    def overhead(self) -> dict[str, tuple[int, Estimate]]:
        """How many calls of each kind, and what each costs beyond its operator.

        Empty where the device, not its host, sets the pace.
        """
        row = next(iter(self.rows), None)
        if row is None or row["call_overhead_s"] is None:
            return {}
        displaced = displaced_calls(self.model, row["core_cache_bytes"])
        views = len(self.model.calls) - self.calls
        counts = {
            "call": self.calls - displaced + views,
            "displaced_call": displaced,
            "view_call": views,
        }
        return {
            kind: (count, each)
            for kind, count in counts.items()
            if (each := OVERHEADS[kind].read(row)) is not None
        }

    @cached_property
    def operators_time(self) -> Estimate | None:
        """Seconds of an iteration, those of the operators alone."""
        if self.time_reason is not None:
            return None
        return statistics.weighted_sum(self._weighted(TIME))

    @cached_property
    def time(self) -> Estimate | None:
        """Seconds of an iteration."""
        if self.operators_time is None:
            return None
        return statistics.weighted_sum([(1, self.operators_time), *self.overhead.values()])

    @cached_property
    def energy(self) -> Estimate | None:
        """Gross joules of an iteration."""
        if self.energy_reason is not None or self.operators_time is None or self.time is None:
            return None
        operators = statistics.weighted_sum(self._weighted(ENERGY))
        if not self.overhead:
            return operators
        stretch = self.time.value / self.operators_time.value
        return statistics.weighted_sum([(stretch, operators)])

    def columns(self) -> dict[str, Any]:
        """All of it as columns of the comparison's schema."""
        calls, measured = self.calls, self.measured
        return {
            **TIME.of("estimate").columns(self.time),
            "operators_time_s": self.operators_time.value if self.operators_time else None,
            "overhead_time_s": sum(count * each.value for count, each in self.overhead.values())
            if self.operators_time
            else None,
            "overhead_disturbed": self.rows[0]["overhead_disturbed"] if self.overhead else None,
            **ENERGY.of("estimate").columns(self.energy),
            "partial_time_s": None
            if self.conflict
            else sum(term.calls * term.row["time_s"] for term in measured if term.row),
            "coverage_calls": sum(term.calls for term in measured) / calls if calls else None,
            "coverage_flops": _flops_coverage(self.terms),
            "calls": calls,
            "displaced_calls": self.overhead["displaced_call"][0] if self.overhead else None,
            "view_calls": len(self.model.calls) - calls,
            "tuples": len(self.terms),
            "measured_tuples": len(measured),
            "failed_tuples": sum(term.row is not None and not term.measured for term in self.terms),
            "filtered_tuples": sum(term.filtered for term in self.terms),
            "unconverged_tuples": sum(row["converged"] is False for row in self.rows),
            "flag_counts": Counter(flag for row in self.rows for flag in row["flags"]),
            "flops": flops_of(self.terms),
            "parameters": self.model.parameters,
            "spread": self.spread,
            "told_differences": alike.told_differences(self.rows),
        }

    def _weighted(self, quantity: Quantity) -> Iterable[tuple[float, Estimate]]:
        for term in self.measured:
            estimate = measured_value(term.row or {}, quantity, self.spread)
            if estimate is not None:
                yield term.calls, estimate


def measured_value(row: Row, quantity: Quantity, spread: float | None) -> Estimate | None:
    """What a row has of a quantity, its interval widened by the spread."""
    estimate = quantity.read(row)
    return estimate and estimate.widened(spread or 0.0)


def _flops_coverage(terms: Sequence[Term]) -> float | None:
    total = flops_of(terms)
    return (flops_of([term for term in terms if term.measured]) or 0) / total if total else None
