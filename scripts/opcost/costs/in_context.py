"""Operators in place, inside the running model, against the same operators measured alone.

The sum over a model's operators and the whole model can part company in two places: an operator
takes another time inside the model than alone, and what passes between calls is not the call
overhead that the sum adds:

    sum - whole = (alone - in place) + (call overhead - between calls)

Views are calls without kernels: what they take counts as between calls, as it does in the sum.

Calls are compared with the whole model of the same run, in the runs that count for its time:

    in place = mean(call / whole model of the same run) x whole model

All rows then add up to the whole model. The error of the whole model is common to all of them; that
of a row's share is its own.
"""

# ASSUME that shares of the whole model vary from run to run as times of operators do: they vary
# less, as far as runs differ by the processor's speed.

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
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
    "the whole model was measured before opcost timed calls in place; to measure it again, delete "
    "its file in models/ of the target's results"
)
_NO_CALLS = "the model calls no operator"
_OTHER_CALLS = "the measured model made other calls than were recorded or extracted"


class InContextTimes:
    """What a model's calls take in place, in the mean over the runs that count for the time of the
    whole model.
    """

    def __init__(self, estimate: "ModelEstimate") -> None:
        self._estimate = estimate
        self._model = estimate.model
        measured = estimate.measured_whole
        clocked = [row for row in measured if row[CALL_TIME.value]]
        these = undisturbed(clocked)
        known = [(row, by_call) for row in these if (by_call := self._by_call(row)) is not None]
        self._clocked = [row["clocked_time_s"] / row[TIME.value] for row, _ in known]
        self._runs = [_shares(by_call, row[TIME.value]) for row, by_call in known]
        self.reason = None
        if not self._runs:
            reasons = (row["in_context_reason"] for row in measured)
            unknown = _OTHER_CALLS if clocked else _NOT_MEASURED
            unknown = unknown if self._model.calls else _NO_CALLS
            self.reason = next(filter(None, reasons), unknown) if measured else None

    def _by_call(self, row: Row) -> list[Estimate] | None:
        """The time of each of the model's calls in one run; None if it made others.

        Views may differ, as those of a device do from those extracted: then, theirs are unknown
        and zero.
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
        """The tuple id of each of the model's calls."""
        ids = list(self._model.by_id)
        return [ids[call.position] for call in self._model.calls]

    @cached_property
    def _kernels(self) -> set[str]:
        """The tuples that launch kernels."""
        return {term.record.operator_tuple.tuple_id for term in self._estimate.terms}

    @cached_property
    def by_call_s(self) -> list[float]:
        """Seconds of each of the model's calls, views included; empty if unknown."""
        whole = self._estimate.whole_time
        columns = zip(*self._runs, strict=True)
        return [fmean(each.value for each in column) * whole.value for column in columns if whole]

    @property
    def clocked_s(self) -> float | None:
        """Seconds of the model with the clock, which takes longer in each run alike."""
        whole = self._estimate.whole_time
        return fmean(self._clocked) * whole.value if self._clocked and whole else None

    @cached_property
    def of_tuples(self) -> dict[str, Estimate]:
        """Tuple id -> seconds of a call, in the mean over the model's calls of it."""
        calls: dict[str, list[int]] = defaultdict(list)
        for number, tuple_id in enumerate(self._ids):
            calls[tuple_id].append(number)
        return {
            each: mean for each in self._kernels if (mean := self._mean(calls[each])) is not None
        }

    @cached_property
    def operators(self) -> Estimate | None:
        """Seconds of all calls that launch kernels."""
        numbers = [number for number, each in enumerate(self._ids) if each in self._kernels]
        mean = self._mean(numbers)
        return mean and statistics.weighted_sum([(len(numbers), mean)])

    @cached_property
    def between_s(self) -> float | None:
        """Seconds of the whole model that pass between its operators' calls."""
        whole = self._estimate.whole_time
        if self.operators is None or whole is None:
            return None
        return whole.value - self.operators.value

    @cached_property
    def largest_share_difference(self) -> float | None:
        """The largest difference between the share of an operator, or of what is between calls, in
        the sum and its share in the whole model; None if one of them is unknown.
        """
        total, between_s = self._estimate.summed_time, self.between_s
        rows = [(IN_CONTEXT.read(row), ISOLATED.read(row)) for row in of_operators(self.rows())]
        known = [(here.value, alone.value) for here, alone in rows if here and alone]
        if total is None or between_s is None or not known or len(known) < len(rows):
            return None
        here_s, alone_s = map(sum, zip(*known, strict=True))
        known.append((between_s, total.value - alone_s))
        whole_s = here_s + between_s
        return max(abs(alone / total.value - here / whole_s) for here, alone in known)

    def _mean(self, numbers: Sequence[int]) -> Estimate | None:
        """Seconds of one of these calls, in their mean."""
        whole = self._estimate.whole_time
        if not self._runs or whole is None:
            return None
        return statistics.product(self._share(numbers), whole)

    def _share(self, numbers: Sequence[int]) -> Estimate:
        """The share of one of these calls in the whole model, in their mean: the errors of calls in
        one run add up, as if they had one cause.
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
        """Each operator tuple in place and alone, the costliest first; empty if unknown."""
        found = []
        for term in self._estimate.addable:
            operator_tuple = term.record.operator_tuple
            in_context = self.of_tuples.get(operator_tuple.tuple_id)
            if in_context is None:
                continue
            alone = self._alone[operator_tuple.tuple_id]
            ratio = statistics.ratio(in_context, alone) if alone else None
            found.append(
                {
                    "model": self._model.model,
                    "tuple_id": operator_tuple.tuple_id,
                    "operator": operator_tuple.operator,
                    "description": str(operator_tuple),
                    "calls": term.calls,
                    **ISOLATED.columns(alone),
                    **IN_CONTEXT.columns(in_context),
                    **RATIO.columns(ratio),
                    "added_time_s": term.calls * (in_context.value - alone.value)
                    if alone
                    else None,
                }
            )
        return sorted(found, key=lambda row: -row["calls"] * row[IN_CONTEXT.value])

    def modules(self) -> list[dict[str, Any]]:
        """The operators that each module itself calls, by phase, the costliest first; empty if
        unknown.
        """
        numbers: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
        for number, (call, tuple_id) in enumerate(zip(self._model.calls, self._ids, strict=True)):
            if tuple_id in self._kernels:
                numbers[call.module_path, call.module_class, call.phase].append(number)
        found = [
            {"module_path": path, "module_class": kind, "phase": phase, **both}
            for (path, kind, phase), calls in numbers.items()
            if (both := self._added_up(calls)) is not None
        ]
        return sorted(found, key=lambda row: -row[IN_CONTEXT.value])

    def calls(self) -> list[dict[str, Any]]:
        """Each call that launches a kernel, with its number among all calls, in their order; empty
        if unknown.
        """
        return [
            {
                "number": number,
                "module_path": call.module_path,
                "phase": call.phase,
                "description": str(self._model.tuples[call.position].operator_tuple),
                **both,
            }
            for number, (call, tuple_id) in enumerate(
                zip(self._model.calls, self._ids, strict=True)
            )
            if tuple_id in self._kernels and (both := self._added_up([number])) is not None
        ]

    @cached_property
    def _alone(self) -> dict[str, Estimate | None]:
        """Tuple id -> seconds of a call measured alone, if it was."""
        return {
            term.record.operator_tuple.tuple_id: self._estimate.noise.value(term.row, TIME)
            if term.measured and term.row
            else None
            for term in self._estimate.addable
        }

    def _added_up(self, numbers: Sequence[int]) -> dict[str, Any] | None:
        """These calls in place and alone; None if unknown in place."""
        mean = self._mean(numbers)
        if mean is None:
            return None
        counts = Counter(self._ids[number] for number in numbers)
        alone = [
            (count, each) for tuple_id, count in counts.items() if (each := self._alone[tuple_id])
        ]
        return _both(
            len(numbers),
            list(counts),
            statistics.weighted_sum([(len(numbers), mean)]),
            statistics.weighted_sum(alone) if len(alone) == len(counts) else None,
        )


def between_calls(compared: Row) -> Estimate | None:
    """Seconds between a model's calls, from its row of the comparison; None if unknown.

    They are the rest of the whole model, so an error of the whole changes them in proportion, and
    one of the operators' share by as much as the operators.
    """
    in_context, whole = IN_CONTEXT.read(compared), TIME.of("end_to_end").read(compared)
    value = compared["between_calls_time_s"]
    if value is None or in_context is None or whole is None:
        return None
    if in_context.half_width is None or whole.half_width is None:
        return Estimate(value, None, None)
    share = in_context.value / whole.value
    of_share = max(in_context.half_width**2 - (share * whole.half_width) ** 2, 0.0)
    half = math.hypot(math.sqrt(of_share), (1 - share) * whole.half_width)
    return Estimate(value, value - half, value + half)


def of_operators(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of a model added up by operator, by the name that tables show."""
    return _grouped(rows, "operator", lambda row: short_name(row["operator"]))


def of_tuples(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of a model, each for all calls of its tuple."""
    return _grouped(rows, "tuple_id", lambda row: row["tuple_id"])


def together(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows for all calls as one, whose errors are taken to have one cause."""
    in_context, alone = (
        [each for row in rows if (each := quantity.read(row)) is not None]
        for quantity in (IN_CONTEXT, ISOLATED)
    )
    return _both(
        sum(row["calls"] for row in rows),
        [tuple_id for row in rows for tuple_id in row["tuple_ids"]],
        statistics.correlated_sum((1, each) for each in in_context),
        statistics.correlated_sum((1, each) for each in alone) if len(alone) == len(rows) else None,
    )


def _grouped(rows: Sequence[Row], column: str, key: Callable[[Row], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    found = [
        {column: name, "description": tuples[0]["description"], **_of_all_calls(tuples)}
        for name, tuples in groups.items()
    ]
    return sorted(found, key=lambda row: -row[IN_CONTEXT.value])


def _shares(times: Sequence[Estimate], whole_s: float) -> list[Estimate]:
    return [statistics.correlated_sum([(1 / whole_s, each)]) for each in times]


def _of_all_calls(tuples: Sequence[Row]) -> dict[str, Any]:
    """Alone only if all of the tuples are. Tuples are measured alone one by one; in place, their
    errors are taken to have one cause.
    """
    in_context, alone = (
        [(row["calls"], each) for row in tuples if (each := quantity.read(row)) is not None]
        for quantity in (IN_CONTEXT, ISOLATED)
    )
    return _both(
        sum(row["calls"] for row in tuples),
        [row["tuple_id"] for row in tuples],
        statistics.correlated_sum(in_context),
        statistics.weighted_sum(alone) if len(alone) == len(tuples) else None,
    )


def _both(
    calls: int, tuple_ids: Sequence[str], in_context: Estimate, alone: Estimate | None
) -> dict[str, Any]:
    return {
        "calls": calls,
        "tuple_ids": tuple_ids,
        **ISOLATED.columns(alone),
        **IN_CONTEXT.columns(in_context),
        **RATIO.columns(statistics.ratio(in_context, alone) if alone else None),
        "added_time_s": in_context.value - alone.value if alone else None,
    }
