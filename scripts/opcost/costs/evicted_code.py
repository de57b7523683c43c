"""How much of their code the calls of a model find evicted from the private cache.

Between two calls of an operator, a model runs other operators. The data that these move evict the
code of the operator and of Python, which has to be fetched from the next cache. The benchmark of an
operator that moves much data itself finds its code as evicted, and contains that part.
docs/explanation/context.md describes the experiments.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from opcost import statistics
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

# ASSUME that the share depends on the data alone, as it did on average over a normalisation's calls
# in place, in 19 models on one processor.
_MOVED, _EVICTED = np.log([0.25, 0.5, 1, 2, 4]), (0.0, 0.12, 0.4, 0.7, 1.0)
"""Logarithms of the data moved since the last call, in private caches, and the share of the code
that they evict."""


class Evicted(NamedTuple):
    """The shares of a call's code that were evicted: in the model, and in its own benchmark."""

    here: float
    alone: float

    @property
    def more(self) -> float:
        """What the benchmark does not contain, as a share of all of the code."""
        return max(0.0, self.here - self.alone)

    @property
    def more_of_found(self) -> float:
        """The same as a share of the code that the benchmark finds in the cache."""
        return self.more / (1 - self.alone) if self.alone < 1 else 0.0


def time_of_code(samples_s: Sequence[float | None] | None) -> Estimate | None:
    """Seconds that a call takes longer when all of the code that its benchmark finds was evicted.

    Less than nothing is noise. No samples mean next to nothing; it is unknown without a list, and
    from too few samples for an interval.
    """
    if samples_s == []:
        return Estimate(0.0, 0.0, 0.0)
    known = [each for each in samples_s or () if each is not None]
    found = statistics.median(known) if known else None
    if found is None or found.low is None or found.high is None:
        return None
    return Estimate(max(0.0, found.value), max(0.0, found.low), max(0.0, found.high))


def evicted_code(model: ModelTuples, core_cache_bytes: int) -> list[Evicted]:
    """How much of the code of each of a model's calls was evicted; nothing of a view.

    The model runs in a loop: its last call precedes its first one.
    """
    moved_bytes = 0
    last_bytes: dict[str, int] = {}
    found: list[Evicted] = []
    for second_pass in (False, True):
        for call in model.calls:
            record = model.tuples[call.position]
            operator = record.operator_tuple.operator
            if second_pass and not record.launches_kernel:
                found.append(Evicted(0.0, 0.0))
            elif second_pass:
                moved_since = moved_bytes - last_bytes.get(operator, moved_bytes)
                here, alone = (
                    _evicted(moved, core_cache_bytes) for moved in (moved_since, record.bytes)
                )
                found.append(Evicted(here, alone))
            if record.launches_kernel:
                last_bytes[operator] = moved_bytes
                moved_bytes += record.bytes
    return found


def _evicted(moved_bytes: int, core_cache_bytes: int) -> float:
    """The share of the code that is evicted, between those known linear in the logarithm."""
    if not moved_bytes:
        return 0.0
    moved = math.log(moved_bytes / core_cache_bytes) if core_cache_bytes else math.inf
    return float(np.interp(moved, _MOVED, _EVICTED))
