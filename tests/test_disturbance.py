"""A batch counts if the sentinel before and after it was quick, whatever the batch itself took."""

import pytest
from opcost.disturbance import CoreWatch, find_quiet_s

QUIET_S = 1e-3


def looks(sentinel_times_s, preemptions=None):
    counts = iter(preemptions or [0] * len(sentinel_times_s))
    watch = CoreWatch(QUIET_S, iter(sentinel_times_s).__next__, counts.__next__)
    return [watch.look() for _ in sentinel_times_s], watch


def test_nothing_is_known_before_the_first_look():
    assert looks([QUIET_S])[0] == [False]


def test_a_core_that_is_shared_before_or_after_disturbs_the_time_between():
    shared = 1.6 * QUIET_S
    found, watch = looks([QUIET_S, QUIET_S, shared, shared, QUIET_S, QUIET_S])
    assert found == [False, True, False, False, False, True]
    assert watch.sentinel_times_s() == [QUIET_S, QUIET_S]


@pytest.mark.parametrize(("slower", "undisturbed"), [(1.0, True), (1.1, True), (1.3, False)])
def test_small_differences_are_the_cores_own(slower, undisturbed):
    assert looks([QUIET_S, slower * QUIET_S])[0][-1] is undisturbed


def test_a_preemption_disturbs_though_the_core_is_alone():
    assert looks([QUIET_S] * 4, preemptions=[3, 3, 4, 4])[0] == [False, True, False, True]


def test_the_real_sentinel_takes_time():
    assert 0 < find_quiet_s(0.1) < 1
