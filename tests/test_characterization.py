"""What a sensor is like is found out on the device, or is null with the reason."""

import copy
import functools
import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from opcost.energy.characterization import characterise
from opcost.energy.meter import sensor_of
from opcost.energy.nvml import NvmlMeter
from opcost.energy.rapl import RaplMeter
from opcost.energy.sensor import SCHEMA_VERSION, read_document
from opcost.energy.sensor_fit import fit_response, noise, refresh_period_s
from opcost.errors import OpcostError
from opcost.measuring import station
from opcost.measuring.station import characterise_target

from tests.documents import ROOT
from tests.simulated_nvml.card import UUID, CardLoad
from tests.simulated_processor import Cores

LOAD_S, LOAD_W = 1e-3, 400.0


@pytest.fixture
def characterised(card):
    def characterised(**simulated):
        card.reset(**simulated)
        meter = NvmlMeter(UUID)
        return characterise(
            meter, CardLoad(card, LOAD_S, LOAD_W), card, idle_without_context_w=45.0
        )

    return characterised


@pytest.mark.parametrize(
    ("refresh_s", "window_s", "lag_s", "rise_s"),
    [
        (0.1, 0.025, 0.0, 0.02),
        (0.02, 0.025, 0.01, 0.0),
        (0.1, 0.1, 0.0, 0.0),
        (0.05, 0.1, 0.02, 0.01),
    ],
)
def test_refresh_averaging_and_lag_are_found(characterised, refresh_s, window_s, lag_s, rise_s):
    found = characterised(
        refresh_s=refresh_s,
        window_s=window_s,
        lag_s=lag_s,
        rise_s=rise_s,
        noise=0.01,
    )["readings"]["nvml_power_instant"]
    assert found["refresh_s"] == pytest.approx(refresh_s, rel=0.01)
    assert found["averaging_s"] == pytest.approx(window_s, rel=0.25, abs=0.005)
    # Lag and rise are hard to tell apart; together they say how long to wait.
    reach_s = found["averaging_s"] + found["lag_s"] + found["rise_s"]
    assert reach_s == pytest.approx(window_s + lag_s + 4.6 * rise_s, rel=0.25, abs=0.01)
    assert found["explained"] > 0.98
    assert found["noise_relative_sd"] == pytest.approx(0.01, rel=0.3)


def test_the_reading_that_averages_over_a_second_is_told_from_the_other(characterised):
    found = characterised(noise=0.005)["readings"]
    assert found["nvml_power_average"]["averaging_s"] == pytest.approx(1.0, rel=0.05)
    assert found["nvml_power_instant"]["averaging_s"] == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(("step_s", "loss"), [(0.1, 0.0), (0.02, 0.0), (0.1, 0.3)])
def test_the_counter_and_what_frequent_reads_do_to_it(characterised, step_s, loss):
    counter = characterised(counter_step_s=step_s, counter_loss=loss)["counter"]
    assert counter["refresh_s"] == pytest.approx(step_s, rel=0.05)
    assert counter["frequent_reads_lose"] == pytest.approx(loss, abs=0.02)
    assert counter["frequent_reads_change"] == (loss > 0)


def test_idle_power_and_the_temperature_slope(characterised):
    found = characterised(
        noise=0.002, idle_w=70, thermal_w_per_k=0.5, thermal_s=8, kelvin_per_w=0.1
    )
    assert found["idle_power_without_context_w"] == 45
    assert found["idle_power_w"] == pytest.approx(80, abs=20)  # it has not cooled down yet
    assert found["temperature_slope_w_per_k"] == pytest.approx(0.5, rel=0.4)


@pytest.mark.parametrize(
    ("simulated", "quantity"),
    [
        ({"refresh_s": 4}, "nvml_power_instant.refresh_s"),
        ({"noise": 3}, "nvml_power_instant.averaging_s"),
        ({"fail_counter": 3}, "counter.refresh_s"),
        ({"kelvin_per_w": 0}, "temperature_slope_w_per_k"),
        ({"kelvin_per_w": 0.1, "power_cap_w": 350}, "temperature_slope_w_per_k"),
        (
            {"kelvin_per_w": 0.1, "power_cap_w": 350, "fail_throttle": 3},
            "temperature_slope_w_per_k",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_found_out_is_null_with_the_reason(characterised, simulated, quantity):
    found = characterised(**simulated)
    group, _, name = quantity.rpartition(".")
    place = found["readings"].get(group) or found.get(group) or found
    assert place[name] is None
    assert found["reasons"][quantity]


def test_the_file_keeps_what_the_response_was_found_from(characterised):
    document = characterised(window_s=0.025, noise=0.01)
    recording = document["recording"]
    found = document["readings"]["nvml_power_instant"]
    again = fit_response(recording["busy_s"], recording["changes_s_w"]["nvml_power_instant"])
    assert again.averaging_s == pytest.approx(found["averaging_s"], rel=0.05)
    assert again.explained == pytest.approx(found["explained"], abs=0.01)


def test_a_counter_alone_is_characterised_too(tmp_path):
    cores = Cores(tmp_path)
    found = characterise(RaplMeter(tmp_path, cores.now_s), cores, cores)
    assert found["meter"] == "rapl"
    assert found["idle_power_w"] == pytest.approx(20, rel=0.02)
    assert found["readings"]["rapl"]["refresh_s"] == 0.1
    assert found["reasons"]["idle_power_without_context_w"] == "a processor has no context"
    assert found["reasons"]["temperature_slope_w_per_k"] == "the temperature is unknown"


def test_the_protocol_reads_the_file(characterised, tmp_path):
    document = characterised(window_s=0.025, noise=0.01, rise_s=0.01)
    path = tmp_path / "sensor.json"
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **document}))
    sensor = sensor_of(NvmlMeter(UUID), path)
    assert sensor.source == "measured"
    assert sensor.averaging_s == pytest.approx(0.025, rel=0.25)
    assert sensor.counter_refresh_s == pytest.approx(0.1, rel=0.05)
    assert sensor.idle_w == pytest.approx(60, rel=0.02)
    assert sensor.gain_uncertainty == 0.05


def test_what_the_file_does_not_know_is_assumed_and_said_so(characterised, tmp_path):
    path = tmp_path / "sensor.json"
    document = characterised(refresh_s=4)
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **document}))
    assert sensor_of(NvmlMeter(UUID), path).source == "partly assumed"
    nothing = {"schema_version": SCHEMA_VERSION, "meter": None, "meter_reason": "no sensor"}
    path.write_text(json.dumps(nothing))
    assert sensor_of(NvmlMeter(UUID), path).source == "assumed"
    assert sensor_of(NvmlMeter(UUID), None).source == "assumed"


def test_a_file_of_another_version_is_refused_with_the_remedy(card, tmp_path):
    path = tmp_path / "sensor.json"
    path.write_text('{"schema_version": 0}')
    with pytest.raises(OpcostError, match="schema version 0; this opcost reads 1: delete it"):
        sensor_of(NvmlMeter(UUID), path)


WHOLE = {
    "schema_version": SCHEMA_VERSION,
    "meter": "nvml",
    "readings": {"nvml": dict.fromkeys(("refresh_s", "averaging_s", "lag_s", "rise_s"), 0.1)},
    "counter": {"refresh_s": None},
    "idle_power_w": 60.0,
}
WHOLE["readings"]["nvml"]["correlated_share"] = None


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["meter"], None, "has no meter_reason"),
        (["readings"], {"nvml": 1}, "readings is {'nvml': 1}; allowed is an object of objects"),
        (["readings", "nvml", "refresh_s"], 0, "reading nvml: refresh_s is 0"),
        (["readings", "nvml", "averaging_s"], math.nan, "NaN is not a finite number"),
        (["readings", "nvml", "lag_s"], -1, "reading nvml: lag_s is -1"),
        (["readings", "nvml", "correlated_share"], 2, "correlated_share is 2"),
        (["counter"], {}, "counter has no refresh_s"),
        (["idle_power_w"], "60", "idle_power_w is '60'"),
    ],
)
def test_what_no_sensor_can_be_like_is_refused_with_the_remedy(tmp_path, keys, value, message):
    path, document = tmp_path / "sensor.json", copy.deepcopy(WHOLE)
    path.write_text(json.dumps(document))
    assert read_document(path) == document
    *above, last = keys
    functools.reduce(dict.__getitem__, above, document)[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(OpcostError, match="delete it and run again") as caught:
        read_document(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", f'{{"schema_version": {SCHEMA_VERSION}}}'])
def test_a_sensor_file_without_content_is_refused(tmp_path, content):
    (tmp_path / "sensor.json").write_text(content)
    with pytest.raises(OpcostError, match="delete it and run again"):
        read_document(tmp_path / "sensor.json")


def test_a_sensor_like_no_other_is_not_used(cpu, tmp_path, monkeypatch):
    meter = SimpleNamespace(
        name="odd",
        assumed=None,
        missing={},
        reads_since_last=False,
        overlap=None,
        shared_by_time=False,
    )
    monkeypatch.setattr(station, "open_meter", lambda *_: meter)
    monkeypatch.setattr(station, "characterise", lambda *_, **__: {"meter": "odd", "x": math.nan})
    characterise_target("cpu", lambda: cpu, tmp_path / "sensor.json")
    document = read_document(tmp_path / "sensor.json")
    assert document["meter"] is None
    assert "NaN is not a finite number" in document["meter_reason"]


def test_a_device_without_a_meter_is_a_file_that_says_so(cpu, tmp_path, monkeypatch):
    monkeypatch.setattr("opcost.energy.rapl._packages", lambda _: [])
    characterise_target("cpu", lambda: cpu, tmp_path / "sensor.json")
    document = json.loads((tmp_path / "sensor.json").read_text())
    assert document["meter"] is None
    assert "no energy sensor" in document["meter_reason"]
    assert document["device_name"] == cpu.model_name


def test_readings_that_cannot_be_reckoned_with_are_no_meter(cpu, card, tmp_path, monkeypatch):
    card.reset()
    monkeypatch.setattr(station, "open_meter", lambda *_: NvmlMeter(UUID))
    monkeypatch.setattr(station, "_matrix_product", lambda _: None)
    monkeypatch.setattr(station, "characterise", lambda *_, **__: 1 / 0)
    characterise_target("cpu", lambda: cpu, tmp_path / "sensor.json")
    found = read_document(tmp_path / "sensor.json")
    assert (found["meter"], found["meter_reason"]) == (
        None,
        "the power meter's readings make no sense: division by zero",
    )


def test_the_period_is_found_where_renewals_go_unseen():
    times_s = np.arange(0, 20, 0.01)
    shown = random.Random(0).choices([100, 101], k=200)
    assert refresh_period_s(times_s, [shown[int(t / 0.1 + 1e-9)] for t in times_s]) == (
        pytest.approx(0.1, rel=0.01)
    )
    assert refresh_period_s(times_s, [100.0] * len(times_s)) is None


def test_a_reading_that_has_nothing_to_do_with_the_load_is_not_fitted():
    draw = random.Random(0)
    readings = [(0.1 * i, draw.gauss(100, 10)) for i in range(100)]
    assert fit_response([(1.0, 2.0), (4.0, 7.0)], readings) is None


def test_what_an_h200_said_is_a_moving_average_whatever_its_load_was_before():
    """It was busy until the recording began. Yang et al. (arXiv 2312.02741) find 25 ms, too."""
    sensor = json.loads((ROOT / "data/reference/h200/sensor.json").read_text())
    recording = sensor["recording"]
    found = {
        name: fit_response(recording["busy_s"], readings)
        for name, readings in recording["changes_s_w"].items()
    }
    assert found["nvml_power_instant"].averaging_s == pytest.approx(0.027, abs=0.003)
    for name in ("nvml_power_usage", "nvml_power_average"):
        assert found[name].averaging_s == pytest.approx(1.0, abs=0.02)
    assert all(each.explained > 0.99 for each in found.values())
    assert found["nvml_power_instant"].lag_s + found["nvml_power_instant"].rise_s < 0.002


@pytest.mark.parametrize("before_w", [50.0, 600.0])
@pytest.mark.parametrize("window_s", [0.025, 1.0])
def test_what_was_before_a_recording_does_not_change_what_is_found(window_s, before_w):
    draw = random.Random(0)
    busy, begin_s = [], 0.0
    while begin_s < 15:
        busy.append((begin_s, begin_s + draw.uniform(0.03, 0.4)))
        begin_s = busy[-1][1] + draw.uniform(0.03, 0.4)
    moments_s = np.arange(-2, 16, 0.001)
    power_w = np.where(moments_s < 0, before_w, 50.0)
    for begin_s, end_s in busy:
        power_w[(moments_s >= begin_s) & (moments_s < end_s)] = 600.0
    window = round(window_s / 0.001)
    readings = [
        (float(moments_s[last]), float(power_w[last - window : last].mean()))
        for last in range(2000, len(moments_s), 100)
    ]
    assert fit_response(busy, readings).averaging_s == pytest.approx(window_s, rel=0.05)


def test_noise_is_about_the_trend():
    draw = np.random.default_rng(0)
    values = np.linspace(100, 110, 500) + draw.normal(0, 1, 500)
    deviation, autocorrelation = noise(values.tolist())
    assert deviation == pytest.approx(1 / 105, rel=0.1)
    assert autocorrelation == pytest.approx(0, abs=0.1)
    assert noise([1.0, 2.0]) is None
    assert noise([5.0] * 20) == (0.0, 0.0)
