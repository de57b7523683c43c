"""The energy of a window: within its interval, or null with the reason and an upper limit."""

import random
from dataclasses import replace

import numpy as np
import pytest
from opcost.energy.sensor import Sensor
from opcost.power.curves import of_counter, of_readings
from opcost.power.estimation import CUT_OFF, NOT_SHOWN, energy_of
from opcost.rows.flags import COUNTER_DISAGREES

from tests.simulated_nvml.recorded import record
from tests.simulated_powercap import Powercap

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1, gain_uncertainty=0.05)
LONG_S = 60.0


def counter(watts, refresh_s=0.1, seconds=10.0, period_s=0.02):
    """Readings of a counter under constant power."""
    times_s = np.arange(0, seconds, period_s)
    return times_s, np.floor(times_s / refresh_s + 1e-9) * refresh_s * watts


def test_constant_power_is_found_however_the_window_lies():
    curve = of_counter(*counter(200.0), refresh_s=0.1)
    for start_s in np.linspace(1, 2, 17):
        found = energy_of(curve, start_s, start_s + 0.73)
        assert found.energy.value == pytest.approx(200 * 0.73, rel=0.03)
        assert found.energy.low <= 200 * 0.73 <= found.energy.high


def test_a_window_that_the_sensor_cannot_see_has_an_upper_limit_alone():
    curve = of_counter(*counter(200.0), refresh_s=0.1)
    found = energy_of(curve, 1.03, 1.06)
    assert found.energy is None
    assert found.reason == (
        "0.03 s are too short for the sensor, which changes every 0.1 s: repeat what the window "
        "holds, and divide"
    )
    assert found.at_most_j == pytest.approx(20)


def test_a_window_before_the_first_or_after_the_last_change_is_unknown():
    curve = of_counter(*counter(200.0), refresh_s=0.1)
    assert energy_of(curve, -1.0, 2.0).reason == NOT_SHOWN
    still = of_counter(np.arange(10.0), np.zeros(10), 0.1)
    assert energy_of(still, 2.0, 3.0).reason == NOT_SHOWN
    times_s = np.arange(0, 10, 0.02)
    stops = of_counter(times_s, 200 * np.floor(np.minimum(times_s, 5) / 0.1 + 1e-9), 0.1)
    assert energy_of(stops, 4.0, 6.0).reason == NOT_SHOWN


@pytest.mark.parametrize("end_s", [9.93, 9.99, 11.0])
def test_a_window_that_outlasts_its_recording_says_so_with_what_the_device_can_have_used(end_s):
    curve = of_counter(*counter(200.0), refresh_s=0.1)
    found = energy_of(curve, 9.0, end_s)
    assert (found.energy, found.reason, found.at_most_j) == (None, CUT_OFF, None)
    assert found.changes == 9
    at_most_j = energy_of(replace(curve, limit_w=350.0), 9.0, end_s).at_most_j
    assert 200 * (end_s - 9) < at_most_j < 20 + 200 * 0.9 + 350 * (end_s - 9.89)


def test_a_burst_in_a_window_is_told_from_one_beside_it():
    """An edge in an interval of mixed power is uncertain; one in a uniform interval is not."""
    times_s = np.arange(0, 10, 0.02)
    joules = np.where(times_s < 5, 60 * times_s, 300 + 500 * (times_s - 5))
    curve = of_counter(times_s, np.floor(times_s / 0.1 + 1e-9) * 0.1 * 0 + joules, 0.02)
    sure, unsure = energy_of(curve, 1.0, 4.0), energy_of(curve, 1.0, 5.01)
    assert sure.energy.relative_half_width < unsure.energy.relative_half_width


def test_readings_that_stay_are_counted_as_often_as_they_are_shown():
    times_s = np.arange(0, 10, 0.02)
    curve = of_readings(times_s, np.full(len(times_s), 100.0), SENSOR)
    found = energy_of(curve, 2.0, 4.0)
    assert found.energy.value == pytest.approx(200)
    rare = np.where(np.arange(len(times_s)) == 400, 101.0, 100.0)
    curve = of_readings(times_s, np.where(times_s < 1, 99.0, rare), SENSOR)
    found = energy_of(curve, 2.0, 4.0)
    assert found.energy.value == pytest.approx(200, rel=0.01)
    assert 15 <= found.changes <= 21


@pytest.mark.parametrize("has_counter", [True, False])
@pytest.mark.parametrize("length_s", [0.5, 2.0, 10.0])
def test_windows_of_a_changing_load_hold_the_truth(card, length_s, has_counter):
    generator = random.Random(1)
    recorded = record(card, SENSOR, generator, LONG_S, counter=has_counter)
    held = told = 0
    for _ in range(40):
        start_s = generator.uniform(6, LONG_S - length_s - 2)
        found, true_j = recorded.window(start_s, start_s + length_s)
        if found.energy is not None:
            told += 1
            held += found.energy.low <= true_j <= found.energy.high
    assert told >= 30
    assert held >= 0.85 * told


def test_a_counter_that_disagrees_with_the_readings_is_flagged(card):
    generator = random.Random(2)
    wrong = record(card, SENSOR, generator, LONG_S, counter_gain=0.9)
    assert wrong.window(10.0, 40.0)[0].flags == (COUNTER_DISAGREES,)
    right = record(card, SENSOR, generator, LONG_S)
    assert right.window(10.0, 40.0)[0].flags == ()


def test_power_above_idle_is_what_an_idle_device_would_not_have_used(card):
    known = Sensor(refresh_s=0.1, averaging_s=0.1, idle_w=60.0)
    recorded = record(card, known, random.Random(3), LONG_S)
    found, _ = recorded.window(10.0, 20.0)
    assert found.above_idle_j == pytest.approx(found.energy.value - 600)
    assert found.mean_power_w == pytest.approx(found.energy.value / 10)


@pytest.mark.parametrize("length_s", [0.05, 0.2, 1.0, 5.0])
def test_windows_of_a_processor_hold_the_truth(length_s, tmp_path):
    """Two packages with memory, whose counters wrap around about every second."""
    generator = random.Random(0)
    powercap = Powercap(tmp_path, 2, True, 100_000_000, generator, seconds=30.0)
    starts_s = [generator.uniform(6, 22) for _ in range(40)]
    edges_s = [edge_s for start_s in starts_s for edge_s in (start_s, start_s + length_s)]
    samples = powercap.record(0.025, edges_s)
    powercap.close()
    found = [powercap.window(samples, start_s, start_s + length_s) for start_s in starts_s]
    held = [window.energy.low <= true_j <= window.energy.high for window, true_j in found]
    assert sum(held) >= 0.9 * len(held)
    for window, true_j in found:
        assert window.energy.value == pytest.approx(true_j, rel=0.05)
