"""Which call overheads the calls of a model have, where the host of a device sets the pace.

In inference, the call of a module takes longer than its operators do; a further call of the module
has no overhead. In training, every call has that of its phase, and the first call that of its
start. A view, which launches no kernel, has an overhead of its own.

A call takes longer if its code is cold: if the calls since the last one of its operator, that one
included, moved as much data as the private cache holds, and so evicted the code of the operator and
of Python. The benchmark of an operator that moves so much data itself has that cost already. A cold
call costs what those of a small convolutional block do, as measured on the target. An optimizer, a
short loop over few operators, has no cold calls.
"""

from collections.abc import Mapping, Sequence

from opcost.models.definition import BACKWARD, FORWARD, LOSS, OPTIMIZER
from opcost.tuples.model_tuples import ModelTuples

Weights = Mapping[str, float]
"""Kind of overhead (rows/quantities.py) -> how often it is added."""

_OF_PHASE = {
    FORWARD: "forward_call",
    LOSS: "forward_call",
    BACKWARD: "backward_call",
    OPTIMIZER: "optimizer_call",
}
_STARTS = {BACKWARD: "backward_start", OPTIMIZER: "optimizer_start"}


def overheads_by_call(model: ModelTuples, core_cache_bytes: int) -> list[Weights]:
    """The overheads of each of a model's calls."""
    cold = cold_calls(model, core_cache_bytes)
    found: list[Weights] = []
    begun: set[str] = set()
    for number, call in enumerate(model.calls):
        own: dict[str, float] = {}
        if not model.tuples[call.position].launches_kernel:
            own["view_call"] = 1
        elif model.trains:
            own[_OF_PHASE[call.phase]] = 1
            if call.phase in _STARTS and call.phase not in begun:
                own[_STARTS[call.phase]] = 1
            begun.add(call.phase)
        if not model.trains and model.first_of_module[number]:
            own["call"] = 1
        if cold[number] and call.phase != OPTIMIZER:
            own["cold_call"] = 1
            own["call"] = own.get("call", 0) - 1
        found.append(own)
    return found


def added(weights: Sequence[Weights]) -> Weights:
    """The sum of the overheads of several calls."""
    total: dict[str, float] = {}
    for each in weights:
        for kind, count in each.items():
            total[kind] = total.get(kind, 0) + count
    return total


def cold_calls(model: ModelTuples, core_cache_bytes: int) -> list[bool]:
    """Whether the code of each of a model's calls is cold, and is not so in the operator's own
    benchmark; never of a view.

    The model runs in a loop: its last call precedes its first one.
    """
    moved_bytes = 0
    last_bytes: dict[str, int] = {}
    found: list[bool] = []
    for second_pass in (False, True):
        for call in model.calls:
            record = model.tuples[call.position]
            operator, launches = record.operator_tuple.operator, record.launches_kernel
            if second_pass:
                since = moved_bytes - last_bytes.get(operator, moved_bytes)
                found.append(launches and record.bytes < core_cache_bytes <= since)
            if launches:
                last_bytes[operator] = moved_bytes
                moved_bytes += record.bytes
    return found
