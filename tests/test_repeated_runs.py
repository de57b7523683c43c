"""The mean energy of several runs: `opcost measure --repeat`."""

import math
import random
import statistics

import numpy as np
import pytest
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.power.energy import DeviceEnergy, mean_of_runs
from opcost.power.recording import SAMPLE
from opcost.statistics import Estimate

from tests.simulated_nvml.card import UUID
from tests.simulated_nvml.recorded import Recorded

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, gain_uncertainty=0.05)


def mean_of(*energies):
    return mean_of_runs([DeviceEnergy(energy, None, 1.0) for energy in energies]).energy


def test_the_interval_of_a_mean_is_as_wide_as_those_of_its_runs_and_as_their_differences_say():
    alike = mean_of(Estimate(100.0, 90.0, 115.0), Estimate(102.0, 92.0, 117.0))
    assert (alike.value, alike.low, alike.high) == (101.0, pytest.approx(88.3, abs=0.1), 116.0)
    apart = mean_of(Estimate(80.0, 79.0, 81.0), Estimate(120.0, 119.0, 121.0))
    assert apart.low < 0
    assert apart.high > 200


def test_runs_without_intervals_have_that_of_their_differences():
    found = mean_of(*(Estimate(joules, None, None) for joules in (99.0, 100.0, 101.0)))
    assert found.low == pytest.approx(97.5, abs=0.1)


def run(energy, time_s, reason=None, **more):
    return DeviceEnergy(energy, reason, time_s, **more)


def test_what_is_said_of_a_mean_without_energy_is_that_of_all_runs():
    found = mean_of_runs(
        [
            run(None, 0.04, "0.04 s are too short", changes=1, share=0.2),
            run(None, 0.06, "0.06 s are too short", changes=0, share=0.7),
        ]
    )
    reason = "2 of 2 runs have no energy; the first of them: 0.04 s are too short"
    assert (found.energy, found.reason, found.time_s, found.changes) == (None, reason, 0.05, 1)
    assert found.share == pytest.approx(0.5)


def test_a_mean_of_which_some_runs_have_no_energy_has_none():
    known = run(Estimate(10.0, 9.0, 11.0), 1.0)
    found = mean_of_runs([known, known, run(None, 1.0, "the sensor shows no power")])
    reason = "1 of 3 runs have no energy; the first of them: the sensor shows no power"
    assert (found.energy, found.reason) == (None, reason)


def test_a_reason_that_all_runs_have_is_that_of_the_mean():
    found = mean_of_runs([DeviceEnergy(None, "no energy sensor")] * 3)
    assert (found.reason, found.time_s) == ("no energy sensor", None)


def test_the_share_of_several_runs_is_that_of_all_of_them():
    runs = [run(Estimate(joules, None, None), 1.0, share=n) for joules, n in ((10, 0.9), (30, 0.1))]
    assert mean_of_runs(runs).share == pytest.approx(0.3)


@pytest.mark.parametrize("has_counter", [True, False])
def test_means_of_runs_that_begin_and_end_with_their_load_hold_the_truth(card, has_counter):
    """What their edges miss is the same in each run, so the runs differ less than they are off."""
    generator = random.Random(7)
    told = held = 0
    for _ in range(8):
        runs, true_j = five_runs(card, generator, has_counter)
        energy = mean_of_runs(runs).energy
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
    return [used for used, _ in found], statistics.fmean(true_j for _, true_j in found)
