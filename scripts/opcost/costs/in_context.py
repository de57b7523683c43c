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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from opcost import statistics
from opcost.costs.terms import Row
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

_NOT_MEASURED = (
    "the model was measured before opcost timed calls in context; to measure it again, delete its "
    "file in models/ of the target's results"
)
_NO_CALLS = "the model calls no operator"
_OTHER_CALLS = "the measured model made other calls than were recorded or extracted"


class InContextTimes:
    """The times of a model's calls in context: means over the runs that count end to end."""

    def __init__(self, estimate: "ModelEstimate") -> None:
        self._estimate = estimate
        self._model = estimate.model
        measured = estimate.measured_whole
        clocked = [row for row in measured if row[CALL_TIME.value]]
        these = undisturbed(clocked)
        known = [(row, by_call) for row in these if (by_call := self._by_call(row)) is not None]
        self._clocked = [row["clocked_time_s"] / row[TIME.value] for row, _ in known]
        self._runs = [
            [statistics.correlated_sum([(1 / row[TIME.value], each)]) for each in by_call]
            for row, by_call in known
        ]
        self.reason = None
        if not self._runs:
            reasons = (row["in_context_reason"] for row in measured)
            unknown = _OTHER_CALLS if clocked else _NOT_MEASURED
            unknown = unknown if self._model.calls else _NO_CALLS
            self.reason = next(filter(None, reasons), unknown) if measured else None

    def _by_call(self, row: Row) -> list[Estimate] | None:
        """The time of each of the model's calls in one run; None if the run made others.

        Views of the device may differ from those extracted: their times are then unknown and zero.
        """
        found = [
            Estimate(*limits)
            for limits in zip(*(row[name] for name in CALL_TIME.names), strict=True)
        ]
        if row["call_tuple_id"] == self._ids:
            return found
        executed = [
            (tuple_id, time)
            for tuple_id, time in zip(row["call_tuple_id"], found, strict=True)
            if tuple_id in self._kernels
        ]
        expected = [each for each in self._ids if each in self._kernels]
        if [tuple_id for tuple_id, _ in executed] != expected:
            return None
        times = iter([time for _, time in executed])
        zero = Estimate(0.0, 0.0, 0.0)
        return [next(times) if each in self._kernels else zero for each in self._ids]

    @cached_property
    def _ids(self) -> list[str]:
        ids = list(self._model.by_id)
        return [ids[call.position] for call in self._model.calls]

    @cached_property
    def _kernels(self) -> set[str]:
        return {term.record.operator_tuple.tuple_id for term in self._estimate.terms}

    @cached_property
    def by_call_s(self) -> list[float]:
        """Seconds of each of the model's calls, views included; empty if unknown."""
        end_to_end = self._estimate.whole_time
        columns = zip(*self._runs, strict=True)
        return [
            fmean(each.value for each in column) * end_to_end.value
            for column in columns
            if end_to_end
        ]

    @property
    def clocked_s(self) -> float | None:
        """Seconds of the model with the clock, which slows each run alike."""
        end_to_end = self._estimate.whole_time
        return fmean(self._clocked) * end_to_end.value if self._clocked and end_to_end else None

    @cached_property
    def operators(self) -> Estimate | None:
        """Seconds of all calls that launch kernels."""
        numbers = [number for number, each in enumerate(self._ids) if each in self._kernels]
        mean = self._mean(numbers)
        return mean and statistics.weighted_sum([(len(numbers), mean)])

    @cached_property
    def between_s(self) -> float | None:
        """Seconds of the end-to-end time between the operators' calls."""
        end_to_end = self._estimate.whole_time
        if self.operators is None or end_to_end is None:
            return None
        return end_to_end.value - self.operators.value

    @cached_property
    def largest_share_difference(self) -> float | None:
        """The largest difference between the share of an operator, or of the time between calls, in
        the estimate and end to end; None if one of them is unknown.
        """
        total, between_s = self._estimate.summed_time, self.between_s
        rows = [(IN_CONTEXT.read(row), ISOLATED.read(row)) for row in of_operators(self.rows())]
        known = [(here.value, isolated.value) for here, isolated in rows if here and isolated]
        if total is None or between_s is None or not known or len(known) < len(rows):
            return None
        here_s, isolated_s = map(sum, zip(*known, strict=True))
        known.append((between_s, total.value - isolated_s))
        end_to_end_s = here_s + between_s
        return max(abs(isolated / total.value - here / end_to_end_s) for here, isolated in known)

    def _mean(self, numbers: Sequence[int]) -> Estimate | None:
        end_to_end = self._estimate.whole_time
        if not self._runs or end_to_end is None:
            return None
        return statistics.product(self._share(numbers), end_to_end)

    def _share(self, numbers: Sequence[int]) -> Estimate:
        """The mean share of these calls in the end-to-end time. The errors of calls in one run add
        up, as if they had one cause.
        """
        means = [
            statistics.correlated_sum((1 / len(numbers), by_call[number]) for number in numbers)
            for by_call in self._runs
        ]
        values = [each.value for each in means]
        if min(values) <= 0:
            return Estimate(fmean(values), None, None)
        runs = Runs(values, [*map(block_error, means)])
        return with_interval(fmean(values), runs, self._estimate.noise.variations[TIME])

    def columns(self) -> dict[str, Any]:
        """The columns of the comparison."""
        return {
            **IN_CONTEXT.columns(self.operators),
            "between_calls_time_s": self.between_s,
            "clocked_time_s": self.clocked_s,
            "largest_share_difference": self.largest_share_difference,
            "in_context_reason": self.reason,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Each operator tuple in context and isolated, costliest first; empty if unknown."""
        calls: dict[str, list[int]] = defaultdict(list)
        for number, tuple_id in enumerate(self._ids):
            calls[tuple_id].append(number)
        found = []
        for term in self._estimate.addable:
            operator_tuple = term.record.operator_tuple
            in_context = self._mean(calls[operator_tuple.tuple_id])
            if in_context is None:
                continue
            isolated = self._isolated[operator_tuple.tuple_id]
            added_s = in_context.value - isolated.value if isolated else None
            found.append(
                {
                    "model": self._model.model,
                    "tuple_id": operator_tuple.tuple_id,
                    "operator": operator_tuple.operator,
                    "description": str(operator_tuple),
                    "calls": term.calls,
                    **_both(in_context, isolated),
                    "added_time_s": None if added_s is None else term.calls * added_s,
                }
            )
        return sorted(found, key=lambda row: -row["calls"] * row[IN_CONTEXT.value])

    def modules(self) -> list[dict[str, Any]]:
        """The operators that each module calls directly, by phase, costliest first; empty if
        unknown.
        """
        numbers: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
        for number, (call, tuple_id) in enumerate(zip(self._model.calls, self._ids, strict=True)):
            if tuple_id in self._kernels:
                numbers[call.module_path, call.module_class, call.phase].append(number)
        found = [
            {"module_path": path, "module_class": kind, "phase": phase, **total}
            for (path, kind, phase), calls in numbers.items()
            if (total := self._total(calls)) is not None
        ]
        return sorted(found, key=lambda row: -row[IN_CONTEXT.value])

    def calls(self) -> list[dict[str, Any]]:
        """Each call that launches a kernel, in order, with its number; empty if unknown."""
        return [
            {
                "number": number,
                "module_path": call.module_path,
                "phase": call.phase,
                "description": str(self._model.tuples[call.position].operator_tuple),
                **total,
            }
            for number, (call, tuple_id) in enumerate(
                zip(self._model.calls, self._ids, strict=True)
            )
            if tuple_id in self._kernels and (total := self._total([number])) is not None
        ]

    @cached_property
    def _isolated(self) -> dict[str, Estimate | None]:
        """Tuple id -> seconds of an isolated call, if measured."""
        return {
            term.record.operator_tuple.tuple_id: self._estimate.noise.value(term.row, TIME)
            if term.measured and term.row
            else None
            for term in self._estimate.addable
        }

    def _total(self, numbers: Sequence[int]) -> dict[str, Any] | None:
        """The total of these calls; None if unknown in context."""
        mean = self._mean(numbers)
        if mean is None:
            return None
        counts = Counter(self._ids[number] for number in numbers)
        isolated = [(count, self._isolated[tuple_id]) for tuple_id, count in counts.items()]
        return {
            "calls": len(numbers),
            "tuple_ids": list(counts),
            **_both(
                statistics.weighted_sum([(len(numbers), mean)]),
                _total_of(isolated, statistics.weighted_sum),
            ),
        }


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


def of_operators(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of a model added up by operator, by the name that tables show."""
    return _grouped(rows, "operator", lambda row: short_name(row["operator"]))


def of_tuples(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of a model, each for all calls of its tuple."""
    return _grouped(rows, "tuple_id", lambda row: row["tuple_id"])


def together(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows for all calls as one; their errors are taken to have one cause."""
    in_context, isolated = (
        _total_of([(1, quantity.read(row)) for row in rows], statistics.correlated_sum)
        for quantity in (IN_CONTEXT, ISOLATED)
    )
    return {
        "calls": sum(row["calls"] for row in rows),
        "tuple_ids": [tuple_id for row in rows for tuple_id in row["tuple_ids"]],
        **_both(in_context, isolated),
    }


def _grouped(rows: Sequence[Row], column: str, key: Callable[[Row], str]) -> list[dict[str, Any]]:
    """Isolated tuples are measured one by one; in context, their errors are taken to have one
    cause.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    found = [
        {
            column: name,
            "description": tuples[0]["description"],
            "calls": sum(row["calls"] for row in tuples),
            "tuple_ids": [row["tuple_id"] for row in tuples],
            **_both(
                *(
                    _total_of([(row["calls"], quantity.read(row)) for row in tuples], add)
                    for quantity, add in (
                        (IN_CONTEXT, statistics.correlated_sum),
                        (ISOLATED, statistics.weighted_sum),
                    )
                )
            ),
        }
        for name, tuples in groups.items()
    ]
    return sorted(found, key=lambda row: -row[IN_CONTEXT.value])


def _total_of(
    times: Sequence[tuple[float, Estimate | None]],
    add: Callable[[Iterable[tuple[float, Estimate]]], Estimate],
) -> Estimate | None:
    """None if one of the times is unknown."""
    known = [(count, time) for count, time in times if time is not None]
    return add(known) if len(known) == len(times) else None


def _both(in_context: Estimate | None, isolated: Estimate | None) -> dict[str, Any]:
    return {
        **ISOLATED.columns(isolated),
        **IN_CONTEXT.columns(in_context),
        **RATIO.columns(
            statistics.ratio(in_context, isolated) if in_context and isolated else None
        ),
    }
