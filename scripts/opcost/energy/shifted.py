"""Mean power under load where iterations are long against the sensor's averaging window.

    pause | load: lead-in, whole iterations | pause, a little longer | load: ...

Such an iteration shows its own ups and downs. If it takes close to a multiple of the refresh period
(or a fraction of it), every reading sees the same part of it, however many there are. So the load
starts anew at several phases of the sensor, one in each of equal parts of the period, and what a
pause has touched is not used.
"""

import math
import random
import statistics

from opcost.energy.refreshes import Blocks, Spread
from opcost.energy.sampling import Refresh
from opcost.energy.window import Bench, Window, begin_window, end_window, mean, narrow, under_load
from opcost.rows.flags import PHASES_NOT_COVERED

_SHORT_ITERATION = 0.05
"""ASSUME power within an iteration swings by half of its mean at most: an iteration of that share
of the averaging window then moves a reading by 0.05 x 0.5 / pi < 1 % (a boxcar's response)."""

_PHASES = 12
_FEWEST_PHASES = 4
_SEGMENT_REFRESHES = 2


def may_alias(bench: Bench) -> bool:
    """Whether readings show parts of an iteration; those of a counter span whole ones."""
    if bench.meter.reads_since_last:
        return False
    return bench.load.iteration_s > _SHORT_ITERATION * bench.sensor.averaging_s


def shifted_windows(bench: Bench) -> Window:
    """Mean power over whole iterations. Raises MeterUnavailable when the meter gives out."""
    sensor, settings = bench.sensor, bench.settings
    iteration_s = bench.load.iteration_s
    measured = math.ceil(_SEGMENT_REFRESHES * sensor.refresh_s / iteration_s)
    lead_in = math.ceil(sensor.settle_s / iteration_s)
    period_s = min(iteration_s, sensor.refresh_s)
    segment_s = (lead_in + measured) * iteration_s + period_s / 2
    affordable = math.floor(settings.power_max_s / segment_s)
    phases = max(2, min(_PHASES, affordable))
    generator = random.Random(settings.seed)
    opening = begin_window(bench, bench.meter.state())
    rounds: list[list[float]] = []
    used: list[Refresh] = []
    paused_s, needed = 0.0, 1
    while len(rounds) < needed:
        means_w = [0.0] * phases
        for part in generator.sample(range(phases), phases):
            phase_s = (part + generator.random()) / phases * period_s
            paused_s += _pause(bench, phase_s, period_s)
            seen = _segment(bench, lead_in, measured)
            means_w[part] = mean(seen)
            used += seen
        rounds.append(means_w)
        if len(rounds) <= 2:
            found, spread = segment_blocks(rounds, segment_s)
            most = max(1, affordable // phases) * phases
            count = found.needed(spread, settings.power_relative_ci, most)
            needed = min(math.ceil(count / phases), 2 if len(rounds) == 1 else count)
    found, _ = segment_blocks(rounds, segment_s)
    window = end_window(bench, opening)
    window.estimate = found.interval(spread)
    window.refreshes = used
    window.segments = len(found.values)
    window.pause_share = paused_s / window.length_s
    window.pace_s = None
    if phases < _FEWEST_PHASES:
        window.flags.append(PHASES_NOT_COVERED)
    window.converged = narrow(window.estimate, settings)
    return window


def segment_blocks(rounds: list[list[float]], segment_s: float) -> tuple[Blocks, Spread]:
    """The means of segments (by round and phase) as blocks, and how one varies at its phase.

    From two rounds on that is the variance within phases, as stratified sampling has it (Cochran,
    Sampling Techniques, 3rd ed., section 5.9). One round knows only the variance between all, which
    is that of the iteration itself, too, and so too large.
    """
    values = tuple(mean_w for means_w in rounds for mean_w in means_w)
    found = Blocks(values, segment_s, group=1, width=0.0, share=0.0)
    if len(rounds) == 1:
        return found, found.spread()
    within = [statistics.variance(of_phase) for of_phase in zip(*rounds, strict=True)]
    return found, Spread(statistics.fmean(within), float(len(values) - len(within)))


def _segment(bench: Bench, lead_in: int, measured: int) -> list[Refresh]:
    """What the sensor showed over `measured` iterations, after those of the lead-in."""
    start_s = bench.now_s()
    bench.sampler.run(lead_in + measured)
    from_s = start_s + bench.sensor.settle_s
    until_s = from_s + measured * bench.load.iteration_s
    return under_load(bench, from_s, until_s)


def _pause(bench: Bench, phase_s: float, period_s: float) -> float:
    """Let the device idle until the clock is at that phase of the period; the seconds it took."""
    pause_s = (phase_s - bench.now_s()) % period_s
    bench.sampler.rest(pause_s)
    return pause_s
