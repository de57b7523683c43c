"""How much of their code the calls of a model find evicted from the private cache.

Between two calls of an operator, a model runs other operators. The data that these move evict the
code of the operator and of Python, which has to be fetched from the next cache. The benchmark of an
operator that moves much data itself finds its code as evicted, and contains that part.
docs/explanation/context.md describes the experiments.
"""

import math

import numpy as np

from opcost.tuples.model_tuples import ModelTuples

# ASSUME that the share depends on the data alone, as it did on average over a normalisation's calls
# in place, in 19 models on one processor.
_MOVED, _EVICTED = np.log([0.25, 0.5, 1, 2, 4]), (0.0, 0.12, 0.4, 0.7, 1.0)
"""Logarithms of the data moved since the last call, in private caches, and the share of the code
that they evict."""


def evicted_code(model: ModelTuples, core_cache_bytes: int) -> list[float]:
    """The share of the code of each of a model's calls that was evicted, beyond what its benchmark
    contains; 0 of a view.

    The model runs in a loop: its last call precedes its first one.
    """
    moved_bytes = 0
    last_bytes: dict[str, int] = {}
    shares: list[float] = []
    for second_pass in (False, True):
        for call in model.calls:
            record = model.tuples[call.position]
            operator = record.operator_tuple.operator
            if second_pass:
                moved_since = moved_bytes - last_bytes.get(operator, moved_bytes)
                here, alone = (
                    _evicted(moved, core_cache_bytes) for moved in (moved_since, record.bytes)
                )
                shares.append(max(0.0, here - alone) if record.launches_kernel else 0.0)
            if record.launches_kernel:
                last_bytes[operator] = moved_bytes
                moved_bytes += record.bytes
    return shares


def _evicted(moved_bytes: int, core_cache_bytes: int) -> float:
    """The share of the code that is evicted, between those known linear in the logarithm."""
    if not moved_bytes:
        return 0.0
    moved = math.log(moved_bytes / core_cache_bytes) if core_cache_bytes else math.inf
    return float(np.interp(moved, _MOVED, _EVICTED))
