"""Which call overheads the calls of a model have, where the host of a device sets the pace.

In inference, the call of a module takes longer than its operators do; a further call of the module
has none. In training, every call has that of its phase, and the first call that of its start. A
call takes longer by what evicted code takes in inference, times the share of its code that was
evicted (evicted_code.py); but an optimizer is a short loop over few operators. The evicted code of
an operator that was not measured with its row takes what that of the target's small convolutional
block does, module included. A view, which launches no kernel, has an overhead of its own.
"""

from collections.abc import Mapping, Sequence

from opcost.costs.evicted_code import evicted_code
from opcost.models.phases import BACKWARD, FORWARD, LOSS, OPTIMIZER
from opcost.tuples.model_tuples import ModelTuples

Weights = Mapping[str, float]
"""Kind of overhead (rows/quantities.py), or tuple id of evicted code -> how often it is added, or
which share of it."""

_OF_PHASE = {
    FORWARD: "forward_call",
    LOSS: "forward_call",
    BACKWARD: "backward_call",
    OPTIMIZER: "optimizer_call",
}
_STARTS = {BACKWARD: "backward_start", OPTIMIZER: "optimizer_start"}


def overheads_by_call(
    model: ModelTuples, core_cache_bytes: int, has_code: Mapping[str, bool]
) -> list[Weights]:
    """The overheads of each of a model's calls.

    `has_code` tells of the id of each tuple with a result whether what its evicted code takes was
    measured, too. That of a tuple without a result is no more known than the tuple itself.
    """
    evicted = evicted_code(model, core_cache_bytes)
    ids = list(model.by_id)
    kernels = [model.tuples[call.position].launches_kernel for call in model.calls]
    found: list[Weights] = []
    begun: set[str] = set()
    for number, call in enumerate(model.calls):
        code = {}
        if (share := evicted[number].more) and call.phase != OPTIMIZER:
            tuple_id = ids[call.position]
            if has_code.get(tuple_id):
                code = {tuple_id: evicted[number].more_of_found}
            elif tuple_id in has_code:
                code = {"displaced_call": share, "call": -share}
        if not kernels[number]:
            own: dict[str, float] = {"view_call": 1}
        elif model.trains:
            own = {_OF_PHASE[call.phase]: 1}
            if call.phase in _STARTS and call.phase not in begun:
                own[_STARTS[call.phase]] = 1
            begun.add(call.phase)
        else:
            own = {}
        if not model.trains and model.first_of_module[number]:
            own["call"] = own.get("call", 0) + 1
        found.append({kind: own.get(kind, 0) + code.get(kind, 0) for kind in {*own, *code}})
    return found


def added(weights: Sequence[Weights]) -> Weights:
    """The sum of the overheads of several calls."""
    total: dict[str, float] = {}
    for each in weights:
        for kind, count in each.items():
            total[kind] = total.get(kind, 0) + count
    return total
