"""What lies between two calls is measured where the host sets the pace, and nowhere else."""

import torch
from opcost.between import between_calls_s
from opcost.disturbance import NoWatch


def test_a_processor_takes_time_between_calls(cpu):
    between = between_calls_s(cpu, NoWatch())
    assert 0 < between.value < 1e-3
    assert between.low <= between.value <= between.high


def test_a_processor_that_is_never_left_alone_is_measured_all_the_same(cpu):
    class Restless(NoWatch):
        def look(self):
            return False

    assert between_calls_s(cpu, Restless()).value > 0


def test_a_gpu_does_not_wait_for_its_host():
    class Gpu:
        torch_device = torch.device("cuda")

    assert between_calls_s(Gpu(), NoWatch()) is None
