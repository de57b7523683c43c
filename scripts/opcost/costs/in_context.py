"""Operators in context, inside the running model, beside the same operators isolated.

The estimate and the end-to-end measurement can differ in two parts: an operator takes another time
in context than isolated, and the time between calls is not the call overhead of the estimate:

    estimate - end-to-end = (isolated - in context) + (call overhead - between calls)

Views are calls without kernels: their time counts as between calls, as in the estimate.

Calls are compared with the end-to-end time of the same run, in the runs that count for it:

    in context = mean(call / end-to-end time of the same run) x end-to-end time

All rows then add up to the end-to-end time. Its error is common to all of them; the error of a
row's share is its own.
"""

# ASSUME that shares of the end-to-end time vary from run to run as times of operators do: they vary
# less, as far as runs differ by the processor's speed.

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from opcost import statistics
from opcost.costs.terms import Row
from opcost.groups import grouped
from opcost.noise import Runs, block_error, with_interval
from opcost.rows.quantities import CALL_TIME, TIME
from opcost.rows.runs import undisturbed
from opcost.statistics import Estimate
from opcost.tuples.operator_tuple import short_name

if TYPE_CHECKING:
    from opcost.costs.estimate import ModelEstimate

ISOLATED, IN_CONTEXT, RATIO = (
    TIME.of("isolated"),
    TIME.of("in_context"),
    TIME.relative("in_context_ratio"),
)

GROUPINGS = ("operator", "tuple", "module", "call")
"""What calls can be added up by."""

_ID = 12
_NOT_MEASURED = "its calls were not timed"
_NO_CALLS = "the model calls no operator"
_OTHER_CALLS = "the measured model made other calls than were recorded or extracted"


class Group(NamedTuple):
    """Calls that are added up: what names them, by title, and their numbers in the model."""

    names: dict[str, str]
    numbers: list[int]


class InContextTimes:
    """The times of a model's calls in context: means over the runs that count end to end."""

    def __init__(self, estimate: "ModelEstimate") -> None:
        self._estimate, self._model = estimate, estimate.model
        ids = list(self._model.by_id)
        self._ids = [ids[call.position] for call in self._model.calls]
        self._kernels = {term.record.operator_tuple.tuple_id for term in estimate.terms}
        measured = estimate.end_to_end_rows
        timed = [row for row in measured if row[CALL_TIME.value]]
        known = [(row, found) for row in undisturbed(timed) if len(found := self._by_call(row))]
        self._clocked = [row["clocked_time_s"] / row[TIME.value] for row, _ in known]
        # For each run, and each call in it: value, low and high; limits are NaN if unknown.
        self._shares = [found / row[TIME.value] for row, found in known]
        self.reason = None
        if measured and not self._shares:
            unknown = _OTHER_CALLS if timed else _NOT_MEASURED
            reasons = (row["in_context_reason"] for row in measured)
            self.reason = next(filter(None, reasons), unknown if self._ids else _NO_CALLS)

    def _by_call(self, row: Row) -> np.ndarray:
        """Value, low and high of each of the model's calls in one run; empty if the run made
        others.

        Views of the device may differ from those extracted: their times are then unknown and zero.
        """
        times = np.array([row[name] for name in CALL_TIME.names], float).T
        executed = row["call_tuple_id"]
        if executed == self._ids:
            return times
        launching = [number for number, each in enumerate(executed) if each in self._kernels]
        if [executed[n] for n in launching] != [self._ids[n] for n in self.launching]:
            return np.empty(0)
        found = np.zeros((len(self._ids), len(CALL_TIME.names)))
        found[self.launching] = times[launching]
        return found

    @cached_property
    def launching(self) -> list[int]:
        """The numbers of the calls that launch kernels."""
        return [number for number, each in enumerate(self._ids) if each in self._kernels]

    @cached_property
    def by_call_s(self) -> list[float]:
        """Seconds of each of the model's calls, views included; empty if unknown."""
        end_to_end = self._estimate.end_to_end_time
        if end_to_end is None or not self._shares:
            return []
        found: list[float] = (np.mean(self._shares, axis=0)[:, 0] * end_to_end.value).tolist()
        return found

    @cached_property
    def operators(self) -> Estimate | None:
        """Seconds of all calls that launch kernels."""
        return self.in_context(self.launching)

    @cached_property
    def _between_s(self) -> float | None:
        """Seconds of the end-to-end time between the operators' calls."""
        end_to_end = self._estimate.end_to_end_time
        if self.operators is None or end_to_end is None:
            return None
        return end_to_end.value - self.operators.value

    def in_context(self, numbers: Sequence[int]) -> Estimate | None:
        """Seconds of these calls inside the running model; None if unknown."""
        end_to_end = self._estimate.end_to_end_time
        if not self._shares or end_to_end is None:
            return None
        return statistics.product(self._share(numbers), end_to_end)

    def _share(self, numbers: Sequence[int]) -> Estimate:
        """The share of these calls in the end-to-end time. The errors of calls in one run add up,
        as if they had one cause.
        """
        totals = [shares[numbers].sum(axis=0).tolist() for shares in self._shares]
        values = [value for value, _, _ in totals]
        if min(values) <= 0:
            return Estimate(fmean(values), None, None)
        runs = Runs(values, [_block_error(*each) for each in totals])
        return with_interval(fmean(values), runs, self._estimate.noise.variations[TIME])

    def isolated(self, numbers: Sequence[int]) -> Estimate | None:
        """Seconds of these calls as they were measured isolated; None if one of them was not."""
        counts = Counter(self._ids[number] for number in numbers)
        known = [(count, each) for key, count in counts.items() if (each := self._isolated[key])]
        return statistics.weighted_sum(known) if len(known) == len(counts) else None

    @cached_property
    def _isolated(self) -> dict[str, Estimate | None]:
        """Tuple id -> seconds of an isolated call, if measured."""
        return {
            term.record.operator_tuple.tuple_id: self._estimate.noise.value(term.row, TIME)
            if term.measured and term.row
            else None
            for term in self._estimate.addable
        }

    def groups(self, by: str) -> list[Group]:
        """The calls that launch kernels, grouped by one of `GROUPINGS`: calls in order, others
        costliest first; empty if unknown.
        """
        if not self.by_call_s:
            return []
        named = ((tuple(self._names(by, number).items()), number) for number in self.launching)
        groups = [Group(dict(names), numbers) for names, numbers in grouped(named).items()]
        return groups if by == "call" else sorted(groups, key=lambda each: -self._seconds(each))

    def _names(self, by: str, number: int) -> dict[str, str]:
        call = self._model.calls[number]
        operator_tuple = self._model.tuples[call.position].operator_tuple
        if by == "operator":
            return {by: short_name(operator_tuple.operator)}
        if by == "tuple":
            return {by: str(operator_tuple), "id": self._ids[number][:_ID]}
        module = call.module_path or "(model)"
        phase = {"phase": call.phase} if self._model.trains else {}
        if by == "module":
            return {by: module, "class": call.module_class or "", **phase}
        return {by: str(number), "module": module, "operator": str(operator_tuple), **phase}

    def _seconds(self, group: Group) -> float:
        return math.fsum(self.by_call_s[number] for number in group.numbers)

    def within(self, modules: Collection[str]) -> list[int]:
        """The numbers of the calls that launch kernels in these modules, or in modules of them."""
        paths = tuple(f"{module}." for module in modules)
        calls = self._model.calls
        return [n for n in self.launching if f"{calls[n].module_path}.".startswith(paths)]

    @property
    def _largest_share_difference(self) -> float | None:
        """The largest difference between the share of an operator, or of the time between calls, in
        the estimate and end to end; None if one of them is unknown.
        """
        total, between_s = self._estimate.summed_time, self._between_s
        end_to_end, isolated = self._estimate.end_to_end_time, self.isolated(self.launching)
        if total is None or end_to_end is None or between_s is None or isolated is None:
            return None
        pairs = [(between_s, total.value - isolated.value)]
        for group in self.groups("operator"):
            alone = self.isolated(group.numbers)
            assert alone is not None
            pairs.append((self._seconds(group), alone.value))
        return max(abs(alone / total.value - here / end_to_end.value) for here, alone in pairs)

    def columns(self) -> dict[str, Any]:
        """The columns of the comparison."""
        end_to_end, clocked_s = self._estimate.end_to_end_time, None
        if self._clocked and end_to_end:  # the clock slows each run alike
            clocked_s = fmean(self._clocked) * end_to_end.value
        return {
            **IN_CONTEXT.columns(self.operators),
            "between_calls_time_s": self._between_s,
            "clocked_time_s": clocked_s,
            "largest_share_difference": self._largest_share_difference,
            "in_context_reason": self.reason,
        }

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `schemas.IN_CONTEXT`, costliest first: a call of each tuple; empty if
        unknown.
        """
        return [self._row(group.numbers) for group in self.groups("tuple")]

    def _row(self, numbers: Sequence[int]) -> dict[str, Any]:
        operator_tuple = self._model.tuples[self._model.calls[numbers[0]].position].operator_tuple
        in_context, isolated = self.in_context(numbers), self.isolated(numbers[:1])
        assert in_context is not None
        here = in_context.times(1 / len(numbers))
        added_s = None if isolated is None else in_context.value - len(numbers) * isolated.value
        return {
            "model": self._model.model,
            "tuple_id": operator_tuple.tuple_id,
            "operator": operator_tuple.operator,
            "description": str(operator_tuple),
            "calls": len(numbers),
            **ISOLATED.columns(isolated),
            **IN_CONTEXT.columns(here),
            **RATIO.columns(isolated and statistics.ratio(here, isolated)),
            "added_time_s": added_s,
        }


def _block_error(value: float, low: float, high: float) -> float | None:
    return None if math.isnan(low + high) else block_error(Estimate(value, low, high))


def between_calls(compared: Row) -> Estimate | None:
    """Seconds between a model's calls, from its row of the comparison; None if unknown.

    They are the rest of the end-to-end time, so its error changes them in proportion, and the error
    of the operators' share by as much as the operators.
    """
    in_context, end_to_end = IN_CONTEXT.read(compared), TIME.of("end_to_end").read(compared)
    value = compared["between_calls_time_s"]
    if value is None or in_context is None or end_to_end is None:
        return None
    if in_context.half_width is None or end_to_end.half_width is None:
        return Estimate(value, None, None)
    share = in_context.value / end_to_end.value
    of_share = max(in_context.half_width**2 - (share * end_to_end.half_width) ** 2, 0.0)
    half = math.hypot(math.sqrt(of_share), (1 - share) * end_to_end.half_width)
    return Estimate(value, value - half, value + half)
