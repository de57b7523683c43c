"""An iteration takes the larger of the host's and the device's seconds, plus waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.host import Call, idle_s

SECONDS = st.integers(0, 100).map(float)
KERNELS = st.lists(st.builds(Call, SECONDS, SECONDS, st.just(False)), min_size=1, max_size=30)
CALLS = st.lists(
    st.builds(Call, SECONDS, SECONDS, st.booleans())
    | st.builds(Call, SECONDS, st.none(), st.just(False)),
    min_size=1,
    max_size=30,
)


def device_s(calls):
    return sum(call.device_s or 0.0 for call in calls)


def period_s(calls, **limits):
    return device_s(calls) + idle_s(calls, **limits)


@given(KERNELS, st.lists(SECONDS, max_size=5))
def test_without_waits_the_slower_of_host_and_device_sets_the_pace(calls, views):
    calls = [*calls, *(Call(each, None) for each in views)]
    host_s = sum(call.host_s for call in calls)
    assert period_s(calls) == pytest.approx(max(host_s, device_s(calls)))


def test_a_host_that_waits_for_its_device_launches_nothing_meanwhile():
    kernel, waiting = Call(2.0, 3.0), Call(2.0, 3.0, waits=True)
    assert period_s([kernel, kernel, kernel, waiting]) == pytest.approx(2 + 4 * 3)
    assert period_s([waiting] * 4) == pytest.approx(4 * (2 + 3))


def test_a_full_queue_keeps_the_host_from_running_ahead():
    calls = [Call(0.0, 10.0)] * 10 + [Call(10.0, 0.0)] * 10
    assert period_s(calls) == pytest.approx(100.0)
    assert period_s(calls, queue=2) == pytest.approx(180.0)


@given(CALLS, st.integers(1, 40), st.floats(1, 2), st.floats(1, 2))
def test_a_slower_host_or_device_makes_no_model_faster(calls, queue, host, device):
    slower = [
        Call(host * call.host_s, call.device_s and device * call.device_s, call.waits)
        for call in calls
    ]
    idle = idle_s(calls, queue, host, device)
    assert idle == pytest.approx(idle_s(slower, queue))
    assert idle + device_s(slower) >= period_s(calls, queue=queue) * (1 - 1e-5)
