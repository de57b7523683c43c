"""Which calls of a model find their code evicted from the private cache.

Between two calls of an operator, a model runs other operators. If these move more data than the
private cache holds, the code of the operator and of Python has to be fetched from the next cache.
docs/explanation/context.md describes the experiment.
"""

from opcost.tuples.model_tuples import ModelTuples


def evicted_calls(model: ModelTuples, core_cache_bytes: int) -> list[bool]:
    """Whether the code of each of a model's calls was evicted; that of a view never is.

    The model runs in a loop: its last call precedes its first one.
    """
    moved_bytes = 0
    last_bytes: dict[str, int] = {}
    evicted: list[bool] = []
    for second_pass in (False, True):
        for call in model.calls:
            record = model.tuples[call.position]
            operator = record.operator_tuple.operator
            if second_pass:
                moved_since = moved_bytes - last_bytes.get(operator, moved_bytes)
                evicted.append(record.launches_kernel and moved_since > core_cache_bytes)
            if record.launches_kernel:
                last_bytes[operator] = moved_bytes
                moved_bytes += record.bytes
    return evicted
