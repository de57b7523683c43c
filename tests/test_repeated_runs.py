"""The mean energy of several runs: `opcost measure --repeat`."""

import math
import random
import statistics

import numpy as np
import pytest
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.power.device_energy import DeviceEnergy
from opcost.power.estimation import REPEAT
from opcost.power.recording import SAMPLE
from opcost.power.window_text import repeated
from opcost.statistics import Estimate

from tests.simulated_nvml.card import UUID
from tests.simulated_nvml.recorded import Recorded

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, gain_uncertainty=0.05)


def mean_of(*energies):
    runs = [(1.0, {"cpu": DeviceEnergy(energy, None, 1.0)}) for energy in energies]
    return repeated(runs)[1]["cpu"].energy


def test_the_interval_of_a_mean_is_as_wide_as_those_of_its_runs_and_as_their_differences_say():
    alike = mean_of(Estimate(100.0, 90.0, 115.0), Estimate(102.0, 92.0, 117.0))
    assert (alike.value, alike.low, alike.high) == (101.0, pytest.approx(88.3, abs=0.1), 116.0)
    apart = mean_of(Estimate(80.0, 79.0, 81.0), Estimate(120.0, 119.0, 121.0))
    assert apart.low < 0
    assert apart.high > 200


def test_runs_without_intervals_have_that_of_their_differences():
    found = mean_of(*(Estimate(joules, None, None) for joules in (99.0, 100.0, 101.0)))
    assert found.low == pytest.approx(97.5, abs=0.1)


def mean_run(*runs):
    return repeated([(each.time_s, {"cpu": each}) for each in runs])[1]["cpu"]


def run(energy, time_s, reason=None, **more):
    return DeviceEnergy(energy, reason, time_s, **more)


def test_what_is_said_of_a_mean_without_energy_is_that_of_all_runs():
    found = mean_run(
        run(None, 0.04, f"0.04 s are too short: {REPEAT}", at_most_j=6.0, changes=1, share=0.2),
        run(None, 0.06, f"0.06 s are too short: {REPEAT}", at_most_j=12.0, changes=0, share=0.7),
    )
    assert found.reason == (
        "2 of 2 runs have no energy; the first of them: 0.04 s are too short: repeat it within a "
        "run (sh -c 'for i in $(seq 100); do ...; done'), and divide; --repeat measures each run "
        "by itself"
    )
    assert (found.energy, found.time_s, found.at_most_j, found.changes) == (None, 0.05, 9.0, 1)
    assert found.share == pytest.approx(0.5)


def test_a_mean_of_which_some_runs_have_no_energy_has_none():
    known = run(Estimate(10.0, 9.0, 11.0), 1.0, at_most_j=12.0, changes=10)
    found = mean_run(known, known, run(None, 1.0, "the sensor shows no power"))
    assert found.reason == (
        "1 of 3 runs have no energy; the first of them: the sensor shows no power"
    )
    assert (found.energy, found.at_most_j, found.changes) == (None, None, 20)
    assert mean_run(known, known).at_most_j == 12.0


def test_a_reason_that_all_runs_have_is_that_of_the_mean():
    found = mean_run(*[DeviceEnergy.without("no energy sensor")] * 3)
    assert (found.reason, found.time_s) == ("no energy sensor", 0.0)


@pytest.mark.parametrize("has_counter", [True, False])
def test_means_of_runs_that_begin_and_end_with_their_load_hold_the_truth(card, has_counter):
    """What their edges miss is the same in each run, so the runs differ less than they are off."""
    generator = random.Random(7)
    told = held = 0
    for _ in range(8):
        runs, true_j = five_runs(card, generator, has_counter)
        energy = repeated(runs)[1]["card"].energy
        if energy is not None:
            told += 1
            held += energy.low <= true_j <= energy.high
    assert told >= 6
    assert held == told


def five_runs(card, generator, has_counter):
    """Runs of a second, with what the card has used in them in the mean."""
    card.reset(noise=0.005, seed=generator.randrange(10**6), phase_s=generator.uniform(0, 0.1))
    meter, rows, windows = NvmlMeter(UUID), [], []

    def read():
        counted_j = meter.counter_j() if has_counter else math.nan
        unknown = [math.nan] * (len(SAMPLE.names) - 4)
        rows.append((card.now_s(), 0, meter.power_w(), counted_j, *unknown))

    def read_until(end_s):
        while card.now_s() < end_s:
            card.sleep(min(end_s - card.now_s(), 0.025 * generator.uniform(0.9, 1.3)))
            read()

    read_until(3.0)
    for _ in range(5):
        start_s = card.now_s()
        card.run(1.0, 400.0)
        read_until(start_s + 1.0)
        windows.append((start_s, card.now_s()))
        read_until(card.now_s() + 0.5)
    read_until(card.now_s() + 1.0)
    recorded = Recorded(card, SENSOR, np.array(rows, SAMPLE))
    found = [recorded.window(*window) for window in windows]
    runs = [
        (end_s - start_s, {"card": used})
        for (start_s, end_s), (used, _) in zip(windows, found, strict=True)
    ]
    return runs, statistics.fmean(true_j for _, true_j in found)
