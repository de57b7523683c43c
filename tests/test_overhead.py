"""What a call costs its host beyond its operator's benchmark."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache

import pytest
import torch
from opcost.devices.device import BlockTime
from opcost.devices.device_file import DeviceFile, Sample, write_device
from opcost.devices.disturbance import Watch
from opcost.devices.kinds import KINDS
from opcost.devices.processor import CpuDevice
from opcost.errors import OpcostError
from opcost.measuring import overhead
from opcost.measuring.overhead import sample_overhead
from opcost.rows.overhead_samples import overhead_columns, read_samples
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Restless(Watch):
    """A processor that is left alone at every `period`-th look, or never."""

    def __init__(self, period=None):
        self.looks, self._period = 0, period

    def look(self):
        self.looks += 1
        return self._period is not None and self.looks % self._period == 0


@cache
def elsewhere():
    """A process that is not forked: sampling runs backward.

    A process that is forked after that cannot, and neither can those that are forked from it.
    """
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def sampled(device, watch=None):
    """The overhead in that process, and how often the watch has looked there."""
    return elsewhere().submit(_sampled, device, watch or Watch()).result(timeout=120)


def _sampled(device, watch):
    with getattr(device, "listening", nullcontext)():
        return sample_overhead(device, watch), getattr(watch, "looks", 0)


@pytest.fixture(scope="module")
def sample(cpu):
    return sampled(cpu)[0]


class Simulated(CpuDevice):
    """A host on which a module takes as long as a call of its operator and 5 us more."""

    module_s = 5e-6

    def __init__(self, kind="cpu"):
        super().__init__()
        self.kind = KINDS[kind]
        self._now_s = 0.0

    def time(self, work):
        start_s = self._now_s
        with modules_that(self.take_time):
            work()
        seconds = self._now_s - start_s
        return BlockTime(seconds, seconds)

    def take_time(self, module, _arguments):
        self._now_s += 0 if isinstance(module, nn.Sequential) else self.module_s


@contextmanager
def modules_that(hook):
    handle = nn.modules.module.register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def test_the_time_of_modules_beyond_that_of_their_operators_is_the_overhead(cpu):
    found = sampled(Simulated())[0]
    expected = (pytest.approx(5e-6), pytest.approx(5e-6), 0.0, False)
    assert found[:4] == expected
    assert 0 < found.forward_call_s < 5e-6  # some calls have no module of their own
    assert (found.backward_call_s, found.optimizer_call_s) == (0.0, 0.0)


def test_a_gpu_has_a_host_that_runs_modules_and_no_quantity_for_cold_code(cpu):
    found = sampled(Simulated("cuda"))[0]
    assert found[:4] == (pytest.approx(5e-6), None, 0.0, False)
    columns = overhead_columns([found] * 3)
    assert columns["call_overhead_s"] == pytest.approx(5e-6)
    assert columns["cold_call_overhead_s"] is None


class ColdClock(Simulated):
    """A clock that takes 6 us longer to read once its own code was evicted."""

    evicted = False

    def listening(self):
        return Switches(self.note)

    def time(self, work):
        seconds = super().time(work).host_s + (6e-6 if self.evicted else 0.0)
        self.evicted = False
        return BlockTime(seconds, seconds)

    def note(self, operator):
        self.evicted |= operator is torch.ops.aten.copy_.default


def test_what_the_clock_takes_to_come_back_is_no_overhead():
    assert sampled(ColdClock())[0].cold_call_s == pytest.approx(5e-6)


def test_on_a_real_processor_a_view_takes_time(sample):
    assert 0 < sample.view_call_s < 1e-3


def samples(*calls_s, disturbed=False):
    return [Sample(call_s, 2e-6, 3e-6, disturbed) for call_s in calls_s]


def test_one_process_is_no_measure_of_another():
    """The interval is Student's, over processes: here with two degrees of freedom."""
    columns = overhead_columns(samples(1e-6, 2e-6, 3e-6))
    assert columns["call_overhead_s"] == pytest.approx(2e-6)
    margin_s = 4.3027 * 1e-6 / math.sqrt(3)
    assert columns["call_overhead_ci_high_s"] == pytest.approx(2e-6 + margin_s, rel=1e-4)
    assert columns["view_call_overhead_ci_low_s"] == columns["view_call_overhead_ci_high_s"]


def test_processes_that_were_disturbed_do_not_count_if_enough_were_not():
    columns = overhead_columns(samples(1e-6, 2e-6, 3e-6) + samples(9e-6, 9e-6, disturbed=True))
    assert columns["call_overhead_s"] == pytest.approx(2e-6)
    assert not columns["overhead_disturbed"]


def test_where_hardly_any_was_undisturbed_all_count_and_that_is_said():
    columns = overhead_columns(samples(1e-6, 2e-6) + samples(9e-6, disturbed=True))
    assert columns["call_overhead_s"] == pytest.approx(4e-6)
    assert columns["overhead_disturbed"]


class Crowded(CpuDevice):
    """A host that takes 2 us longer for an operator if its last call was of another one."""

    def __init__(self):
        super().__init__()
        self._operator, self._now_s = None, 0.0

    def time(self, work):
        start_s = self._now_s
        with Switches(self.note):
            work()
        return BlockTime(*(self._now_s - start_s,) * 2)

    def note(self, operator):
        self._now_s += 0.0 if operator is self._operator else 2e-6
        self._operator = operator


class Switches(TorchDispatchMode):
    """Tells of each operator that is called."""

    def __init__(self, note):
        super().__init__()
        self._note = note

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._note(func)
        return func(*args, **(kwargs or {}))


def test_what_operators_displace_of_each_other_is_overhead(cpu):
    """A benchmark runs an operator in a loop, where nothing else displaces its code."""
    # But the first call of each: the warm-up of a loop is not timed.
    assert sampled(Crowded())[0].call_s == pytest.approx(2e-6, rel=0.07)


def test_a_file_tells_what_each_process_found(sample, tmp_path):
    sample = sample._replace(disturbed=False)  # as it may be where others use this processor
    write_device(tmp_path / "device.json", DeviceFile("cpu", "Xeon", overhead=(sample,) * 3))
    columns = overhead_columns(read_samples(tmp_path / "device.json"))
    assert columns["cold_call_overhead_s"] == pytest.approx(sample.cold_call_s)
    assert columns["view_call_overhead_ci_high_s"] == pytest.approx(sample.view_call_s)
    assert columns["overhead_disturbed"] is False


def test_a_processor_without_overhead_leaves_no_smaller_sum(tmp_path):
    write_device(tmp_path / "device.json", DeviceFile("cpu", "Xeon"))
    with pytest.raises(OpcostError, match=r"has no call overhead: delete only .*device\.json"):
        read_samples(tmp_path / "device.json")


def test_a_difference_below_zero_counts_as_zero_and_disturbed():
    device = Simulated()
    device.module_s = -5e-6
    assert sampled(device)[0][:4] == (0.0, 0.0, 0.0, True)


def test_a_call_in_training_may_take_no_longer_than_its_operator(cpu, monkeypatch):
    found_s = (4e-6, 3e-6, -1e-7, 0.0, 5e-5)
    monkeypatch.setattr(overhead, "training_calls_s", lambda device: lambda: found_s)
    sample = sample_overhead(cpu, Watch())
    assert sample[4:9] == (4e-6, 3e-6, 0.0, 0.0, 5e-5)
    assert not sample.disturbed


def test_a_processor_that_is_never_left_alone_is_measured_all_the_same_and_said_to_be(cpu):
    restless, _ = sampled(cpu, Restless())
    assert restless.disturbed
    assert restless.view_call_s > 0


def test_moments_of_disturbance_are_waited_out(cpu):
    _, looks = sampled(cpu, Restless(period=4))
    # 20 measurements in inference and in training, each with a look before and after it
    assert looks == 2 * 80
