"""Intervals and flags of windows by sensors that are slower, or blur more, than most."""

import math
import random

import numpy as np
import pytest
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.power.curves import of_counter
from opcost.power.recording import SAMPLE
from opcost.rows.flags import COUNTER_DISAGREES

from tests import simulated_powercap
from tests.benchmarks.power_windows import draw, loop
from tests.simulated_nvml.card import UUID
from tests.simulated_nvml.recorded import Recorded, record
from tests.simulated_powercap import Powercap


@pytest.mark.parametrize("update_s", [0.01, 0.05, 0.1])
def test_windows_of_a_processor_whose_counter_is_slow_hold_the_truth(
    update_s, tmp_path, monkeypatch
):
    monkeypatch.setattr(simulated_powercap, "UPDATE_S", update_s)
    generator = random.Random(0)
    powercap = Powercap(tmp_path, 1, True, 262_143_328_850, generator, seconds=60.0)
    starts_s = [generator.uniform(6, 57) for _ in range(20)]
    edges_s = [edge_s for start_s in starts_s for edge_s in (start_s, start_s + 1.0)]
    samples = powercap.record(0.025, edges_s)
    powercap.close()
    for start_s in starts_s:
        found, true_j = powercap.window(samples, start_s, start_s + 1.0)
        assert found.energy is None or found.energy.low <= true_j <= found.energy.high


def test_a_counter_is_as_fast_as_assumed_unless_it_stays_the_same_for_longer():
    times_s = np.arange(0, 2, 0.025)
    fast = of_counter(times_s, times_s * 100, 0.001)
    assert fast.slack_s.max() == pytest.approx(0.0005)
    slow = of_counter(times_s, np.floor(times_s * 10 + 1e-6) * 10, 0.001)
    assert slow.slack_s.min() == pytest.approx(0.0125)


@pytest.mark.parametrize("length_s", [1.5, 5.0])
def test_readings_that_average_over_a_second_hold_a_load_that_is_the_window(card, length_s):
    """What is blurred at both edges is missed in the same sense."""
    generator = random.Random(2)
    for _ in range(8):
        card.reset(
            average_window_s=1.0,
            fail_instant=3,
            fail_counter=3,
            noise=0.005,
            seed=generator.randrange(10**6),
            phase_s=generator.uniform(0, 0.1),
        )
        meter, rows = NvmlMeter(UUID), []
        start_s = 6.0 + generator.uniform(0, 0.2)
        for edge_s in (start_s, start_s + length_s, start_s + length_s + 1.5):
            while card.now_s() < edge_s:
                card.sleep(min(edge_s - card.now_s(), 0.025 * generator.uniform(0.9, 1.3)))
                unknown = [math.nan] * (len(SAMPLE.names) - 3)
                rows.append((card.now_s(), 0, meter.power_w(), *unknown))
            if edge_s == start_s:
                card.run(length_s, 400.0)
        recorded = Recorded(card, meter.assumed, np.array(rows, SAMPLE))
        found, true_j = recorded.window(start_s, start_s + length_s)
        assert found.energy is None or found.energy.low <= true_j <= found.energy.high


def test_a_counter_that_is_right_does_not_disagree(card):
    sensor = Sensor(refresh_s=0.1, averaging_s=0.1, gain_uncertainty=0.05)
    fast = {"refresh_s": 0.02, "window_s": 0.02, "counter_step_s": 0.02, "noise": 0.005}
    generator = random.Random(5)
    recorded = record(card, sensor, generator, 60.0, **fast)
    for _ in range(60):
        start_s = generator.uniform(6, 55)
        found, _ = recorded.window(start_s, start_s + 0.6)
        assert COUNTER_DISAGREES not in found.flags


SENSORS = {
    "counter": (Sensor(0.1, 0.1, counter_refresh_s=0.1), True),
    "readings": (Sensor(0.1, 0.1), False),
    "readings over a second": (Sensor(0.1, 1.0), False),
}


@pytest.mark.parametrize("pause_s", [0.002, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("kind", SENSORS)
def test_a_loop_whose_pauses_the_sensor_does_not_show_has_intervals_that_hold(card, kind, pause_s):
    """The edges of its windows say that there are pauses, and when."""
    sensor, has_counter = SENSORS[kind]
    for seed in range(3):
        load, windows = loop(1.0, pause_s, seed)
        recorded = draw(card, sensor, has_counter, seed, load=load)
        edges_s = [edge_s for window in windows for edge_s in window]
        for window in windows:
            found, true_j = recorded.window(*window, edges_s)
            assert found.energy is None or found.energy.low <= true_j <= found.energy.high


def test_without_other_windows_nearby_a_window_is_as_it_was(card):
    sensor, has_counter = SENSORS["readings"]
    recorded = draw(card, sensor, has_counter, seed=3)
    alone, _ = recorded.window(20.0, 22.0)
    assert recorded.window(20.0, 22.0, [12.0, 14.0, 20.0, 22.0, 30.0, 31.0])[0] == alone


def test_hardly_anything_can_happen_between_windows_that_follow_at_once(card):
    sensor, has_counter = SENSORS["counter"]
    recorded = draw(card, sensor, has_counter, seed=4)
    alone, _ = recorded.window(20.0, 22.0)
    edges_s = [18.0, 19.9999, 20.0, 22.0, 22.0001, 24.0]
    followed, _ = recorded.window(20.0, 22.0, edges_s)
    assert followed.energy.relative_half_width < alone.energy.relative_half_width + 0.001


@pytest.mark.parametrize("off", [0.0, 0.03, 0.2])
def test_readings_of_a_part_of_the_time_do_not_tell_of_a_loop_in_step_with_them(card, off):
    """Each of them may be of the same part of each turn."""
    sensor, generator = Sensor(0.1, 0.025), random.Random(7)
    load, edges_s, epochs, now_s = [(2.0, 60.0)], [], [], 2.0
    while now_s < 19.0:
        turn_s = 0.1 * generator.uniform(1 - off, 1 + off)
        load += [(turn_s / 2, 500.0), (turn_s / 2, 60.0)]
        edges_s += [now_s, now_s + turn_s / 2]
        now_s += turn_s
    for first_s in (7.0, 9.5, 12.0):
        epochs.append((first_s, first_s + 2.5))
        edges_s += epochs[-1]
    recorded = draw(card, sensor, False, seed=8, load=load)
    for epoch in epochs:
        found, true_j = recorded.window(*epoch, edges_s)
        assert found.energy is None or found.energy.low <= true_j <= found.energy.high
