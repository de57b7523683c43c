"""Files of recordings that other programs, versions and people have made or named."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost import power
from opcost.errors import OpcostError
from opcost.power.export import prepare_table, segments
from opcost.power.recording import SAMPLE, VERSION, Recording, around

from tests.opcost_measure import GPU


@pytest.fixture
def table(tmp_path):
    """Writes a file of a recording."""

    def write(**about):
        segment = {"version": VERSION, "unix_s": 0, "monotonic_s": 0, "events": [], **about}
        path = tmp_path / "run.parquet"
        times = pa.array([0, 1_000_000], pa.timestamp("us", "UTC"))
        columns = {"segment": [1, 1], "time": times, "device": [GPU, GPU]}
        columns |= {"power_w": [60.0, 61.0], "counter_j": [0.0, 60.0]}
        described = {b"opcost": json.dumps([segment]).encode()}
        pq.write_table(pa.table(columns).replace_schema_metadata(described), path)
        return path

    return write


def test_a_recording_of_a_later_version_is_neither_read_nor_continued(table):
    path = table(version=VERSION + 1)
    for refused in (segments, lambda path: prepare_table(path, append=True)):
        with pytest.raises(OpcostError, match=f"it is of version {VERSION + 1}, this opcost reads"):
            refused(path)


@pytest.mark.parametrize("damaged", [{"a": 1}, ["x"], [{"version": "x"}]])
def test_a_description_of_another_shape_is_no_recording(damaged, tmp_path):
    path = tmp_path / "run.parquet"
    described = {b"opcost": json.dumps(damaged).encode()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(described), path)
    with pytest.raises(OpcostError, match="is not a recording of opcost measure"):
        segments(path)


@pytest.mark.usefixtures("card_of_sampler")
def test_an_output_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "disk").mkdir()
    link, output = tmp_path / "run.parquet", tmp_path / "disk" / "other.parquet"
    link.symlink_to(output)
    power.Monitor([GPU], output=link).close()
    assert link.is_symlink()
    assert len(segments(output)) == 1


@pytest.mark.parametrize(
    "named", ["null", "5", "{}", "[1]", '[{"folder": 5, "id": "a"}]', '[{"folder": "/a"}]', "?"]
)
def test_a_variable_of_another_shape_names_no_recording(named, monkeypatch, tmp_path):
    monkeypatch.setenv("OPCOST_RECORDINGS", named)
    assert around() == []
    assert not power.log(loss=1)
    recording = Recording(tmp_path)
    recording.begin({})
    own = {"folder": str(tmp_path), "id": recording.about["id"]}
    monkeypatch.setenv("OPCOST_RECORDINGS", json.dumps([5, own]))
    assert around() == [recording]


def test_events_that_are_damaged_or_cut_spoil_no_others(tmp_path):
    recording = Recording(tmp_path)
    window = {"window": "step", "start_s": 1.0, "end_s": 2.0}
    recording.note(window)
    with recording.events_file.open("ab") as file:
        for damaged in (b"\xff", b"5", b'{"window": "x"}', b'{"window": "x", "start_s": "1"}'):
            file.write(damaged + b"\n")
        file.write(b'{"time_s": 3.0, "wind')  # by a full disk
    recording.note({**window, "window": "next"})
    assert [event["window"] for event in recording.events()] == ["step", "next"]


@given(complete=st.integers(0, 40), zeros=st.integers(0, 5), part=st.integers(0, SAMPLE.itemsize))
def test_zeros_at_the_end_of_the_readings_are_no_readings(complete, zeros, part):
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder))
        samples = np.zeros(complete + zeros, SAMPLE)
        samples["time_s"][:complete] = 5.0 + np.arange(complete)
        recording.samples_file.write_bytes(samples.tobytes() + bytes(part % SAMPLE.itemsize))
        assert recording.size == complete
        assert len(recording.mapped()) == complete


@pytest.mark.parametrize(
    "described", [[], [{"events": 5}], [{"events": [5]}], [{"events": [{"window": "x"}]}]]
)
def test_a_damaged_description_of_windows_is_refused(described, tmp_path):
    path = tmp_path / "run.parquet"
    metadata = {b"opcost": json.dumps(described).encode()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), path)
    with pytest.raises(OpcostError, match="its description is damaged"):
        segments(path)


def test_a_monitor_that_is_not_closed_writes_its_output_as_the_program_ends(
    card_of_sampler, tmp_path
):
    output = tmp_path / "run.parquet"
    script = (
        f"from opcost import power; m = power.Monitor(output={str(output)!r}); print(m.devices)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert pq.read_metadata(output).num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"period_s": "0.1"}, "period_s is '0.1'; allowed: seconds from 0.001 to 60"),
        ({"period_s": True}, "period_s is True"),
        ({"user": "x"}, "user is 'x'; allowed: the id of a process"),
        ({"user": -5}, "user is -5"),
        ({"devices": 5}, "devices is 5: give a list of names"),
        ({"labels": [1]}, "labels is .*: give names and texts"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, message):
    with pytest.raises(OpcostError, match=message):
        power.Monitor(**arguments)
