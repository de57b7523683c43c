"""The clock of the thread that launches work on a device."""

import itertools
from collections.abc import Callable
from time import perf_counter, thread_time  # bound here: a model may replace those in `time`

_FINE_S = 1e-5
_READINGS = 100


def host_clock(thread_clock: Callable[[], float] = thread_time) -> Callable[[], float]:
    """A clock that stands still while other processes have the thread's core.

    Where the system counts a thread's time in coarse steps, the monotonic clock instead.
    """
    readings = [thread_clock() for _ in range(_READINGS)]
    steps_s = [later - sooner for sooner, later in itertools.pairwise(readings) if later > sooner]
    return thread_clock if steps_s and min(steps_s) < _FINE_S else perf_counter
