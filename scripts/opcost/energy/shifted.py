"""Mean power under load when iterations are long compared with the sensor's averaging window.

    pause | load: lead-in, whole iterations | pause, a little longer | load: ...

Readings then resolve the power within an iteration. If its length is close to a multiple or a
fraction of the refresh period, all readings see the same part of it (aliasing). Therefore the load
is restarted at several phases of the sensor, one in each of equal parts of the period, and readings
that contain a pause are discarded.
"""

import math
import random
import statistics

from opcost.energy.refreshes import Blocks, Variance
from opcost.energy.sampling import Refresh
from opcost.energy.window import (
    PowerSetup,
    Window,
    begin_window,
    end_window,
    mean,
    narrow,
    under_load,
)
from opcost.rows.flags import PHASES_NOT_COVERED

_SHORT_ITERATION = 0.05
"""Share of the averaging window. ASSUME power within an iteration varies by at most half of its
mean: such an iteration then moves a reading by 0.05 x 0.5 / pi < 1 % (response of a boxcar)."""

_PHASES = 12
_MIN_PHASES = 4
_SEGMENT_REFRESHES = 2
_NEARLY_WHOLE = 1e-3
"""Fraction of an iteration by which measured times may fall short of whole iterations."""


def may_alias(setup: PowerSetup) -> bool:
    """Whether readings resolve parts of an iteration; counter readings span whole ones."""
    if setup.meter.reads_since_last:
        return False
    return setup.load.iteration_s > _SHORT_ITERATION * setup.sensor.averaging_s


def shifted_windows(setup: PowerSetup) -> Window:
    """Mean power over whole iterations. Raises MeterUnavailable if the meter fails."""
    sensor, settings = setup.sensor, setup.settings
    iteration_s = setup.load.iteration_s
    measured = math.ceil(_SEGMENT_REFRESHES * sensor.refresh_s / iteration_s)
    lead_in = math.ceil(sensor.settle_s / iteration_s)
    period_s = min(iteration_s, sensor.refresh_s)
    segment_s = (lead_in + measured) * iteration_s + period_s / 2
    affordable = math.floor(settings.power_max_s / segment_s)
    phases = max(2, min(_PHASES, affordable))
    generator = random.Random(settings.seed)
    opening = begin_window(setup, setup.meter.state())
    rounds: list[list[float]] = []
    used: list[Refresh] = []
    paces_s: list[float | None] = []
    paused_s, needed = 0.0, 1
    while len(rounds) < needed:
        means_w = [0.0] * phases
        for part in generator.sample(range(phases), phases):
            if known_s := [pace_s for pace_s in paces_s if pace_s is not None]:
                period_s = min(statistics.fmean(known_s), sensor.refresh_s)
            phase_s = (part + generator.random()) / phases * period_s
            paused_s += _pause(setup, phase_s, period_s)
            seen, pace_s = _segment(setup, lead_in, measured)
            means_w[part] = mean(seen)
            used += seen
            paces_s.append(pace_s)
        rounds.append(means_w)
        if len(rounds) <= 2:
            found, variance = segment_blocks(rounds, segment_s)
            most = max(1, affordable // phases) * phases
            count = found.needed(variance, settings.power_relative_ci, most)
            needed = min(math.ceil(count / phases), 2 if len(rounds) == 1 else count)
    found, _ = segment_blocks(rounds, segment_s)
    window = end_window(setup, opening)
    window.estimate = found.interval(variance)
    window.refreshes = used
    window.segments = len(found.values)
    window.pause_share = paused_s / window.length_s
    known_s = [pace_s for pace_s in paces_s if pace_s is not None]
    window.pace_s = statistics.harmonic_mean(known_s) if len(known_s) == len(paces_s) else None
    if phases < _MIN_PHASES:
        window.flags.append(PHASES_NOT_COVERED)
    window.converged = narrow(window.estimate, settings)
    return window


def segment_blocks(rounds: list[list[float]], segment_s: float) -> tuple[Blocks, Variance]:
    """The mean powers of segments (`rounds[round][phase]`) as blocks, and the variance of one.

    With two or more rounds, that is the variance within phases, as in stratified sampling (Cochran,
    Sampling Techniques, 3rd ed., section 5.9). With one round, it is the variance between phases,
    which contains the variation within an iteration and is too large.
    """
    values = tuple(mean_w for means_w in rounds for mean_w in means_w)
    found = Blocks(values, segment_s, group=1, width=0.0, share=0.0)
    if len(rounds) == 1:
        return found, found.variance()
    within = [statistics.variance(of_phase) for of_phase in zip(*rounds, strict=True)]
    return found, Variance(statistics.fmean(within), float(len(values) - len(within)))


def _segment(setup: PowerSetup, lead_in: int, measured: int) -> tuple[list[Refresh], float | None]:
    """The refreshes over whole iterations after the lead-in, and the seconds of each iteration:
    None if there are too few, which are then assumed to last as timed.
    """
    sampler = setup.sampler
    start_s = setup.now_s()
    sampler.run(lead_in + measured)
    end_s = setup.now_s()
    from_s = start_s + setup.sensor.settle_s
    pace_s = sampler.pace_s(from_s, end_s) or sampler.pace_s(start_s, end_s)
    iteration_s = pace_s or setup.load.iteration_s
    whole = max(1, math.floor((end_s - from_s) / iteration_s + _NEARLY_WHOLE))
    return under_load(setup, from_s, from_s + whole * iteration_s), pace_s


def _pause(setup: PowerSetup, phase_s: float, period_s: float) -> float:
    """Let the device idle until a phase of the period. Returns the seconds of the pause."""
    pause_s = (phase_s - setup.now_s()) % period_s
    setup.sampler.rest(pause_s)
    return pause_s
