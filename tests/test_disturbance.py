"""A batch counts if the sentinel before and after it was quick, whatever the batch itself took."""

import hashlib
import os
import subprocess
import sys
import threading

import pytest
from opcost.devices import disturbance
from opcost.devices.disturbance import (
    CoreWatch,
    ThreadWatch,
    core_sentinel,
    elapsed_and_missed_s,
    elapsed_and_waited_s,
    find_baseline_s,
)

BASELINE_S = 1e-3


def looks(sentinel_times_s, waiting_s=None):
    """Looks a second apart; `waiting_s` is how long the thread waited before each."""
    now_s = waited_s = 0.0
    watch = CoreWatch(BASELINE_S, iter(sentinel_times_s).__next__, lambda: (now_s, waited_s))
    found = []
    for waiting in waiting_s or [0.0] * len(sentinel_times_s):
        now_s, waited_s = now_s + 1.0, waited_s + waiting
        found.append(watch.look())
    return found, watch


def test_nothing_is_known_before_the_first_look():
    assert looks([BASELINE_S])[0] == [False]


def test_a_core_that_is_shared_before_or_after_disturbs_the_time_between():
    shared = 1.6 * BASELINE_S
    found, watch = looks([BASELINE_S, BASELINE_S, shared, shared, BASELINE_S, BASELINE_S])
    assert found == [False, True, False, False, False, True]
    assert watch.sentinel_times_s() == [BASELINE_S, BASELINE_S]


@pytest.mark.parametrize(("slower", "undisturbed"), [(1.0, True), (1.1, True), (1.3, False)])
def test_small_differences_are_the_cores_own(slower, undisturbed):
    assert looks([BASELINE_S, slower * BASELINE_S])[0][-1] is undisturbed


def test_a_sentinel_that_is_quicker_than_its_reference_says_that_the_reference_was_disturbed():
    shared_then = [BASELINE_S / 1.6] * 20
    assert looks([*shared_then, BASELINE_S])[1].lower_baseline_s() == BASELINE_S / 1.6
    assert looks([BASELINE_S / 1.1] * 20)[1].lower_baseline_s() is None


def test_a_call_whose_data_were_evicted_is_no_slow_core(monkeypatch):
    times = iter([6.0, 4.5, 4.2, 4.3, 4.1, 4.0, 4.2])
    now = [0.0]

    def clock():
        return now[0]

    def convolve(*_, **__):
        now[0] += next(times)

    monkeypatch.setattr(disturbance, "perf_counter", clock)
    monkeypatch.setattr(disturbance.torch, "conv2d", convolve)
    assert core_sentinel()() == pytest.approx(4.0)


def test_one_quick_sentinel_says_nothing_of_its_reference():
    assert looks([BASELINE_S / 1.6] * 5)[1].lower_baseline_s() is None
    assert looks([BASELINE_S / 1.6, *[BASELINE_S] * 20])[1].lower_baseline_s() is None


def test_a_thread_that_has_to_wait_is_disturbed_though_the_core_is_alone():
    assert looks([BASELINE_S] * 4, waiting_s=[0, 0, 0.1, 0])[0] == [False, True, False, True]


def test_a_moment_of_waiting_is_no_matter_in_a_long_batch():
    assert looks([BASELINE_S] * 2, waiting_s=[0, 0.002])[0] == [False, True]


def test_a_gpus_host_is_disturbed_while_its_thread_has_to_wait():
    moments = iter([(1.0, 0.5), (2.0, 0.504), (3.0, 0.6)])
    watch = ThreadWatch(lambda: next(moments))
    assert [watch.look() for _ in range(3)] == [False, True, False]


@pytest.fixture
def core():
    """One core, which this thread and what it starts run on."""
    allowed = os.sched_getaffinity(0)
    chosen = min(allowed)
    os.sched_setaffinity(0, [chosen])
    yield
    os.sched_setaffinity(0, allowed)


def waited_and_missed_in_s(seconds):
    """What the clocks count while this thread is busy for so long."""
    (began_s, before_s), (_, missed_s) = elapsed_and_waited_s(), elapsed_and_missed_s()
    while elapsed_and_waited_s()[0] < began_s + seconds:
        pass
    return elapsed_and_waited_s()[1] - before_s, elapsed_and_missed_s()[1] - missed_s


@pytest.mark.usefixtures("core")
def test_waiting_is_what_another_busy_process_causes_and_so_is_missing_the_core():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        waited_s, missed_s = waited_and_missed_in_s(1.0)
        other.kill()
    assert waited_s > 0.1
    assert missed_s == pytest.approx(waited_s, abs=0.05)


@pytest.mark.usefixtures("core")
def test_what_another_thread_of_the_process_ran_on_the_core_was_not_missed():
    """As autograd's thread, which runs the backward pass of a GPU."""
    thread = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 2_000_000))
    thread.start()  # without the interpreter's lock
    waited_s, missed_s = waited_and_missed_in_s(0.5)
    thread.join()
    assert waited_s > 0.1
    assert missed_s < waited_s - 0.02


def test_the_real_sentinel_takes_time():
    assert 0 < find_baseline_s(0.1) < 1
