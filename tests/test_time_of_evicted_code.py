"""What a call takes longer when its code was evicted, measured on a processor that does nothing."""

from types import SimpleNamespace

import pytest
import torch
from opcost.devices.device import BatchTime
from opcost.measuring import benchmark
from opcost.measuring.evicted_code import evicted_code_times_s
from opcost.measuring.subjects import OperatorSubject
from opcost.rows.quantities import EVICTED_CODE
from torch.profiler import ProfilerActivity, profile

from tests.quick_measurement import QUICK
from tests.stations import station_of

IN_CACHE_S, EVICTED_S = 3e-6, 8e-6


class Simulated:
    """A processor with a private cache of 1 KiB, which keeps code until data were moved."""

    kind = SimpleNamespace(host_sets_pace=True)
    core_cache_bytes = 1024

    def __init__(self):
        self.evicted, self.calls = True, 0

    def run(self, iterations):
        self.calls += iterations
        self.evicted = False

    def time(self, work):
        calls, time_s = self.calls, EVICTED_S if self.evicted else IN_CACHE_S
        work()
        taken_s = time_s if self.calls > calls else 0.0
        return BatchTime(taken_s, taken_s)


@pytest.fixture
def simulated(monkeypatch):
    """Moving data evicts the code of the simulated processor."""
    found, copy = Simulated(), torch.Tensor.copy_

    def evict(target, source):
        found.evicted |= 2 * source.nbytes >= 4 * found.core_cache_bytes
        return copy(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", evict)
    return found


def test_samples_are_differences_of_single_calls(simulated):
    samples_s = evicted_code_times_s(simulated, (), simulated, IN_CACHE_S)
    assert len(samples_s) >= 6
    assert samples_s == pytest.approx([EVICTED_S - IN_CACHE_S] * len(samples_s))


def test_what_was_written_just_before_a_call_is_in_the_cache(simulated, monkeypatch):
    order, write = [], torch.Tensor.bitwise_or_
    monkeypatch.setattr(
        torch.Tensor,
        "bitwise_or_",
        lambda each, zero: order.append(each.nbytes) or write(each, zero),
    )
    run = simulated.run
    simulated.run = lambda iterations: order.append("call") or run(iterations)
    values = torch.tensor([1.5, -0.0, float("nan"), float("inf")])
    large, repeated = torch.randn(5000), torch.ones(1).expand(512)
    before = [each.clone() for each in (values, large, repeated)]
    evicted_code_times_s(simulated, [values, large, repeated], simulated, IN_CACHE_S)
    evicting_bytes = 4 * simulated.core_cache_bytes * torch.get_num_threads()
    assert order[:6] == ["call", "call", 16, evicting_bytes, 4, "call"]
    torch.testing.assert_close([values, large, repeated], before, rtol=0, atol=0, equal_nan=True)


def test_writing_arguments_again_takes_no_memory_that_would_evict_them(simulated):
    simulated.core_cache_bytes = 2**18
    argument = torch.zeros(2**16)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        evicted_code_times_s(simulated, [argument], simulated, IN_CACHE_S)
    allocated = sorted(each.self_cpu_memory_usage for each in profiled.events())
    moved_bytes = 4 * simulated.core_cache_bytes * torch.get_num_threads()
    assert allocated[-1] == moved_bytes
    assert allocated[-2] < argument.nbytes / 8


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": SimpleNamespace(host_sets_pace=False)},
        {"core_cache_bytes": 0},
    ],
    ids=["the host runs ahead", "unknown cache"],
)
def test_where_code_is_evicted_is_not_known_of_each_device(simulated, changes):
    vars(simulated).update(changes)
    assert evicted_code_times_s(simulated, (), simulated, IN_CACHE_S) is None


def test_of_long_calls_code_does_not_matter(simulated):
    assert evicted_code_times_s(simulated, (), simulated, 0.1) == []
    assert simulated.calls == 0


def test_each_operator_on_a_processor_has_samples(cpu, tiny_tuples):
    record = tiny_tuples[1].tuples[0]
    found = benchmark.measure(OperatorSubject(record), station_of(cpu, QUICK))
    assert found["status"] == "ok"
    assert len(found[EVICTED_CODE]) >= 6
