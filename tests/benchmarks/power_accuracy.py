"""Energy per call: how far from the truth, how sure does it claim to be, and how long does it take?

Draws simulated cards (tests/simulated_nvml) from ranges, runs whole trials on a virtual clock, and
holds them against the card's true power. Refresh, averaging window and noise are drawn anew for
each trial within the class that a line names; so are gain-free sensor noise, fluctuations of power
itself, lag, rise time, quantum, skipped refreshes, iteration time and the scatter of timings. The
last column is what a trial would take if the scatter were known beforehand: no protocol with these
phases, and an interval as narrow, is quicker.

    PYTHONPATH=scripts python -m tests.benchmarks.power_accuracy [--draws 400]
"""

import argparse
import dataclasses
import math
import random
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.measuring.trial import run_trial
from opcost.study import MeasurementSettings

from tests.quick_measurement import default_measurement
from tests.simulated_nvml.card import UUID, Card, CardDevice, CardLoad, build
from tests.stations import station_of

REFRESHES_S = {"20 ms": (0.018, 0.022), "100 ms": (0.09, 0.11)}
WINDOWS_S = {"25 ms": (0.02, 0.03), "100 ms": (0.08, 0.12), "1 s mean": (1.0, 1.0)}
NOISES = {"0.2-1 %": (0.002, 0.01), "1-3 %": (0.01, 0.03), "3-5 %": (0.03, 0.05)}
_MARGIN = 0.15  # characterisation gives the upper bound of the share that power itself has
_NORMAL = 1.96  # quantile for 95 %, where the variance is known


@dataclasses.dataclass
class Drawn:
    """A card and what runs on it: what the sensor file says, and what only the simulation knows.

    `variance_s` is the variance of the mean of all readings in a second, relative to its square.
    """

    load: CardLoad
    sensor: Sensor
    time_noise: float
    variance_s: float
    generator: random.Random

    def least_s(self, settings: MeasurementSettings) -> float:
        """Seconds of the device that a trial takes, were the variance known beforehand."""
        window_s = self.variance_s * (_NORMAL / settings.power_relative_ci) ** 2
        counter_s = 1.0
        idle_s = 2 * (self.sensor.settle_s + settings.idle_s)
        timing_s = settings.warm_up_s + settings.min_time_s
        window_s = min(settings.power_max_s, max(counter_s, window_s))
        return timing_s + idle_s + self.sensor.settle_s + window_s


def draw(card, refresh, window, noise, seed, fluctuation=(0.001, 0.02), swing=False):
    """One card, and what runs on it."""
    generator = random.Random(seed)
    between = generator.uniform
    watts = between(120, 650)
    sd = math.exp(between(*map(math.log, noise)))
    own = between(0.0, 1.0)  # share of the scatter that is the sensor's own
    refresh_s, window_s = between(*refresh), between(*window)
    fluctuation_s = between(*fluctuation)
    # Averaged over the window, independent steps of power leave sd x sqrt(window / step) of theirs.
    steps = max(1.0, window_s / fluctuation_s)
    rise_s = between(0.0, 0.03)
    card.reset(
        seed=seed,
        refresh_s=refresh_s,
        window_s=window_s,
        phase_s=between(0, refresh_s),
        lag_s=between(0, 0.02),
        rise_s=rise_s,
        idle_w=between(40, 90),
        noise=sd * math.sqrt(own),
        fluctuation_s=fluctuation_s,
        fluctuation_w=sd * math.sqrt((1 - own) * steps) * watts,
        quantum_w=generator.choice([0.001, 0.01, 1.0]),
        skip=generator.choice([0.0, 0.0, 0.03]),
        counter_step_s=refresh_s,
        thermal_w_per_k=0.0 if swing else between(0.0, 0.3),
    )
    iteration_s, profile = math.exp(between(math.log(5e-6), math.log(1e-3))), watts
    if swing:  # half of them in step with the sensor
        iteration_s = math.exp(between(math.log(0.003), math.log(0.3)))
        if generator.random() < 0.5:
            iteration_s = refresh_s * generator.choice([1, 2, 1 / 2, 1 / 3, 1 / 10, 2 / 3])
        share = between(0.2, 0.8)
        profile = [(share, watts * between(1.1, 1.5)), (1 - share, watts * between(0.5, 0.9))]
    load = CardLoad(card, iteration_s, profile)
    sensor = dataclasses.replace(
        NvmlMeter(UUID).assumed,
        refresh_s=refresh_s,
        averaging_s=window_s,
        lag_s=0.02,
        rise_s=5 * rise_s,
        counter_refresh_s=refresh_s,
        correlated_share=min(1.0, 1 - own + _MARGIN),
        source="measured",
    )
    shown_s = own * refresh_s + (1 - own) * max(refresh_s, window_s, fluctuation_s)
    time_noise = math.exp(between(math.log(0.001), math.log(0.03)))
    return Drawn(load, sensor, time_noise, sd**2 * shown_s, generator)


@dataclasses.dataclass
class Result:
    """What came of one trial; `error` of its energy is relative, `averaged` is a mean over 1 s."""

    error: float
    covered: bool
    sound: bool
    flags: tuple[str, ...]
    seconds: float
    least_s: float
    averaged: bool


def one(card, settings, refresh, window, noise, seed, **kind):
    """One trial on a card drawn from these ranges."""
    drawn = draw(card, refresh, window, noise, seed, **kind)
    load, sensor = drawn.load, drawn.sensor
    device = CardDevice(card, load, drawn.time_noise, drawn.generator)
    meter = partial(NvmlMeter, UUID)
    station = station_of(device, settings, meter=meter, sensor=sensor, clock=card)
    trial = run_trial(device, station, settings)
    window_ = trial.power.window
    # Leakage grows as the card warms up: the truth is what it drew in the window, less the
    # fluctuations, which are scatter about the mean that an interval must hold.
    watts = card.steady_power_w(window_.start_s, window_.end_s)
    if window_.segments > 1:
        watts = load.mean_w  # the window has pauses, and the card is drawn without leakage
    true_j = watts * load.iteration_s
    energy = trial.energy
    return Result(
        error=energy.value / true_j - 1,
        covered=energy.low is not None and energy.low <= true_j <= energy.high,
        sound=trial.time.converged and not trial.flags,
        flags=tuple(trial.flags),
        seconds=card.now_s(),
        least_s=drawn.least_s(settings),
        averaged=window[0] == 1.0,
    )


def line(name, results):
    """One line of the table."""
    errors = np.abs([result.error for result in results])
    covered = np.array([result.covered for result in results])
    sound = np.array([result.sound for result in results])
    seconds = np.array([result.seconds for result in results])
    print(
        f"{name:28} {len(results):6} {np.median(errors):8.2%} {errors.max():7.2%} "
        f"{errors[sound].max(initial=0):8.2%} {np.median(seconds):7.1f} "
        f"{np.quantile(seconds, 0.95):6.1f} {covered.mean():7.1%} "
        f"{covered[sound].mean() if sound.any() else math.nan:9.1%} "
        f"{1 - sound.mean():8.1%} {np.median([result.least_s for result in results]):7.1f}",
        flush=True,
    )


def main():
    """Print the table, class by class and over all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=400, help="trials in each class")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    settings = default_measurement()
    with tempfile.TemporaryDirectory() as folder:
        card = Card(build(Path(folder)))
        print(f"{'':28} {'':6} |error of energy|         device seconds   95 % interval holds")
        print(
            f"{'refresh, window, noise':28} {'trials':>6} {'median':>8} {'worst':>7} "
            f"{'unflag.':>8} {'median':>7} {'95 %':>6} {'all':>7} {'unflagged':>9} {'flagged':>8} "
            f"{'least s':>7}"
        )
        everything, seed = [], arguments.seed
        for refresh, refresh_s in REFRESHES_S.items():
            for window, window_s in WINDOWS_S.items():
                for noise, relative in NOISES.items():
                    results = []
                    for _ in range(arguments.draws):
                        seed += 1
                        results.append(one(card, settings, refresh_s, window_s, relative, seed))
                    line(f"{refresh}, {window}, {noise}", results)
                    everything += results
        line("all of these", everything)
        line("without the 1 s means", [r for r in everything if not r.averaged])
        print("\nAnd what the interval's assumptions do not cover, or only just (100 ms, 25 ms):")
        kinds = {
            "power wanders for 0.1-0.5 s": {"fluctuation": (0.1, 0.5)},
            "iterations of 3-300 ms": {"swing": True},
        }
        for name, kind in kinds.items():
            classes = REFRESHES_S["100 ms"], WINDOWS_S["25 ms"], (0.002, 0.02)
            seeds = range(seed + 1, seed + 1 + arguments.draws)
            line(name, [one(card, settings, *classes, s, **kind) for s in seeds])
        flags = [flag for result in everything for flag in result.flags]
        print("\nflags:", {flag: flags.count(flag) for flag in sorted(set(flags))})


if __name__ == "__main__":
    main()
