"""Gain and offset of a sensor, from the recording of an external wattmeter."""

import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.energy.wattmeter import Power, calibrate, read_wattmeter
from opcost.errors import OpcostError

from tests.simulated_wattmeter import SHIFT_S, both


@pytest.mark.parametrize("meter_period_s", [0.2, 0.5, 1.0])
def test_gain_and_offset_are_found_whatever_the_clock_and_the_rate_of_the_wattmeter(meter_period_s):
    found = calibrate(*both(meter_period_s=meter_period_s))
    assert found.gain.value == pytest.approx(1.06, abs=0.01)
    assert found.offset_w.value == pytest.approx(35, abs=2)
    assert found.shift_s == pytest.approx(SHIFT_S, abs=0.05)
    assert found.correlation > 0.99


def test_intervals_hold_the_truth():
    held = 0
    for seed in range(20):
        found = calibrate(*both(gain=0.97, offset_w=5.0, seed=seed), seed=seed)
        held += found.gain.low <= 0.97 <= found.gain.high
    assert held >= 16


def test_the_uncertainty_is_the_largest_error_that_the_interval_allows():
    found = calibrate(*both(gain=1.06))
    assert found.gain_uncertainty == pytest.approx(abs(1 / found.gain.high - 1))
    assert found.gain_uncertainty > 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meter, sensor: (meter, Power(sensor.times_s, sensor.watts[::-1])), "same load"),
        (
            lambda meter, sensor: (meter, Power(sensor.times_s, 100 + 0 * sensor.watts)),
            "power varies by 0% of its mean",
        ),
        (
            lambda meter, sensor: (Power(meter.times_s[:20], meter.watts[:20]), sensor),
            "wattmeter and sensor share",
        ),
    ],
)
def test_recordings_that_tell_no_gain_are_refused(change, message):
    with pytest.raises(OpcostError, match=message):
        calibrate(*change(*both()))


@pytest.mark.parametrize(
    ("text", "times_s"),
    [
        ("time,watts\n0,1\n1.5,2\n", [0, 1.5]),
        ("0,1\n1,2\n", [0, 1]),
        ("2026-11-25T00:00:00Z,1\n2026-11-25T00:00:02Z,2,more\n", [1795564800, 1795564802]),
    ],
)
def test_times_are_seconds_or_iso_8601(tmp_path, text, times_s):
    path = tmp_path / "meter.csv"
    path.write_text(text)
    assert read_wattmeter(path).times_s.tolist() == times_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,watts\n0,1\nlater,2\n", "line 3: 'later,2' is no time and power"),
        ("time,watts\n0,nan\n1,2\n", "is not finite"),
        ("time,watts\n2,1\n1,2\n", "ascending in time"),
        ("time,watts\n", "has 0 values"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    path = tmp_path / "meter.csv"
    path.write_text(text)
    with pytest.raises(OpcostError, match=message):
        read_wattmeter(path)


def test_files_that_are_no_recordings_are_explained(tmp_path):
    (tmp_path / "meter.csv").write_text("0,1\n1,2\n")
    (tmp_path / "run.parquet").write_text("no table")
    arguments = ["calibrate", str(tmp_path / "run.parquet"), str(tmp_path / "meter.csv")]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 1
    assert "is not a recording of opcost measure" in found.output
