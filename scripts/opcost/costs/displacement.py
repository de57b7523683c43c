"""Which calls of a model find that a core's own cache has lost their code.

Between two calls of the same operator a model runs others. If these moved more data than the core's
own cache holds, the operator's code, and Python's, has to come from the next cache again.
docs/explanation/context.md has the experiment.
"""

from opcost.tuples.model_tuples import ModelTuples


def displaced_calls(model: ModelTuples, core_cache_bytes: int) -> int:
    """How many of a model's kernel-launching calls find their code displaced.

    The model runs in a loop: what lies before its first call is its last one.
    """
    moved_bytes = displaced = 0
    last_bytes: dict[str, int] = {}
    for second_pass in (False, True):
        for index, _, _ in model.calls:
            record = model.tuples[index]
            if not record.launches_kernel:
                continue
            operator = record.operator_tuple.operator
            if second_pass:
                displaced += moved_bytes - last_bytes[operator] > core_cache_bytes
            last_bytes[operator] = moved_bytes
            moved_bytes += record.bytes
    return displaced
