"""What a calibration says of the clocks, and in which sensor files it is kept."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.energy.sensor import Sensor, read_sensor
from opcost.energy.wattmeter import Power, calibrate
from opcost.power.export import SCHEMA

GPU = "cuda:0"
PERIODIC_S = (3.0, 3.0)
UNEQUAL_S = (1.0, 4.2, 2.3, 1.7, 5.1, 3.4, 2.9, 1.2, 3.8)


def load(parts_s, seconds=120.0):
    """Power on a fine grid: 60 W and 300 W by turns, for these times."""
    times_s = np.arange(0, seconds, 0.01)
    ends_s = np.cumsum(np.resize(parts_s, 1000))
    return times_s, np.where(np.searchsorted(ends_s, times_s, "right") % 2, 300.0, 60.0)


def averaged(times_s, watts, period_s, start_s=0.0):
    edges_s = np.arange(start_s, times_s[-1], period_s)
    joules = np.concatenate([[0.0], np.cumsum(watts[1:] * np.diff(times_s))])
    means = np.diff(np.interp(edges_s, times_s, joules)) / period_s
    return Power(edges_s[1:], means + np.random.default_rng(0).normal(0, 1, len(means)))


def both(parts_s):
    """A wattmeter, and a sensor."""
    times_s, watts = load(parts_s)
    return averaged(times_s, 1.05 * watts + 20, 1.0, 3.3), averaged(times_s, watts, 0.1)


def test_a_load_that_repeats_itself_leaves_the_clock_ambiguous_and_the_gain_known():
    periodic = calibrate(*both(PERIODIC_S))
    assert periodic.repeats_s == pytest.approx(6.0, abs=0.2)
    assert periodic.gain.value == pytest.approx(1.05, abs=0.01)
    assert calibrate(*both(UNEQUAL_S * 3 + (2.2,))).repeats_s is None


@pytest.fixture
def files(tmp_path):
    """A recording of the card, a wattmeter's values and a sensor file."""
    meter, sensor = both(PERIODIC_S)
    wattmeter = tmp_path / "meter.csv"
    wattmeter.write_text(
        "".join(f"{t},{w}\n" for t, w in zip(meter.times_s, meter.watts, strict=True))
    )
    count = len(sensor.times_s)
    columns = {
        "segment": pyarrow.array([1] * count),
        "time": pyarrow.array((sensor.times_s * 1e6).astype("int64")),
        "time_s": pyarrow.array(sensor.times_s),
        "device": pyarrow.array([GPU] * count).dictionary_encode(),
        "power_w": pyarrow.array(sensor.watts),
    }
    table = pyarrow.table(
        {
            field.name: columns.get(field.name, pyarrow.nulls(count)).cast(field.type)
            for field in SCHEMA
        },
        schema=SCHEMA.with_metadata({"opcost": json.dumps([{"sources": [{"name": GPU}]}])}),
    )
    pq.write_table(table, tmp_path / "run.parquet")
    return tmp_path / "run.parquet", wattmeter, tmp_path / "sensor.json"


def sensor_document(**changes):
    reading = dict.fromkeys(("refresh_s", "averaging_s", "lag_s", "rise_s", "correlated_share"))
    return {
        "schema_version": 1,
        "device": GPU,
        "device_name": "Card",
        "meter": "power",
        "readings": {"power": reading},
        "counter": {"refresh_s": None},
        "idle_power_w": 60.0,
        **changes,
    }


def calibrated(files):
    recording, wattmeter, sensor = map(str, files)
    return CliRunner().invoke(main, ["calibrate", recording, wattmeter, "--sensor", sensor])


def test_a_calibration_is_kept_with_the_sensor_and_replaces_the_assumed_error(files):
    path = files[-1]
    path.write_text(json.dumps(sensor_document()))
    assumed = Sensor(refresh_s=0.1, averaging_s=0.1, gain_uncertainty=0.05)
    assert read_sensor(path, "power", assumed).gain_uncertainty == 0.05
    found = calibrated(files)
    assert found.exit_code == 0
    kept = read_sensor(path, "power", assumed).gain_uncertainty
    assert kept == pytest.approx(1 - 1 / 1.05, abs=0.01)
    assert json.loads(path.read_text())["readings"] == sensor_document()["readings"]
    assert f"gain_uncertainty {100 * kept:.1f}%, the largest error" in found.output
    assert "The load repeats itself after 6.0 s" in found.output


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            sensor_document(device="cpu", device_name="EPYC"),
            "is of device 'cpu' ('EPYC'), the recording of 'cuda:0': give the sensor.json of",
        ),
        (
            sensor_document(meter=None, meter_reason="no energy sensor"),
            "is of a target without a meter (no energy sensor): there is no sensor to calibrate",
        ),
    ],
)
def test_the_sensor_file_of_another_device_or_without_a_meter_is_refused(files, document, message):
    files[-1].write_text(json.dumps(document))
    found = calibrated(files)
    assert found.exit_code == 1
    assert message in " ".join(str(found.output).split())
    assert "gain " not in found.output
    assert json.loads(files[-1].read_text()) == document
