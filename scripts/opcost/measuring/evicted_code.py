"""What a call takes longer after other data evicted its code from the private cache.

The benchmark of an operator is a loop, which finds its code in that cache, unless the operator
moves as much data itself. In a model, it may have been evicted since the last call
(costs/evicted_code.py). Generated code takes up to ten times as long to fetch as that of a short
loop, so each operator is measured. Its input was written just before, by another operator, so it is
in the cache all the same.
"""

from collections.abc import Sequence
from functools import partial
from time import perf_counter

import torch

from opcost.devices.device import Device, nothing
from opcost.measuring.timing import Workload

_CORE_CACHES = 4
"""Data of so many private caches evicts all of the code."""
_LEAST_SAMPLES, _MOST_SAMPLES = 6, 12
_LONG_S = 0.05


def evicted_code_times_s(
    workload: Workload, recent: Sequence[torch.Tensor], device: Device, call_s: float
) -> list[float] | None:
    """By how many seconds single calls took longer after moving data than right after each other.

    After the data were moved, the `recent` arguments are written again, with the same values, as
    the operator before writes them in a model; of large ones the end, which the cache would keep.
    That allocates no memory of their size: it would be that of the next result, and its use would
    evict the arguments. Differences may be negative. Empty for a call that takes so long, `call_s`,
    that its code hardly matters. None on a device whose host runs ahead, or whose private cache is
    unknown.
    """
    core_bytes = device.core_cache_bytes * torch.get_num_threads()  # each thread moves its share
    if not device.kind.host_sets_pace or not core_bytes:
        return None
    if call_s * _LEAST_SAMPLES > _LONG_S:
        return []
    evicting_bytes = _CORE_CACHES * core_bytes
    moved = torch.zeros(2, evicting_bytes // 2, dtype=torch.uint8)
    written = [_bytes_of(each)[-evicting_bytes:] for each in recent]
    call = partial(workload.run, 1)
    samples: list[float] = []
    start_s = perf_counter()
    while len(samples) < _LEAST_SAMPLES or (
        len(samples) < _MOST_SAMPLES and perf_counter() - start_s < _LONG_S
    ):
        call()
        in_cache_s = _timed_s(call, device)
        moved[0].copy_(moved[1])
        for each in written:
            each.bitwise_or_(0)
        samples.append(_timed_s(call, device) - in_cache_s)
    return samples


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, once, however often it is repeated."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _timed_s(call: partial[None], device: Device) -> float:
    device.time(nothing)  # the clock's own code was evicted, too
    return device.time(call).host_s
