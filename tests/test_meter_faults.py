"""A power meter that crashes or hangs takes energy from a row, never the time that was measured.

Whole jobs: in their measuring process, the real pynvml reads the card of tests/simulated_nvml.
"""

from dataclasses import replace

import pytest
from opcost.devices.device_file import DeviceFile, write_device
from opcost.energy import limited_meter
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import read_document
from opcost.errors import OpcostError
from opcost.measuring import station
from opcost.measuring.job import sensor_job, subject_job
from opcost.measuring.subjects import OperatorSubject
from opcost.measuring.target_identity import TargetFiles
from opcost.rows import records, schemas
from opcost.tuples import manifest

from tests.simulated_nvml.card import UUID

CRASHED = "crashed: killed by SIGSEGV"
HUNG = "crashed: killed by SIGALRM"
UNTIL_LOAD = 8
"""Readings of the card until it is under load, at the least."""


@pytest.fixture
def identified(cpu, tmp_path):
    path = tmp_path / "device.json"
    write_device(path, DeviceFile("cpu", cpu.model_name, lock_key="cpu", quiet_s=1e-3))
    return path


@pytest.fixture
def faulty_meter(card, monkeypatch):
    """The processor's power is read from a card with these faults."""

    def faulty_meter(**faults):
        card.reset(virtual=0, **faults)
        monkeypatch.setattr(station, "open_meter", lambda *_: NvmlMeter(UUID))
        monkeypatch.setattr(limited_meter, "_TIMEOUT_S", 0.5)

    return faulty_meter


@pytest.fixture
def measured(conditions, identified, tiny_tuples, tmp_path):
    """The row of an operator."""
    collected = manifest.collect(tiny_tuples, ["conv2d"])
    manifest.write_manifest(tmp_path / "tuples.json", collected)
    [tuple_id, *_] = manifest.to_benchmark(collected)

    def measured(sensor=None):
        files = TargetFiles("local", conditions, identified, sensor)
        subject = OperatorSubject(manifest.read_record(tmp_path / "tuples.json", tuple_id))
        subject_job(subject, files, 1, tmp_path / "row.parquet")
        [row] = records.read(tmp_path / "row.parquet", schemas.OPERATOR).to_pylist()
        return row

    return measured


def time_is_kept(row):
    return row["status"] == "ok" and row["time_s"] > 0 and row["energy_j"] is None


@pytest.mark.parametrize(("fault", "death"), [("crash", CRASHED), ("hang", HUNG)])
@pytest.mark.parametrize(
    ("reading", "when"),
    [
        (0, "opening the power meter failed"),
        (UNTIL_LOAD, "the process died before it had measured"),
    ],
    ids=["at the start", "under load"],
)
def test_time_outlives_the_meter(faulty_meter, measured, fault, death, reading, when):
    faulty_meter(**{f"{fault}_at_reading": reading})
    row = measured()
    assert time_is_kept(row)
    assert row["energy_reason"].startswith(when)
    assert death in row["energy_reason"]
    assert row["device_time_s"] > row["time_s"]
    assert len(row["block_time_s"]) >= 6
    assert row["measured_at"] is not None


def test_a_sensor_that_kills_who_reads_it_is_not_read_again(
    faulty_meter, measured, conditions, identified, tmp_path
):
    faulty_meter(crash_at_reading=4)
    sensor_job(TargetFiles("local", conditions, identified), tmp_path / "sensor.json")
    reason = read_document(tmp_path / "sensor.json")["meter_reason"]
    assert "crashed: killed by SIGSEGV" in reason
    assert f"delete {tmp_path / 'sensor.json'} and the rows without energy, and run again" in reason
    row = measured(tmp_path / "sensor.json")
    assert time_is_kept(row)
    assert row["energy_reason"] == reason


def test_sustained_operation_is_refused_where_there_is_no_meter(
    faulty_meter, conditions, identified, tmp_path
):
    faulty_meter(crash_at_reading=4)
    settings = replace(conditions.measurement, operation="sustained")
    files = TargetFiles("local", replace(conditions, measurement=settings), identified)
    needs = "sustained needs a power meter, and target local has none .*SIGSEGV.*: use burst"
    with pytest.raises(OpcostError, match=needs):
        sensor_job(files, tmp_path / "sensor.json")
