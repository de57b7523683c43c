"""The race between a host that launches and a device that runs what was launched."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.race import Clocks, replay

SECONDS = st.integers(0, 100).map(float)
CALLS = st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), min_size=1, max_size=30)


def race(calls, waits=(), queue=1023):
    """A race of one sample; calls are (host's seconds, device's seconds, launches a kernel)."""
    host_s, device_s, launches = zip(*calls, strict=True)
    device_s = [each if launch else 0.0 for each, launch in zip(device_s, launches, strict=True)]
    waits = [number in waits for number in range(len(calls))]
    columns = (np.array(each)[:, None] for each in (host_s, device_s))
    return replay(Clocks(*columns, launches, waits), queue)


def sums(calls):
    return sum(host for host, _, _ in calls), sum(device for _, device, yes in calls if yes)


def launching(calls):
    return [(host, device, True) for host, device, _ in calls]


@given(CALLS)
def test_in_a_queue_that_holds_an_iteration_the_slower_clock_sets_the_pace(calls):
    calls = launching(calls)
    assert race(calls).period_s == pytest.approx(max(sums(calls)))


@given(CALLS)
def test_views_take_the_host_time_and_not_the_device(calls):
    calls = [*calls, (1.0, 1.0, True)]
    assert race(calls).period_s == pytest.approx(max(sums(calls)))


@given(CALLS, st.sets(st.integers(0, 29)), st.integers(1, 40))
def test_the_device_either_runs_or_waits(calls, waits, queue):
    found = race(launching(calls), waits, queue)
    assert (found.idle_s >= 0).all()
    assert found.idle_s.sum() + sums(launching(calls))[1] == pytest.approx(found.period_s[0])


@given(CALLS, st.sets(st.integers(0, 29)))
def test_no_race_is_faster_than_its_slower_clock(calls, waits):
    calls = launching(calls)
    assert race(calls, waits).period_s >= max(sums(calls)) * (1 - 1e-9)


@given(CALLS, st.integers(0, 29), SECONDS, SECONDS, st.sets(st.integers(0, 29)))
def test_no_call_that_takes_longer_makes_the_model_faster(calls, number, host, device, waits):
    calls = launching(calls)
    number %= len(calls)
    slower = list(calls)
    slower[number] = (calls[number][0] + host, calls[number][1] + device, True)
    assert race(slower, waits).period_s >= race(calls, waits).period_s * (1 - 1e-6)


def test_a_call_that_waits_for_the_device_adds_up_both_clocks():
    calls = [(2.0, 3.0, True)] * 4
    assert race(calls, waits={3}).period_s == pytest.approx(2 + 4 * 3)
    assert race(calls, waits=range(4)).period_s == pytest.approx(4 * (2 + 3))


def test_a_device_waits_where_its_host_is_slower():
    calls = [(1.0, 5.0, True)] * 3 + [(9.0, 2.0, True)] * 3
    found = race(calls)
    assert found.period_s == 30.0
    assert found.idle_s[:, 0] == pytest.approx([0, 0, 0, 0, 2, 7], abs=7)
    assert found.idle_s[3:].sum() == pytest.approx(9.0)


def test_a_short_queue_keeps_the_host_from_running_ahead():
    calls = [(0.0, 10.0, True)] * 10 + [(10.0, 0.0, True)] * 10
    assert race(calls).period_s == pytest.approx(100.0)
    assert race(calls, queue=2).period_s > 150.0


def test_each_sample_has_a_race_of_its_own():
    host_s, device_s = np.array([[1.0, 3.0, 2.0]] * 5), np.array([[2.0, 1.0, 2.0]] * 5)
    found = replay(Clocks(host_s, device_s, [True] * 5, [False] * 5))
    assert found.period_s == pytest.approx([10, 15, 10])


def test_a_thousand_samples_of_a_thousand_calls_take_tenths_of_a_second():
    host_s, device_s = np.random.default_rng(0).uniform(1, 2, (2, 1000, 1000))
    start = time.perf_counter()
    replay(Clocks(host_s, device_s, [True] * 1000, [False] * 1000))
    assert time.perf_counter() - start < 3
