"""Which calls of a model find their code evicted from the private cache.

Between two calls of an operator, a model runs other operators. If these move more data than the
private cache holds, the code of the operator and of Python has to be fetched from the next cache.
docs/explanation/context.md describes the experiment.
"""

from opcost.tuples.model_tuples import ModelTuples


def evicted_calls(model: ModelTuples, core_cache_bytes: int) -> int:
    """The number of a model's kernel-launching calls whose code was evicted.

    The model runs in a loop: its last call precedes its first one.
    """
    moved_bytes = evicted = 0
    last_bytes: dict[str, int] = {}
    for second_pass in (False, True):
        for index, _, _ in model.calls:
            record = model.tuples[index]
            if not record.launches_kernel:
                continue
            operator = record.operator_tuple.operator
            if second_pass:
                evicted += moved_bytes - last_bytes[operator] > core_cache_bytes
            last_bytes[operator] = moved_bytes
            moved_bytes += record.bytes
    return evicted
