"""Recordings of a wattmeter and of a sensor under the same load, with noise on both."""

import numpy as np
from numpy.typing import NDArray
from opcost.energy.wattmeter import Power

SHIFT_S = 1000.0


def _load(
    seconds: float, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """True power: switching between idle and load, on a fine grid."""
    times_s = np.arange(0, seconds, 0.01)
    watts, level_w, until_s = np.empty(len(times_s)), 60.0, 0.0
    for place, time_s in enumerate(times_s):
        if time_s >= until_s:
            level_w = 60.0 if level_w > 60 else generator.uniform(150, 400)
            until_s = time_s + generator.uniform(1.0, 6.0)
        watts[place] = level_w
    return times_s, watts


def _averaged(
    times_s: NDArray[np.float64],
    watts: NDArray[np.float64],
    period_s: float,
    noise_w: float,
    generator: np.random.Generator,
    start_s: float = 0.0,
) -> Power:
    """What an instrument with this period shows."""
    edges_s = np.arange(start_s, times_s[-1], period_s)
    joules = np.concatenate([[0.0], np.cumsum(watts[1:] * np.diff(times_s))])
    means = np.diff(np.interp(edges_s, times_s, joules)) / period_s
    return Power(edges_s[1:], means + generator.normal(0, noise_w, len(means)))


def both(
    gain: float = 1.06, offset_w: float = 35.0, seed: int = 0, meter_period_s: float = 1.0
) -> tuple[Power, Power]:
    """Three minutes of a wattmeter, whose clock is ahead, and of a sensor."""
    generator = np.random.default_rng(seed)
    times_s, watts = _load(180.0, generator)
    sensor = _averaged(times_s, watts, 0.1, 2.0, generator)
    meter = _averaged(times_s, offset_w + gain * watts, meter_period_s, 1.0, generator, 3.3)
    return Power(meter.times_s + SHIFT_S, meter.watts), sensor
