"""A model on a device whose host runs ahead is a race of two clocks.

The host launches the model's calls in order. The device runs a kernel when it has been launched
and the one before it has ended; if it is launched later, the device waits for its host. The host
goes on meanwhile, until the device's queue is full. A call that waits for the device holds its host
up until its kernel has ended.

The race is that of a loop over the model without pauses, once its iterations take equally long.
"""

# ASSUME that a call takes one place in the queue, and that a kernel can begin when it is launched:
# the latency in between shifts both clocks, and counts only where the host waits for the device.

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

QUEUE = 1023
"""Launches that the queue of an NVIDIA GPU holds."""

_LEAST, _MOST = 3, 12
"""Iterations that are replayed, at least and at most, until two take equally long."""

Seconds: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True)
class Clocks:
    """Seconds that the host and the device need for each call, in order.

    The first axis of an array is the call, the second one the sample. The device needs none for a
    call that does not launch a kernel.
    """

    host_s: Seconds
    device_s: Seconds
    launches: Sequence[bool]
    waits: Sequence[bool]


@dataclass(frozen=True)
class Race:
    """An iteration in the steady state; the first axis of `idle_s` is the call.

    `period_s` is the time of the iteration, and `idle_s` for how long the device waited for the
    launch of each call.
    """

    period_s: Seconds
    idle_s: Seconds


def replay(clocks: Clocks, queue: int = QUEUE) -> Race:
    """Race the clocks through iterations until two take equally long, and return the last one."""
    host, device = (np.zeros(clocks.host_s.shape[1]) for _ in range(2))
    idle_s = np.zeros_like(clocks.host_s)
    ends: deque[Seconds] = deque(maxlen=queue)
    period_s = device
    for iteration in range(_MOST):
        began, before_s = device, period_s
        for call, (launches, waits) in enumerate(zip(clocks.launches, clocks.waits, strict=True)):
            host = host + clocks.host_s[call]
            if not launches:
                continue
            if len(ends) == queue:
                host = np.maximum(host, ends[0])
            start = np.maximum(host, device)
            np.subtract(start, device, out=idle_s[call])
            device = start + clocks.device_s[call]
            ends.append(device)
            if waits:
                host = device
        period_s = device - began
        if iteration + 1 >= _LEAST and np.allclose(period_s, before_s, rtol=1e-6, atol=0):
            break
    return Race(period_s, idle_s)
