"""The duration of the phases of a training step, on a device whose host sets the pace.

The step records the time when it enters a phase. The shares of the phases are measured in separate
blocks, and applied to the step's time, which was measured without such records.
"""

import itertools
from time import perf_counter  # bound here: a model may replace the one in `time`

from opcost import statistics
from opcost.devices.disturbance import Watch
from opcost.measuring.timing import TimeMeasurement
from opcost.measuring.workload import ModelWorkload
from opcost.models.definition import FORWARD, LOSS, PHASES
from opcost.statistics import Estimate

_LEAST_BLOCKS = 10
_LEAST_COUNTED = 6
"""Fewer values have no interval."""


class PhaseClock:
    """Sums the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._phase, self._since_s = FORWARD, perf_counter()

    def __call__(self, phase: str) -> None:
        """Record that a phase begins."""
        now_s = perf_counter()
        self.seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s


def phase_times(
    workload: ModelWorkload, watch: Watch, timing: TimeMeasurement, least_s: float
) -> dict[str, Estimate]:
    """Seconds of each phase of a step with the measured time; the loss counts as forward.

    Runs blocks for at least `least_s` seconds. Only undisturbed ones count, unless these are too
    few for an interval, as on a busy machine.
    """
    found: list[dict[str, float]] = []
    undisturbed: list[bool] = []
    watch.look()
    start_s = perf_counter()
    while len(found) < _LEAST_BLOCKS or perf_counter() - start_s < least_s:
        clock = PhaseClock()
        with workload.noting(clock):
            workload.run(timing.block_iterations)
        undisturbed.append(watch.look())
        found.append(clock.seconds)
    counted = found
    if sum(undisturbed) >= _LEAST_COUNTED:
        counted = list(itertools.compress(found, undisturbed))
    shares = {
        phase: statistics.median([each[phase] / sum(each.values()) for each in counted])
        for phase in PHASES
    }
    shares[FORWARD] = statistics.weighted_sum([(1, shares[FORWARD]), (1, shares.pop(LOSS))])
    return {
        phase: statistics.product(timing.estimate, share)
        for phase, share in shares.items()
        if share.value > 0
    }
