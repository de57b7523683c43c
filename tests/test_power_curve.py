"""The energy of a window: within its interval, or null with the reason."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.energy.sensor import Sensor
from opcost.power.curve import CUT_OFF, NOT_SHOWN, of_counter, of_readings
from opcost.power.readings import Readings
from opcost.power.recording import SAMPLE
from opcost.rows.flags import COUNTER_DISAGREES

from tests import simulated_powercap
from tests.benchmarks.power_windows import KINDS, draw, loop
from tests.simulated_nvml.recorded import record
from tests.simulated_powercap import Powercap

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1, gain_uncertainty=0.05)
SOURCE = {"name": "cuda:0", "sensor": vars(SENSOR), "reads_since_last": False}
SHORTER = "give a shorter period, or leave the sampler a core"
LONG_S = 60.0


def counted(times_s, watts=200.0, refresh_s=0.1):
    """A counter under constant power."""
    return np.floor(times_s / refresh_s + 1e-9) * refresh_s * watts


def noisy(times_s, watts=200.0):
    """Readings that change with each refresh of the sensor."""
    refreshes = np.floor(times_s / 0.1).astype(int)
    return watts + np.random.default_rng(0).normal(0, 2, refreshes.max() + 1)[refreshes]


def samples(times_s, power_w=np.nan, counter_j=np.nan, limit_w=np.nan):
    found = np.zeros(len(times_s), SAMPLE)
    for name in SAMPLE.names[2:]:
        found[name] = np.nan
    found["time_s"], found["power_w"], found["counter_j"] = times_s, power_w, counter_j
    found["power_limit_w"] = limit_w
    return found


def holds(found, true_j):
    return found.energy is None or found.energy.low <= true_j <= found.energy.high


def test_constant_power_is_found_however_the_window_lies():
    times_s = np.arange(0, 10, 0.02)
    curve = of_counter(times_s, counted(times_s), 0.1)
    for start_s in np.linspace(1, 2, 17):
        found = curve.energy(start_s, start_s + 0.73)
        assert found.energy.value == pytest.approx(200 * 0.73, rel=0.03)
        assert holds(found, 200 * 0.73)


def test_a_window_that_the_sensor_cannot_see_is_refused_with_what_to_do():
    times_s = np.arange(0, 10, 0.02)
    found = of_counter(times_s, counted(times_s), 0.1).energy(1.03, 1.06)
    assert found.energy is None
    assert found.reason == (
        "0.03 s are too short for the sensor, which changes every 0.1 s: repeat what the window "
        "holds, and divide"
    )


def test_a_window_before_the_first_or_after_the_last_change_is_unknown():
    times_s = np.arange(0, 10, 0.02)
    curve = of_counter(times_s, counted(times_s), 0.1)
    assert curve.energy(-1.0, 2.0).reason == NOT_SHOWN
    for end_s in (9.93, 9.99, 11.0):
        assert curve.energy(9.0, end_s).reason == CUT_OFF
    stops = of_counter(times_s, counted(np.minimum(times_s, 5)), 0.1)
    assert stops.energy(4.0, 6.0).reason == NOT_SHOWN
    assert of_counter(times_s, np.zeros(len(times_s)), 0.1) is None


def test_an_edge_among_changes_of_power_is_less_certain_than_others():
    times_s = np.arange(0, 10, 0.02)
    curve = of_counter(times_s, np.where(times_s < 5, 60, 500) * (times_s - 5) + 300, 0.02)
    sure, unsure = curve.energy(1.0, 4.0), curve.energy(1.0, 5.01)
    assert sure.energy.relative_half_width < unsure.energy.relative_half_width


def test_readings_that_stay_are_counted_as_often_as_they_are_shown():
    times_s = np.arange(0, 10, 0.02)
    rare = np.where(np.arange(len(times_s)) == 400, 101.0, 100.0)
    for watts in (np.full(len(times_s), 100.0), np.where(times_s < 1, 99.0, rare)):
        found = of_readings(times_s, watts, SENSOR).energy(2.0, 4.0)
        assert found.energy.value == pytest.approx(200, rel=0.01)
        assert found.changes >= 15


def test_readings_of_whole_watts_are_known_to_half_a_watt():
    times_s = np.arange(0, 20, 0.025)
    for watts, half_w in ((60.0, 0.5), (60.3, 0.0)):
        found = of_readings(times_s, np.full(len(times_s), watts), SENSOR).energy(5.0, 15.0)
        assert found.energy.high - 10 * watts == pytest.approx(10 * half_w)


def test_a_sensor_that_shows_nothing_gives_no_zero():
    times_s = np.arange(0, 20, 0.025)
    found = of_readings(times_s, np.zeros(len(times_s)), SENSOR).energy(5.0, 15.0)
    assert (found.energy, found.reason) == (None, "the sensor shows no power")


@pytest.mark.parametrize("has_counter", [True, False])
@pytest.mark.parametrize("length_s", [0.5, 2.0, 10.0])
def test_windows_of_a_changing_load_hold_the_truth(card, length_s, has_counter):
    generator = random.Random(1)
    recorded = record(card, SENSOR, generator, LONG_S, counter=has_counter)
    held = told = 0
    for _ in range(40):
        start_s = generator.uniform(6, LONG_S - length_s - 2)
        found, true_j = recorded.window(start_s, start_s + length_s)
        told += found.energy is not None
        held += found.energy is not None and holds(found, true_j)
    assert told >= 30
    assert held >= 0.93 * told


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_whose_pauses_the_sensor_may_not_show_has_intervals_that_hold(card, kind):
    sensor, has_counter = KINDS[kind]
    held = []
    for pause_s in (0.002, 0.02, 0.1, 0.3):
        for seed in range(2):
            load, windows = loop(1.0, pause_s, seed)
            recorded = draw(card, sensor, has_counter, seed, load=load)
            held += [holds(*recorded.window(*window)) for window in windows]
    assert sum(held) >= 0.93 * len(held)


@pytest.mark.parametrize("update_s", [0.001, 0.01, 0.05, 0.1])
@pytest.mark.parametrize("length_s", [0.2, 1.0])
def test_windows_of_a_processor_hold_the_truth(length_s, update_s, tmp_path, monkeypatch):
    """Two packages with memory, whose counters wrap around about every second."""
    monkeypatch.setattr(simulated_powercap, "UPDATE_S", update_s)
    generator = random.Random(0)
    powercap = Powercap(tmp_path, 2, True, 100_000_000, generator, seconds=30.0)
    starts_s = [generator.uniform(6, 22) for _ in range(30)]
    edges_s = [edge_s for start_s in starts_s for edge_s in (start_s, start_s + length_s)]
    recorded = powercap.record(0.025, edges_s)
    powercap.close()
    found = [powercap.window(recorded, start_s, start_s + length_s) for start_s in starts_s]
    assert sum(holds(*each) for each in found) >= 0.93 * len(found)
    if update_s == 0.001:
        for window, true_j in found:
            assert window.energy.value == pytest.approx(true_j, rel=0.05)


class TestFaults:
    def test_a_sampler_that_stood_still_in_a_window_does_not_know_it(self):
        times_s = np.concatenate([np.arange(0, 10, 0.025), np.arange(14, 30, 0.025)])
        curve = of_readings(times_s, noisy(times_s), SENSOR)
        reason = curve.energy(9.0, 15.0).reason
        assert "was not read, or stood still, for 3.9" in reason
        assert reason.endswith(SHORTER)
        assert curve.energy(16.0, 25.0).energy is not None

    @pytest.mark.parametrize("pause_s", [0.25, 0.4])
    def test_short_pauses_of_the_sampler_widen_the_interval(self, card, pause_s):
        generator = random.Random(3)
        recorded = record(card, SENSOR, generator, 60.0, counter=False)
        times_s = recorded.samples["time_s"]
        held, told, widths = 0, 0, []
        for _ in range(60):
            start_s = generator.uniform(6, 50)
            whole, true_j = recorded.window(start_s, start_s + 5.0)
            pause = start_s + generator.uniform(0.5, 4.0)
            kept = recorded.samples[(times_s < pause) | (times_s > pause + pause_s)]
            near = kept[(kept["time_s"] > start_s - 5) & (kept["time_s"] < start_s + 7)]
            found = Readings(near, SOURCE).energy(start_s, start_s + 5.0)
            if found.energy is not None and whole.energy is not None:
                told += 1
                held += holds(found, true_j)
                widths.append(found.energy.relative_half_width / whole.energy.relative_half_width)
        assert told >= 50
        assert held >= 0.93 * told
        assert np.median(widths) > 1

    @given(st.floats(3.0, 12.0), st.sampled_from([-1e4, -50.0, 1e9]), st.floats(0.5, 5.0))
    def test_a_counter_that_is_set_anew_in_a_window_gives_no_energy(self, at_s, by_j, length_s):
        times_s = np.arange(0, 20, 0.025)
        joules = counted(times_s) + 1e5 + np.where(times_s > at_s, by_j, 0)
        curve = of_counter(times_s, joules, 0.1)
        inside = curve.energy(at_s - length_s / 2, at_s + length_s / 2)
        assert inside.energy is None
        assert "was set back or jumped" in inside.reason
        for start_s in (at_s - length_s - 0.4, at_s + 0.4):
            assert holds(curve.energy(start_s, start_s + length_s), 200 * length_s)

    def test_a_counter_that_stands_still_gives_way_to_the_readings(self):
        times_s = np.arange(0, 20, 0.025)
        found = Readings(samples(times_s, noisy(times_s), 1234.5), SOURCE).energy(5.0, 15.0)
        assert found.energy.value == pytest.approx(2000, rel=0.01)
        assert COUNTER_DISAGREES in found.flags
        alone = Readings(samples(times_s, counter_j=1234.5), SOURCE).energy(5.0, 15.0)
        assert (alone.energy, alone.reason) == (None, NOT_SHOWN)

    def test_power_is_unknown_at_an_edge_where_the_counter_was_not_read(self):
        times_s = np.concatenate([np.arange(0, 9, 0.025), np.arange(12, 30, 0.025)])
        burst_j = 270.0  # half a second of 600 W, from 9.5 s on, at 60 W otherwise
        joules = counted(times_s, 60.0) + np.where(times_s > 10, burst_j, 0)
        curve = of_counter(times_s, joules, 0.1, read_every_s=0.1)
        assert holds(curve.energy(10.2, 20.0), 60 * 9.8)
        beside = curve.energy(8.0, 20.0)
        assert beside.energy.relative_half_width < 0.05
        assert holds(beside, 60 * 12 + burst_j)

    @pytest.mark.parametrize("period_s", [1.0, 10.0])
    def test_long_windows_of_a_counter_that_is_read_seldom_have_an_energy(self, period_s):
        times_s = np.sort(np.concatenate([np.arange(0, 600, period_s), [203.3, 403.4]]))
        curve = of_counter(times_s, counted(times_s), 0.1, read_every_s=0.1)
        assert holds(curve.energy(203.3, 403.4), 200 * 200.1)
        assert curve.energy(203.3, 403.4).energy is not None

    def test_readings_between_which_the_sensor_changes_ask_for_a_shorter_period(self):
        times_s = np.arange(0, 20, 0.3)
        watts = 200 + np.random.default_rng(0).normal(0, 2, len(times_s))
        assert SHORTER in of_readings(times_s, watts, SENSOR).energy(9.0, 9.3).reason

    def test_a_sensor_that_is_slower_than_assumed_is_taken_for_what_it_shows(self):
        times_s = np.arange(0, 60, 0.025)
        watts = 200 + np.random.default_rng(2).normal(0, 3, 60)
        curve = of_readings(times_s, watts[times_s.astype(int)], SENSOR)
        found = curve.energy(20.0, 40.0)
        assert 17 <= found.changes <= 21
        assert holds(found, watts[20:40].sum())
        assert curve.energy(7.3, 7.9).energy is None

    def test_a_sensor_that_sticks_after_it_has_moved_does_not_know_the_rest(self):
        times_s = np.arange(0, 30, 0.025)
        curve = of_readings(times_s, np.where(times_s < 10, noisy(times_s), 200.123), SENSOR)
        assert "stood still, for" in curve.energy(8.0, 20.0).reason
        assert curve.energy(3.0, 9.0).energy is not None

    @pytest.mark.parametrize("wrong_w", [0.0, 1500.0])
    def test_readings_that_the_device_cannot_draw_are_left_out(self, wrong_w):
        times_s = np.arange(0, 20, 0.025)
        for end_s, is_known in ((7.2, True), (10.0, False)):
            odd = (times_s > 7) & (times_s < end_s)
            found = samples(times_s, np.where(odd, wrong_w, noisy(times_s)), limit_w=350.0)
            window = Readings(found, SOURCE).energy(5.0, 15.0)
            assert (window.energy is not None) == is_known
            assert holds(window, 2000)

    def test_a_jump_of_the_counter_is_told_by_the_power_limit_or_by_the_readings(self):
        times_s = np.arange(0, 20, 0.025)
        joules = counted(times_s) + np.where(times_s > 7, 500.0, 0.0)
        found = Readings(samples(times_s, noisy(times_s), joules), SOURCE).energy(6.5, 8.0)
        assert COUNTER_DISAGREES in found.flags
        limited = samples(times_s, noisy(times_s), joules, limit_w=350.0)
        assert "set back or jumped" in Readings(limited, SOURCE).energy(6.5, 8.0).reason

    def test_a_counter_that_disagrees_with_the_readings_is_flagged_and_no_other(self, card):
        generator = random.Random(2)
        wrong = record(card, SENSOR, generator, LONG_S, counter_gain=0.9)
        assert wrong.window(10.0, 40.0)[0].flags == (COUNTER_DISAGREES,)
        fast = {"refresh_s": 0.02, "window_s": 0.02, "counter_step_s": 0.02, "noise": 0.005}
        right = record(card, SENSOR, generator, LONG_S, **fast)
        for _ in range(60):
            start_s = generator.uniform(6, 55)
            assert COUNTER_DISAGREES not in right.window(start_s, start_s + 0.6)[0].flags
