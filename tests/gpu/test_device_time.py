"""Device time is that of the device alone, and the host's time is told beside it: on a GPU.

These tests pass on a simulated GPU, too, whose values mean nothing.
"""

import dataclasses
import itertools

import pytest
import torch
from opcost.devices.device import NotCapturable, open_device
from opcost.devices.disturbance import Watch
from opcost.measuring.in_context import time_in_context
from opcost.measuring.power_load import Replays, load_of
from opcost.measuring.timing import MODEL_WAITS, WAITS, time_workload
from opcost.measuring.workload import ModelWorkload
from opcost.models.inputs import Arguments
from opcost.target import Target
from opcost.tuples.recorder import CallLog

from tests.quick_measurement import default_measurement

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BATCHES = type("Timing", (), {"block_iterations": 2})
SETTINGS = dataclasses.replace(default_measurement(), warm_up_s=0.02, min_time_s=0.05)


class Calls:
    """A function as a workload."""

    def __init__(self, function, rotation=1, in_use=False):
        self.rotation, self.in_use = rotation, in_use
        self._function = function

    def run(self, iterations):
        for _ in range(iterations):
            self._function()


@pytest.fixture(scope="module")
def gpu():
    return open_device(Target("cuda", 1, False))


@pytest.fixture
def timed(gpu):
    def timed(function, **options):
        with torch.inference_mode():
            return time_workload(Calls(function, **options), gpu, Watch(), SETTINGS)

    return timed


@pytest.fixture(scope="module")
def small(gpu):
    """An operator of a microsecond or two, for which most hosts need more."""
    tensor = torch.zeros(16, device=gpu.torch_device)
    return lambda: [tensor.add_(1) for _ in range(3)]


def test_the_time_of_a_small_operator_does_not_contain_its_launch(gpu, timed, small):
    alone, with_host = timed(small), timed(small, in_use=True)
    assert alone.host is not None
    assert with_host.estimate.value > 0.99 * alone.estimate.value
    assert alone.launch_bound == (alone.host.value >= alone.estimate.value)


def test_a_loop_with_its_host_is_no_faster_than_the_gpu_and_has_a_time_of_its_host(timed, small):
    found, alone = timed(lambda: [small() for _ in range(30)], in_use=True), timed(small)
    assert found.estimate.value > 0.95 * 30 * alone.estimate.value
    assert found.host.value > 0
    assert not found.launch_bound


def test_a_graph_takes_as_long_as_operators_that_are_held_back(gpu, timed, small):
    calls = 200
    (replay,) = gpu.capture([lambda: [small() for _ in range(calls)]])
    in_graph_s = timed(replay).estimate.value / calls
    # One by one, each of the three kernels may begin up to a microsecond later.
    assert 0.9 * in_graph_s < timed(small).estimate.value < 1.1 * in_graph_s + 3e-6


def test_what_a_host_missed_is_no_more_than_the_time_it_did_not_run(gpu, small, monkeypatch):
    missed_s = itertools.count(0, 10.0)
    monkeypatch.setattr("opcost.devices.gpu.elapsed_and_missed_s", lambda: (0, next(missed_s)))
    batch = gpu.time(lambda: [small() for _ in range(50)])
    assert batch.host_s > 0


def test_batches_hold_no_more_than_the_queue(gpu, timed):
    tensor = torch.zeros(16, device=gpu.torch_device)
    found = timed(lambda: [tensor.add_(1) for _ in range(100)])
    assert 1 <= found.block_iterations <= 10
    assert found.host is not None


@pytest.mark.parametrize(
    "waiting",
    [lambda tensor: tensor[0].item(), lambda tensor: [tensor.add_(0) for _ in range(5000)]],
    ids=["for a value", "for room in the queue"],
)
def test_what_waits_for_the_gpu_has_no_host_time(gpu, timed, waiting):
    tensor = torch.ones(16, device=gpu.torch_device)
    for in_use, reason in ((False, WAITS), (True, MODEL_WAITS)):
        found = timed(lambda: waiting(tensor), in_use=in_use)
        assert (found.host, found.host_reason) == (None, reason)
        assert found.estimate.value > 0


def test_a_slow_host_is_taken_out_of_the_power_phase(gpu, timed, small):
    timing = timed(small)
    slow = dataclasses.replace(timing, host=timing.estimate)
    load = load_of(Calls(small, rotation=1000), gpu, slow)
    assert isinstance(load, Replays)
    for _ in range(20):
        done = load.start(100)
    gpu.synchronise()
    assert done()


def test_calls_take_in_place_what_they_take_alone(gpu, timed):
    # None of the three tensors fits into a cache, so that each call finds its operand in memory.
    tensor = torch.zeros(2**27, device=gpu.torch_device)

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x + 1)

    workload = ModelWorkload([Model()], [Arguments((tensor,), {})])
    with torch.inference_mode():
        with CallLog() as log:
            workload.output()
        found = time_in_context(workload, log.operator_tuples, gpu, Watch(), BATCHES, 0.05)
    assert [each.name for each in log.operator_tuples] == ["add", "relu"]
    alone_s = [timed(lambda: tensor + 1).estimate.value, timed(tensor.relu).estimate.value]
    for call_s, seconds in zip(found["call_time_s"], alone_s, strict=True):
        assert call_s == pytest.approx(seconds, rel=0.2, abs=3e-6)


def test_an_operator_that_waits_for_the_gpu_cannot_be_captured(gpu):
    tensor = torch.ones(16, device=gpu.torch_device)
    with pytest.raises(NotCapturable, match="not permitted when stream is capturing"):
        gpu.capture([lambda: tensor[0].item()])
    torch.ones(16, device=gpu.torch_device).add_(1)  # the GPU is still of use
    gpu.synchronise()
