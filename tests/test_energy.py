"""Energy by the real pynvml, against a simulated libnvidia-ml.so.1 whose power is known."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opcost.device import open_device
from opcost.energy import MeterUnavailable, PowerRecord, open_meter
from opcost.study import Target

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the simulated NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    source = HERE / "simulated_nvml" / "nvml.c"
    output = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o", output, source], check=True
    )
    return folder


@pytest.fixture
def measure(library):
    def measure(uuid="GPU-simulated", **simulated):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "PYTHONPATH": os.pathsep.join([str(HERE.parent / "scripts"), str(HERE)]),
            **{f"SIMULATED_{name.upper()}": str(value) for name, value in simulated.items()},
        }
        program = [sys.executable, str(HERE / "simulated_nvml" / "measure.py"), uuid]
        completed = subprocess.run(program, env=environment, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return measure


def test_power_and_energy_are_the_simulated_ones(measure):
    row = measure(power_w=250)
    assert row["power_w"] == pytest.approx(250, rel=0.011)  # the sensor alternates by 1 %
    assert row["power_ci_low_w"] < 250 < row["power_ci_high_w"]
    assert row["energy_j"] == pytest.approx(row["power_w"] * row["time_s"])
    assert row["energy_ci_low_j"] < row["energy_j"] < row["energy_ci_high_j"]
    assert row["idle_power_w"] == pytest.approx(250, rel=0.011)
    assert row["energy_reason"] is None
    assert row["meter"] == "nvml_power_instant"
    assert len(row["power_sample_w"]) == len(row["power_sample_time_s"]) >= 10
    assert "counter_disagrees" not in row["flags"]


def test_a_counter_that_disagrees_is_flagged(measure):
    row = measure(counter_gain=1.5)
    assert "counter_disagrees" in row["flags"]
    assert row["power_w"] == pytest.approx(300, rel=0.011)


def test_a_missing_counter_is_null_and_nothing_worse(measure):
    row = measure(fault="no_counter")
    assert row["counter_power_w"] is None
    assert row["energy_j"] > 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no_device", "Not Found"),
        ("no_field", "no instantaneous power for this GPU: Not Supported"),
        ("no_permission", "Insufficient Permissions"),
    ],
)
def test_without_a_reading_energy_is_null_with_the_reason(measure, fault, reason):
    row = measure(fault=fault)
    assert "energy_j" not in row
    assert reason in row["energy_reason"]
    assert row["time_s"] > 0


def test_a_missing_driver_is_a_reason(monkeypatch):
    from opcost.energy import NvmlMeter

    with pytest.raises(MeterUnavailable, match="NVML"):
        NvmlMeter("GPU-none")


def test_a_processor_has_no_meter_yet():
    with pytest.raises(MeterUnavailable, match="no energy sensor is supported for device cpu"):
        open_meter(open_device(Target("cpu", 1, False)))


def test_readings_between_two_refreshes_are_one():
    record = PowerRecord(
        times_s=[0.0, 0.1, 0.2, 0.3], powers_w=[5.0, 5.0, 7.0, 5.0], start_s=0.0, end_s=0.5
    )
    held = record.refreshes()
    assert [power_w for _, power_w in held] == [5.0, 7.0, 5.0]
    assert [held_s for held_s, _ in held] == pytest.approx([0.2, 0.1, 0.2])
