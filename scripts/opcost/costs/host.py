"""How long a model takes on a device whose host runs ahead, such as a GPU.

In a loop over the model, the host launches calls while the device runs the kernels of earlier ones:

    seconds of an iteration = the larger of the host's and the device's seconds, plus waits

Waits arise where a call holds the host until the device has run it (`waits_for_device`), and where
the device's queue is full. `idle_s` replays the calls to find them.

The device needs `time_s` of each operator. The host needs `host_time_s` of each operator and the
overhead of each call or view. If the host time of the model was measured end to end, calls are
scaled to it; otherwise the interval of the overhead reaches over models.
"""

# ASSUME that a call takes one place in the queue, and that a kernel can start when it is launched.

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opcost.costs.terms import Row, Term
from opcost.rows import comparability
from opcost.rows.flags import WAITS_FOR_DEVICE
from opcost.rows.quantities import HOST_TIME, OVERHEADS, TIME
from opcost.rows.runs import Noise
from opcost.statistics import Estimate, correlated_sum, weighted_sum
from opcost.text import seconds
from opcost.tuples.model_tuples import ModelTuples

QUEUE = 1023
"""Launches that the queue of an NVIDIA GPU holds."""

_LEAST, _MOST = -0.4, 2.9
"""The overhead of a call or view in a model, as a share of the target's: the least was in a loop
over a function, the most in a model of torchvision (docs/explanation/time.md)."""

_ITERATIONS = 12

_NOTHING = Estimate(0.0, 0.0, 0.0)
_NOTABLE = 0.005


class Call(NamedTuple):
    """Seconds of a call on the host and on the device (None: no kernel), and whether the host waits
    until the device has run it.
    """

    host_s: float
    device_s: float | None
    waits: bool = False


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration of a model, those in which its device waits for the host, and the
    model's calls, as estimated from operators and call overhead.
    """

    time: Estimate
    idle: Estimate
    calls: Sequence[Call]

    @property
    def host_s(self) -> float:
        """Seconds that the host needs for the calls."""
        return sum(call.host_s for call in self.calls)


def idle_s(calls: Sequence[Call], queue: int = QUEUE, host: float = 1, device: float = 1) -> float:
    """Seconds in which the device waits for the host in an iteration of a loop over the calls, once
    iterations take equally long. `host` and `device` multiply the seconds of the calls.
    """
    launched = ended = 0.0
    idle, ends = math.inf, deque([0.0] * queue, maxlen=queue)
    for _ in range(_ITERATIONS):
        before, idle = idle, 0.0
        for host_s, device_s, waits in calls:
            launched += host * host_s
            if device_s is not None:
                launched = max(launched, ends[0])
                idle += max(0.0, launched - ended)
                ended = max(launched, ended) + device * device_s
                ends.append(ended)
                launched = ended if waits else launched
        if math.isclose(idle, before, rel_tol=1e-6):
            break
    return idle


def runs_ahead(rows: Sequence[Row]) -> bool:
    """Whether the host of the rows' device runs ahead; False if unknown, as of imported rows."""
    kind = comparability.kind_of(rows[0]) if rows else None
    return kind is not None and not kind.host_sets_pace


def unknown_host(rows: Sequence[Row]) -> str | None:
    """Why rows of a target do not determine the host time of a model, or None."""
    if not rows or comparability.kind_of(rows[0]) is None:
        return None
    target = rows[0]["target"]
    unknown = [row for row in rows if row[HOST_TIME.value] is None and not _waits(row)]
    if runs_ahead(rows) and unknown:
        return (
            f"{len(unknown)} of {len(rows)} rows do not say what the host needs to launch the "
            "operator (host_time_s). To measure all again, give the target "
            f"{target} another name"
        )
    if rows[0]["call_overhead_s"] is not None:
        return None
    return (
        f"the database has no call overhead of target {target}. Run the study again where it was "
        "measured: its rows are kept, and the call overhead is added"
    )


def iteration_of(
    model: ModelTuples, terms: Sequence[Term], noise: Noise, measured_host: Estimate | None = None
) -> Iteration:
    """An iteration of a model whose terms all have results, and host times or wait for the device.

    `measured_host` are the seconds of the host, if measured end to end. The limits are replays with
    both host and device at the lower, and at the upper limits of their intervals; those of the idle
    time have one of them at the lower and the other at the upper limit.
    """
    by_id = {term.record.operator_tuple.tuple_id: term.row for term in terms}
    rows = [by_id.get(tuple_id) for tuple_id in model.by_id]
    overhead, of_view = (_overhead(rows, kind) for kind in ("call", "view_call"))
    launches, kernels = (
        [(row and noise.value(row, quantity)) or _NOTHING for row in rows]
        for quantity in (HOST_TIME, TIME)
    )
    each = [
        Call(max(0.0, launch.value + overhead.value), kernel.value, _waits(row))
        if row
        else Call(max(0.0, of_view.value), None)
        for row, launch, kernel in zip(rows, launches, kernels, strict=True)
    ]
    calls = [each[call.position] for call in model.calls]
    counts = model.call_counts().values()
    views = sum(call.device_s is None for call in calls)
    overheads = (len(calls) - views, overhead), (views, of_view)
    device = weighted_sum(zip(counts, kernels, strict=True))
    host = measured_host or weighted_sum([*zip(counts, launches, strict=True), *overheads])
    host_s = sum(call.host_s for call in calls)

    def waits(on_host_s: float | None, on_device_s: float | None) -> float | None:
        if on_host_s is None or on_device_s is None:
            return None
        scales = max(0.0, on_host_s) / (host_s or 1.0), max(0.0, on_device_s) / device.value
        return idle_s(calls, QUEUE, *scales)

    value = waits(host.value, device.value) or 0.0
    alike = Estimate(value, waits(host.low, device.low), waits(host.high, device.high))
    opposite = Estimate(value, waits(host.low, device.high), waits(host.high, device.low))
    return Iteration(correlated_sum([(1, device), (1, alike)]), opposite, calls)


def _waits(row: Row) -> bool:
    return WAITS_FOR_DEVICE in row["flags"]


def _overhead(rows: Sequence[Row | None], kind: str) -> Estimate:
    """Seconds of call overhead in any model, from the rows of a target."""
    found = next(OVERHEADS[kind].read(row) for row in rows if row) or _NOTHING
    low, high = (found.value if limit is None else limit for limit in (found.low, found.high))
    return Estimate(found.value, min(_LEAST * low, _LEAST * high), _MOST * high)


def waiting(compared: Row) -> str | None:
    """The share of a model's time in which its device waits for the host; None on a processor."""
    share = compared["host_bound_share"]
    if share is None:
        return None
    host_s, device_s = compared[HOST_TIME.value], compared["operators_time_s"]
    measured_s = compared[HOST_TIME.of("end_to_end").value]
    estimated = " (estimated)"
    if measured_s is not None:
        estimated, host_s = f" (estimated: {seconds(host_s)})", measured_s
    needs = f"the host needs {seconds(host_s)} to launch its calls{estimated}, the device "
    needs += f"{seconds(device_s)} to run them"
    if share < _NOTABLE:
        return f"{compared['model']} does not wait for its host: {needs}"
    return f"{compared['model']} waits for its host {share:.0%} of the time: {needs}"


def waits_of(comparison: Iterable[Row]) -> list[str]:
    """The sentences of all models on devices whose host runs ahead."""
    return [text for row in comparison if (text := waiting(row)) is not None]
