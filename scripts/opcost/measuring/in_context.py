"""The time of each operator call in context: inside the running model.

The model runs, and a clock is read before and after each call: on a processor its own, on a GPU
events, without waiting in between. The calls are those that are also measured isolated: below
autograd, above the kernels. The time between two calls (Python, modules, autograd, and here the
clock) is excluded; the clock's contribution to a call is measured without a call, and subtracted.
"""

import itertools
from collections.abc import Sequence
from time import perf_counter  # bound here: a model may replace the one in `time`
from typing import Any

from opcost import statistics
from opcost.devices.device import Device
from opcost.devices.disturbance import Watch
from opcost.measuring.timing import TimeMeasurement
from opcost.measuring.workload import ModelWorkload
from opcost.models.operator_calls import OperatorCalls
from opcost.rows.quantities import CALL_TIME
from opcost.tuples.operator_tuple import OperatorTuple

_LEAST_PASSES, _MOST_PASSES = 10, 200
_TRIES = 5
"""Passes that do not count are repeated, up to this factor."""
_LONGEST_S = 20.0
_CALLS_AHEAD = 200
"""Calls that a GPU is held back for: with its events, its queue holds about three times as many."""
_SHORTEST_HOLD_S, _LONGEST_HOLD_S, _HOLDS = 1e-3, 0.5, 2.0

VARYING = "the model makes different calls from run to run"
WAITING = "the GPU waited for its host inside the model"


class CallClock(OperatorCalls):
    """Marks the start and the end of each operator call."""

    def __init__(self, device: Device, hold_s: float) -> None:
        super().__init__()
        self._device, self._mark, self._hold_s = device, device.mark, hold_s
        self.marks: list[tuple[Any, Any]] = []
        self.operators: list[Any] = []
        self.waited = False
        self.longest_s = 0.0
        self._released = device.hold_back(0.0)
        self._since_s = perf_counter()

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(self.marks) % _CALLS_AHEAD == 0:
            self._hold_back()
        before = self._mark()
        result = func(*args, **kwargs)
        self.marks.append((before, self._mark()))
        self.operators.append(func)
        return result

    def end(self) -> list[float]:
        """Seconds of each call."""
        self._launched()
        return self._device.between_s(self.marks)

    def _hold_back(self) -> None:
        if self.marks:
            self._launched()
        self._released = self._device.hold_back(self._hold_s)
        self._since_s = perf_counter()

    def _launched(self) -> None:
        """Record the time that the host took for the last calls, and whether the GPU waited."""
        self.waited |= self._released()
        self.longest_s = max(self.longest_s, perf_counter() - self._since_s)


def clock_s(device: Device) -> float | None:
    """Seconds between two adjacent marks; None if a GPU cannot be held back."""
    hold_s = _SHORTEST_HOLD_S
    while hold_s < _LONGEST_HOLD_S:
        released = device.hold_back(hold_s)
        pairs = [(device.mark(), device.mark()) for _ in range(_CALLS_AHEAD)]
        waited = released()
        seconds = device.between_s(pairs)
        if not waited:
            return statistics.median(seconds).value
        hold_s *= 2
    return None


def time_in_context(
    workload: ModelWorkload,
    calls: Sequence[OperatorTuple],
    device: Device,
    watch: Watch,
    timing: TimeMeasurement,
    least_s: float,
) -> dict[str, Any]:
    """The columns of a model's row: the time of each of its `calls` in context, or why it is
    unknown.

    Runs passes for at least `least_s` seconds. Passes with interference, or in which a GPU waited
    for its host, do not count.
    """
    clock_only_s = clock_s(device)
    if clock_only_s is None:
        return {"in_context_reason": WAITING}
    expected = [each.operator for each in calls]
    found: list[list[float]] = []
    passes_s: list[float] = []
    counted: list[bool] = []
    hold_s = _SHORTEST_HOLD_S
    watch.look()
    start_s = perf_counter()
    while not _enough(len(found), sum(counted), perf_counter() - start_s, least_s):
        block: list[bool] = []
        for _ in range(min(timing.block_iterations, _MOST_PASSES)):  # sustained, it may be huge
            began_s = perf_counter()
            with CallClock(device, hold_s) as clock:
                workload.run(1)
            seconds = clock.end()
            passes_s.append(perf_counter() - began_s)
            hold_s = min(max(hold_s, _HOLDS * clock.longest_s), _LONGEST_HOLD_S)
            if [str(each) for each in clock.operators] != expected:
                return {"in_context_reason": VARYING}
            found.append(seconds)
            block.append(not clock.waited)
        undisturbed = watch.look()
        counted += [ahead and undisturbed for ahead in block]
    kept = list(itertools.compress(found, counted))
    if len(kept) < _LEAST_PASSES:
        if not device.kind.host_sets_pace:
            return {"in_context_reason": WAITING}
        kept = found
    times = [statistics.median(each).plus(-clock_only_s) for each in zip(*kept, strict=True)]
    return {
        "call_tuple_id": [each.tuple_id for each in calls],
        CALL_TIME.value: [_positive(each.value) for each in times],
        CALL_TIME.low: [_positive(each.low) for each in times],
        CALL_TIME.high: [_positive(each.high) for each in times],
        "clocked_time_s": statistics.median(passes_s).value,
        "clocked_passes": len(kept),
    }


def _enough(passes: int, counted: int, elapsed_s: float, least_s: float) -> bool:
    if elapsed_s > _LONGEST_S and passes:
        return True
    tried = counted >= _LEAST_PASSES or passes >= _TRIES * _LEAST_PASSES
    return tried and (elapsed_s >= least_s or passes >= _MOST_PASSES)


def _positive(time_s: float | None) -> float | None:
    return None if time_s is None else max(0.0, time_s)
