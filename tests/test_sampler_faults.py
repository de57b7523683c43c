"""Meters that fail for a moment."""

import math
import os
import random
import time
from types import SimpleNamespace

import pytest
from opcost.energy.meter import Implausible, MeterUnavailable, plausible_w
from opcost.energy.rapl import RaplMeter
from opcost.power import sampler
from opcost.power.recording import Recording
from opcost.power.sampler import Sampler, Source

from tests.opcost_measure import GPU
from tests.simulated_powercap import Powercap


class Flickering:
    """A meter that fails, or is wrong, when it is told to."""

    reads_since_last = shared_by_time = False
    failing, shown_w = False, 60.0

    def power_w(self):
        if self.failing:
            raise MeterUnavailable("NVML: Unknown Error")
        return plausible_w(self.shown_w)

    def counter_j(self):
        return 1.0

    def state(self):
        return SimpleNamespace()

    def memory_by_process(self):
        return {}


@pytest.fixture
def meter():
    return Flickering()


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


@pytest.fixture
def reading(meter, recording, monkeypatch):
    monkeypatch.setattr(sampler, "_AGAIN_S", 0.05)
    return Sampler(recording, [Source(GPU, meter)], os.getpid())


def of_meter(recording):
    """The powers of the meter: the machine is a source of its own."""
    samples = recording.samples()
    return samples["power_w"][samples["source"] == 0]


def test_a_reading_that_no_device_draws_is_no_value_and_no_loss(meter, recording, reading):
    for meter.shown_w in (60.0, 4294967.295, 61.0):
        reading.read()
    watts = of_meter(recording)
    assert (watts[0], math.isnan(watts[1]), watts[2]) == (60.0, True, 61.0)
    assert recording.lost() == {}
    with pytest.raises(Implausible, match="which no device draws"):
        plausible_w(-1.0)


def test_a_meter_that_fails_for_a_moment_is_read_again(meter, recording, reading):
    for meter.failing in (False, True, False):  # the last one comes too soon
        reading.read()
    assert recording.lost() == {GPU: "NVML: Unknown Error"}
    time.sleep(0.06)
    reading.read()
    watts = of_meter(recording)
    assert [math.isnan(each) for each in watts] == [False, True, True, False]
    assert recording.lost() == {}
    noted = [each for each in recording.events() if {"lost", "back"} & each.keys()]
    assert [(each.get("lost"), each.get("back")) for each in noted] == [(GPU, None), (None, GPU)]


def test_a_processor_that_cannot_be_read_for_a_moment_goes_on_counting(tmp_path):
    powercap = Powercap(tmp_path, 1, False, 262_143_328_850, random.Random(1), 60.0)
    counter = tmp_path / "intel-rapl:0" / "energy_uj"
    meter = RaplMeter(tmp_path, lambda: powercap.now_s)
    shown = counter.read_text()
    counter.write_text("")
    powercap.now_s = 20.0
    with pytest.raises(MeterUnavailable):
        meter.counter_j()
    counter.write_text(shown)
    powercap.now_s = 20.01
    powercap.update()
    assert meter.counter_j() == pytest.approx(powercap.true_energy_j(20.01), rel=0.01)
    powercap.close()
