"""Meters that fail for a moment, and what is read when a recording ends."""

import math
import os
import random
import time
from types import SimpleNamespace

import numpy as np
import pytest
from opcost import power
from opcost.energy.meter import Implausible, MeterUnavailable, plausible_w
from opcost.energy.rapl import RaplMeter
from opcost.energy.sensor import Sensor
from opcost.power import sampler
from opcost.power.export import segments
from opcost.power.recorded_windows import events_with_energy
from opcost.power.recording import SAMPLE, Recording
from opcost.power.sampler import Sampler
from opcost.power.sources import Source

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


def test_a_reading_that_no_device_draws_is_no_value_and_no_loss(meter, recording, reading):
    for meter.shown_w in (60.0, 4294967.295, 61.0):
        reading.read()
    reading.flush()
    watts = recording.samples()["power_w"]
    assert (watts[0], math.isnan(watts[1]), watts[2]) == (60.0, True, 61.0)
    assert reading.lost == recording.lost() == {}
    with pytest.raises(Implausible, match="which no device draws"):
        plausible_w(-1.0)


def test_a_meter_that_fails_for_a_moment_is_read_again(meter, recording, reading):
    for meter.failing in (False, True, False):  # the last one comes too soon
        reading.read()
    assert reading.lost == recording.lost() == {GPU: "NVML: Unknown Error"}
    time.sleep(0.06)
    reading.read()
    reading.flush()
    assert len(recording.samples()) == 2
    assert reading.lost == recording.lost() == {}
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


@pytest.mark.usefixtures("card_of_sampler")
def test_the_last_window_of_a_recording_has_energy_though_nobody_has_asked(tmp_path):
    output = tmp_path / "run.parquet"
    with (
        power.Monitor([GPU], output=output, period_s=1) as monitor,
        power.measure("last", monitor=monitor),
    ):
        time.sleep(3.4)
    [event] = segments(output)[0]["events"]
    assert event["devices"][GPU]["energy_j"] is not None


@pytest.fixture
def sparse(recording):
    """A recording of a counter that is read every eight seconds, and when windows begin and end."""

    def record(start_s, end_s):
        times_s = np.sort([*np.arange(0, 120, 8.0), start_s, end_s])
        samples = np.zeros(len(times_s), SAMPLE)
        samples["time_s"], samples["power_w"], samples["counter_j"] = times_s, 100, 100 * times_s
        samples.tofile(recording.samples_file)
        sensor = vars(Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1))
        source = {"name": GPU, "sensor": sensor, "reads_since_last": False}
        recording.begin({"sources": [source], "period_s": 8.0})
        recording.note({"window": "sparse", "start_s": start_s, "end_s": end_s})
        [event] = events_with_energy(recording)
        return event["devices"][GPU]

    return record


def test_a_window_is_found_between_readings_of_a_long_period(sparse):
    found = sparse(31.0, 81.0)
    assert found["energy_ci_low_j"] <= 5000 <= found["energy_ci_high_j"]


def test_a_window_that_is_too_short_for_the_period_says_so(sparse):
    reason = sparse(31.0, 40.0)["reason"]
    assert "was not read, or stood still, for" in reason
    assert "give a shorter period" in reason
