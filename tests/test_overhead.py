"""What a call costs beyond its operator: measured where the host sets the pace, nowhere else."""

import pytest
import torch
from opcost.devices.disturbance import NoWatch
from opcost.measuring.overhead import measure_overhead


@pytest.fixture(scope="module")
def overhead(cpu):
    return measure_overhead(cpu, NoWatch())


@pytest.mark.parametrize("kind", ["call_s", "displaced_call_s", "view_call_s"])
def test_a_processor_takes_time_for_every_call(overhead, kind):
    estimate = getattr(overhead, kind)
    assert 0 < estimate.low <= estimate.value <= estimate.high < 1e-3


def test_the_document_holds_values_and_limits(overhead):
    document = overhead.to_document()
    assert list(document) == ["call_s", "displaced_call_s", "view_call_s"]
    assert document["call_s"][0] == overhead.call_s.value


def test_a_processor_that_is_never_left_alone_is_measured_all_the_same(cpu):
    class Restless(NoWatch):
        def look(self):
            return False

    assert measure_overhead(cpu, Restless()).call_s.value > 0


def test_moments_of_disturbance_are_waited_out(cpu):
    class Busy(NoWatch):
        """A processor that is left alone at every third look."""

        looks = 0

        def look(self):
            self.looks += 1
            return self.looks % 3 == 0

    busy = Busy()
    assert measure_overhead(cpu, busy).call_s.value > 0
    # 120 measurements of each of the three kinds, and a look before the first of each
    assert busy.looks == pytest.approx(3 * 360, rel=0.02)


def test_a_gpu_does_not_wait_for_its_host():
    class Gpu:
        torch_device = torch.device("cuda")

    assert measure_overhead(Gpu(), NoWatch()) is None
