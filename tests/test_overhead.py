"""What a call costs beyond its operator: measured where the host sets the pace, nowhere else."""

import json

import pytest
from opcost.devices.disturbance import NoWatch
from opcost.measuring.overhead import Sample, overhead_of, sample_overhead
from opcost.rows.records import overhead_columns

KINDS = ["call_s", "displaced_call_s", "view_call_s"]


class Restless(NoWatch):
    """A processor that is left alone at every `period`-th look, or never."""

    def __init__(self, period=None):
        self.looks, self._period = 0, period

    def look(self):
        self.looks += 1
        return self._period is not None and self.looks % self._period == 0


@pytest.fixture(scope="module")
def sample(cpu):
    return sample_overhead(cpu, NoWatch())


@pytest.mark.parametrize("kind", KINDS)
def test_a_processor_takes_time_for_every_call(sample, kind):
    assert 0 < getattr(sample, kind) < 1e-3


def test_one_process_is_no_measure_of_another(sample):
    """The interval is Student's, over processes: here with one degree of freedom."""
    overhead = overhead_of([Sample(1e-6, 2e-6, 3e-6, False), Sample(3e-6, 2e-6, 3e-6, False)])
    assert overhead.call_s.value == pytest.approx(2e-6)
    assert overhead.call_s.high - overhead.call_s.value == pytest.approx(12.706e-6, rel=1e-4)
    assert overhead.view_call_s.low == overhead.view_call_s.high
    assert overhead_of([sample]).call_s.low is None


def test_the_document_becomes_the_columns_of_a_row(sample):
    overhead = overhead_of([sample, sample])
    document = json.loads(json.dumps(overhead.to_document()))
    columns = overhead_columns(document)
    assert columns["displaced_call_overhead_s"] == sample.displaced_call_s
    assert columns["view_call_overhead_ci_high_s"] == sample.view_call_s
    assert columns["overhead_disturbed"] is False


def test_without_an_overhead_there_are_no_such_columns():
    assert overhead_columns(None) == {}


def test_a_processor_that_is_never_left_alone_is_measured_all_the_same_and_said_to_be(cpu, sample):
    restless = sample_overhead(cpu, Restless())
    assert restless.call_s > 0
    assert (sample.disturbed, restless.disturbed) == (False, True)
    assert overhead_of([sample, restless]).disturbed


def test_moments_of_disturbance_are_waited_out(cpu):
    busy = Restless(period=3)
    assert not sample_overhead(cpu, busy).disturbed
    # 20 measurements of each of the three kinds, each with a look after it
    assert busy.looks == pytest.approx(3 * 60, rel=0.03)
