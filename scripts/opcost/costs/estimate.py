"""The cost of a model, estimated from its operators.

If a tuple is missing, time and energy are null, with a reason; `partial` columns add up the others.

On a processor, the estimate is the sum over the operators. A call takes longer than its operator:
the estimate adds the target's call overhead, at the mean power of the operators.

On a GPU, the host launches operators while the device runs earlier ones. The estimate is the larger
of the host's and the device's seconds, plus waits (host.py). The device's energy is that of the
operators, and that of an idle device with a context while it waits for its host.

Intervals follow the model of noise (noise.py).
"""

# ASSUME that end-to-end runs vary as those of operators do.

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from opcost import statistics
from opcost.costs.call_overhead import Weights, added, overheads_by_call
from opcost.costs.host import Iteration, iteration_of, runs_ahead, unknown_host
from opcost.costs.in_context import InContextTimes
from opcost.costs.shares import IN_CONTEXT_COLUMN, OVERHEAD_COLUMN, module_shares
from opcost.costs.terms import Row, Term, why_incomplete
from opcost.noise import ModelError, Variation, disagree
from opcost.rows import comparability
from opcost.rows.columns import ANSWER, OVERHEAD
from opcost.rows.flags import POINT_CHANGED, PREDICTED
from opcost.rows.quantities import ENERGY, HOST_TIME, OVERHEADS, TIME, Quantity
from opcost.rows.runs import (
    COLUMNS,
    Noise,
    combined_value,
    distinct,
    noise_of,
    runs_of,
    undisturbed,
)
from opcost.statistics import Estimate, product
from opcost.tuples.model_tuples import ModelTuples, calls_hash

_READ = (
    "tuple_id",
    "target",
    "device",
    *ANSWER,
    *COLUMNS,
    *("operation", "idle_power_w", "power_gain_uncertainty", "runs", "disturbed_runs"),
    *(column.name for column in OVERHEAD),
    *comparability.COLUMNS,
)
OPERATOR_COLUMNS = tuple(dict.fromkeys(_READ))
"""The columns of operator rows that an estimate reads."""

_OTHERS = "others than are known now; delete the row of the model to measure it again"


@dataclass(frozen=True)
class ModelEstimate:
    """The sum over `terms`: a model's kernel-launching tuples, with their rows on one target.

    `end_to_end` are the runs of the model on that target, if any, `of_target` the noise of
    the target; by default that of the terms alone. `prediction_ranges` are, for each quantity, the
    limits of the 95 % interval of the sum of the predicted terms, relative to it.
    """

    model: ModelTuples
    terms: Sequence[Term]
    end_to_end: Sequence[Row] = ()
    of_target: Noise | None = None
    prediction_ranges: Mapping[Quantity, tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def noise(self) -> Noise:
        """The noise of the target."""
        return self.of_target or noise_of(self.rows)

    @cached_property
    def measured(self) -> list[Term]:
        """The terms that have a measured result."""
        return [term for term in self.terms if term.measured]

    @cached_property
    def known(self) -> list[Term]:
        """The terms that have a result, measured or predicted."""
        return [term for term in self.terms if term.known]

    @cached_property
    def rows(self) -> list[Row]:
        """The results."""
        return [term.row for term in self.known if term.row]

    @cached_property
    def calls(self) -> int:
        """Calls that launch kernels."""
        return sum(term.calls for term in self.terms)

    @cached_property
    def differing_calls(self) -> list[str] | None:
        """The calls by which the measured model differs from this one; None if unknown."""
        known = [calls for row in self.end_to_end if (calls := self._differing(row)) is not None]
        return list(dict.fromkeys(itertools.chain(*known))) if known else None

    def _differing(self, row: Row) -> list[str] | None:
        """The model's calls may have been recorded again since the row was measured."""
        measured = row["calls_hash"]
        if measured is None:
            return row["differing_calls"]
        if measured == calls_hash(self.model.launched()):
            return []
        return row["differing_calls"] or [_OTHERS]

    @cached_property
    def end_to_end_host(self) -> Estimate | None:
        """Seconds in which the host launches the model, if measured under the same
        conditions.
        """
        if comparability.conflict([*self.rows, *self.end_to_end]) is not None:
            return None
        return combined_value(self.end_to_end_rows, HOST_TIME, self.noise.variations[HOST_TIME])

    @property
    def end_to_end_variation(self) -> Variation:
        """The run-to-run variation end to end: a device that waits for its host varies as
        the host does.
        """
        waits = self.iteration is not None and self.iteration.idle.value > 0
        return self.noise.variations[HOST_TIME if waits else TIME]

    @cached_property
    def end_to_end_time(self) -> Estimate | None:
        """Seconds end to end, from its runs."""
        return combined_value(self.end_to_end_rows, TIME, self.end_to_end_variation)

    @cached_property
    def disagreeing_s(self) -> Sequence[float]:
        """Seconds of the runs end to end, if they disagree; else empty."""
        runs = runs_of(self.timed_rows, TIME)
        return runs.values if runs and disagree(runs, self.end_to_end_variation) else ()

    @cached_property
    def disturbed_rows(self) -> list[Row]:
        """The runs that the end-to-end time leaves out: disturbed, and others are not."""
        return [row for row in self._with_value(TIME) if row not in self.timed_rows]

    @cached_property
    def end_to_end_energy(self) -> Estimate | None:
        """Gross joules end to end, from its runs."""
        return combined_value(self.end_to_end_rows, ENERGY, self.noise.variations[ENERGY])

    @cached_property
    def end_to_end_rows(self) -> list[Row]:
        """The end-to-end runs that did not fail, nor were at another operating point."""
        return [
            row
            for row in distinct(self.end_to_end)
            if row["status"] == "ok" and POINT_CHANGED not in (row["flags"] or ())
        ]

    @cached_property
    def timed_rows(self) -> Sequence[Row]:
        """The runs that the end-to-end time combines."""
        return undisturbed(self._with_value(TIME))

    def _with_value(self, quantity: Quantity) -> list[Row]:
        return [row for row in self.end_to_end_rows if row[quantity.value] is not None]

    @cached_property
    def conflict(self) -> str | None:
        """Why the rows must not be added up, or None."""
        return comparability.conflict(self.rows)

    @cached_property
    def addable(self) -> Sequence[Term]:
        """The terms, without their rows if these must not be added up."""
        return [replace(term, row=None) for term in self.terms] if self.conflict else self.terms

    @cached_property
    def time_reason(self) -> str | None:
        """Why time is null, or None."""
        return (
            self.conflict
            or why_incomplete(self.terms)
            or self._other_point
            or self._other_calls
            or unknown_host(self.rows)
            or self._unknown_training
        )

    @cached_property
    def energy_reason(self) -> str | None:
        """Why energy is null, or None."""
        return (
            self.time_reason
            or next((row["energy_reason"] for row in self.rows if row["energy_reason"]), None)
            or self._lacking_energy
            or self._unknown_idle_power
        )

    @property
    def _lacking_energy(self) -> str | None:
        lacking = sum(row[ENERGY.value] is None for row in self.rows)
        return f"{lacking} of {len(self.rows)} operator tuples have no energy" if lacking else None

    @property
    def _other_point(self) -> str | None:
        count = sum(POINT_CHANGED in (row["flags"] or ()) for row in self.rows)
        if not count:
            return None
        return (
            f"another program changed the power limit or a clock during {count} of "
            f"{len(self.rows)} measurements of operators: end it, and run opcost retry --flag "
            f"{POINT_CHANGED}"
        )

    @cached_property
    def _other_calls(self) -> str | None:
        """Why the sum is not that of the calls on the device, or None.

        Where sizes depend on values, the sum is for those found before, as its flags say.
        """
        if self.differing_calls is None and self.model.not_recorded is not None:
            return f"the calls that the device makes were not recorded: {self.model.not_recorded}"
        if not self.differing_calls or any(term.record.value_dependent for term in self.terms):
            return None
        return "on this device, the model launched other kernels than were recorded or extracted"

    @cached_property
    def _unknown_training(self) -> str | None:
        if not self.model.trains or not self.rows:
            return None
        row = self.rows[0]
        ahead = row["cold_call_overhead_s"] is None
        if ahead or row["forward_call_overhead_s"] is not None:
            return None
        return (
            f"the call overhead of target {row['target']} was measured before opcost knew "
            f"training. To measure it again, delete results/{row['target']}/device.json and run "
            "the study again: all rows are kept"
        )

    @cached_property
    def _unknown_idle_power(self) -> str | None:
        waits = self.iteration is not None and self.iteration.idle.value
        if not waits or self.idle_power_w is not None:
            return None
        return "the device waits for its host, and no row has the power of the idle device"

    @cached_property
    def idle_power_w(self) -> float | None:
        """Watts of the idle device: the mean over the rows; None if none has them."""
        known = [row["idle_power_w"] for row in self.rows if row["idle_power_w"] is not None]
        return fmean(known) if known else None

    @cached_property
    def iteration(self) -> Iteration | None:
        """An iteration on a device whose host runs ahead; None on others, and without a time."""
        if self.time_reason is not None or not runs_ahead(self.rows):
            return None
        return iteration_of(self.model, self.terms, self.noise, self.end_to_end_host)

    @cached_property
    def overhead(self) -> dict[str, tuple[float, Estimate]]:
        """Kind of call overhead -> how often it is added, and how large it is.

        Empty if the host runs ahead.
        """
        return {
            kind: (count, each)
            for kind, count in added(self.overheads_by_call).items()
            if (each := self.overhead_of(kind)) is not None
        }

    def overhead_of(self, kind: str) -> Estimate | None:
        """The overhead of one kind of call on the target; None if unknown."""
        return OVERHEADS[kind].read(self.rows[0])

    @property
    def cold_calls(self) -> float:
        """How many calls find their code cold, and not in their operators' benchmarks."""
        return added(self.overheads_by_call).get("cold_call", 0)

    @cached_property
    def overheads_by_call(self) -> list[Weights]:
        """The overheads of each call; empty if the host runs ahead."""
        row = next(iter(self.rows), None)
        if row is None or row["cold_call_overhead_s"] is None:
            return []
        return overheads_by_call(self.model, row["core_cache_bytes"])

    @cached_property
    def overhead_time_s(self) -> float | None:
        """Seconds of call overhead; None where the host runs ahead, and where it is unknown.

        It follows from the calls, so it is known where operators are not measured.
        """
        unknown = self.conflict or self._other_calls or self._unknown_training
        if unknown or self.iteration is not None or (self.time_reason and not self.overhead):
            return None
        return sum(count * each.value for count, each in self.overhead.values())

    @cached_property
    def operators_time(self) -> Estimate | None:
        """Seconds of the operators in one iteration."""
        if self.time_reason is not None:
            return None
        return statistics.weighted_sum(self._weighted(TIME))

    @cached_property
    def time(self) -> Estimate | None:
        """Seconds of one iteration, in an interval that also holds the model error if known."""
        return self.with_model_error(self.summed_time, TIME)

    @cached_property
    def energy(self) -> Estimate | None:
        """Gross joules of one iteration, in an interval like that of the time."""
        return self.with_model_error(self.summed_energy, ENERGY)

    def with_model_error(self, total: Estimate | None, quantity: Quantity) -> Estimate | None:
        """A sum over operators, in an interval that also holds the error of what is predicted, and
        the model error if known.
        """
        if total is None:
            return None
        if error := self.model_error(quantity):
            reach = math.exp(error.half_width)
            total = product(total, Estimate(1.0, 1 / reach, reach))
        predicted = self.prediction_ratio(quantity)
        return statistics.ratio(total, predicted) if predicted else total

    def prediction_ratio(self, quantity: Quantity) -> Estimate | None:
        """1, in the interval by which the sum over the operators may be too large or too small
        because its terms are predicted; None if none is.
        """
        if quantity not in self.prediction_ranges:
            return None
        share, (low, high) = self.predicted_share(quantity), self.prediction_ranges[quantity]
        return Estimate(1.0, 1 / (1 + share * (high - 1)), 1 / (1 - share * (1 - low)))

    def predicted_share(self, quantity: Quantity = TIME) -> float:
        """The share of predicted terms in the sum over the operators."""
        return self.flagged_share(PREDICTED, quantity)

    def flagged_share(
        self, flag: str, quantity: Quantity = TIME, terms: Sequence[Term] | None = None
    ) -> float:
        """The share of rows with a flag in the sum over the operators, or over these of them."""
        parts = [
            (term.calls * term.row[quantity.value], flag in (term.row["flags"] or ()))
            for term in (self.known if terms is None else terms)
            if term.row and term.row[quantity.value] is not None
        ]
        flagged = math.fsum(each for each, has_flag in parts if has_flag)
        return flagged / (math.fsum(each for each, _ in parts) or 1.0)

    def model_error(self, quantity: Quantity) -> ModelError | None:
        """The model error, from the other models that were measured end to end on the target."""
        return self.noise.model_error(self.model.model, self.model.trains, quantity)

    @cached_property
    def summed_time(self) -> Estimate | None:
        """Seconds of one iteration, in the interval of what was measured."""
        if self.operators_time is None:
            return None
        if self.iteration is not None:
            return self.iteration.time
        return statistics.weighted_sum([(1, self.operators_time), *self.overhead.values()])

    @cached_property
    def operators_energy(self) -> Estimate | None:
        """Gross joules of the operators in one iteration."""
        if self.energy_reason is not None:
            return None
        return statistics.weighted_sum(self._weighted(ENERGY))

    @cached_property
    def summed_energy(self) -> Estimate | None:
        """Gross joules of one iteration, in the interval of what was measured."""
        operators, time = self.operators_energy, self.summed_time
        if operators is None or self.operators_time is None or time is None:
            return None
        if self.iteration is not None and self.idle_power_w is not None:
            idle = (self.idle_power_w, self.iteration.idle)
            return statistics.weighted_sum([(1, operators), idle])
        if not self.overhead:
            return operators
        return operators.times(time.value / self.operators_time.value)

    @cached_property
    def overhead_by_call_s(self) -> list[float]:
        """What each call of the model costs beyond its operator, on a processor."""
        each_s = {kind: estimate.value for kind, (_, estimate) in self.overhead.items()}
        return [
            sum(count * each_s.get(kind, 0.0) for kind, count in weights.items())
            for weights in self.overheads_by_call
        ]

    @cached_property
    def in_context(self) -> InContextTimes:
        """What the calls take inside the running model, as far as it was measured."""
        return InContextTimes(self)

    def modules(self, depth: int | None = None) -> list[dict[str, Any]]:
        """The cost by module path, cut after `depth` names if given, largest first."""
        by_call_s: dict[str, list[float]] = {}
        if self.overhead_time_s:
            by_call_s[OVERHEAD_COLUMN] = self.overhead_by_call_s
        if self.in_context.by_call_s:
            by_call_s[IN_CONTEXT_COLUMN] = self.in_context.by_call_s
        return module_shares(self.model, self.addable, by_call_s, depth)

    def _weighted(self, quantity: Quantity) -> Iterable[tuple[float, Estimate]]:
        for term in self.known:
            estimate = self.noise.value(term.row or {}, quantity)
            if estimate is not None:
                yield term.calls, estimate
