"""The files of recordings, their rows, and what is printed of them."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.energy.sensor import Sensor
from opcost.errors import OpcostError
from opcost.power import recording
from opcost.power.attribution import MEMORY, PROCESSOR_TIME
from opcost.power.energy import DeviceEnergy, together
from opcost.power.recording import IDLE, MACHINE, SAMPLE, VERSION, finish, recording_beside
from opcost.power.text import as_document, as_text, rows_by_name, window_lines
from opcost.statistics import Estimate

from tests.opcost_measure import GPU

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1, gain_uncertainty=0.05)
WATTS = 200.0
SECOND = Estimate(1.0, None, None)
TEN = Estimate(10.0, 9.0, 11.0)
SHORT = "0.01 s are too short for the sensor"


def recorded(output, windows, **about):
    """The recording of a card that draws constant power for 20 s, with windows of those names."""
    recording = recording_beside(output)
    recording.folder.mkdir()
    source = {"name": GPU, "sensor": vars(SENSOR), "reads_since_last": False}
    known = {"sources": [source], "period_s": 0.02, "missing": {}, "labels": {}}
    recording.begin({**known, **about})
    samples = np.zeros(1000, SAMPLE)
    for name in SAMPLE.names[2:]:
        samples[name] = np.nan
    samples["time_s"] = 5 + np.arange(len(samples)) * 0.02
    samples["counter_j"] = np.floor(samples["time_s"] / 0.1 + 1e-9) * 0.1 * WATTS
    cut = bytes(3 * SAMPLE.itemsize + 7)  # by a power failure
    recording.samples_file.write_bytes(samples.tobytes() + cut)
    for name, start_s, end_s in windows:
        recording.note({"window": name, "start_s": start_s, "end_s": end_s})
    return recording


def printed(*arguments):
    return CliRunner().invoke(main, ["windows", *map(str, arguments)]).output


def test_a_recording_becomes_one_file_of_readings_and_windows(tmp_path):
    output = tmp_path / "run.parquet"
    windows = [("epoch", 8.0, 12.0), ("step", 9.0, 9.002), ("step", 13.0, 15.0)]
    recording = recorded(output, windows, missing={"cpu": "no energy sensor"})
    with recording.events_file.open("a") as events:
        events.write('{"time_s": 9.5, "metrics": {"loss": 0.5, "time": NaN}}\n')
    assert finish(recording, output) == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
    table = pq.read_table(output)
    assert table["device"].to_pylist()[0] == GPU
    assert table["power_w"].null_count == table.num_rows == 1000
    rows = power.read_windows(output)
    assert [(row["window"], row["start_s"], row["end_s"]) for row in rows] == windows
    energy = rows[0]["devices"][GPU].energy
    assert energy.low <= 4 * WATTS <= energy.high
    assert rows[0]["metrics"]["loss"] == 0.5
    assert "too short" in rows[1]["devices"][GPU].reason
    assert rows[2]["metrics"] == {}
    said = " ".join(printed(output).split())
    assert said.startswith("window windows time cuda:0 cpu loss time epoch 1 4.000 s 800")
    assert "cpu: no energy in any window: no energy sensor." in said
    assert "cuda:0: no energy in 'step': 1 of 2 windows have no energy; the first of them:" in said
    assert said.count("The interval does not hold the error of the sensor's gain") == 1
    for options in ([], ["--each"]):
        known = json.loads(printed("--json", *options, output))
        fields = {tuple(used) for row in known for used in row["devices"].values()}
        assert len(fields) == 1
        assert known[0]["metrics"] == {"loss": 0.5, "time": None}
        assert known[0]["devices"]["cpu"]["reason"] == "no energy sensor"


def test_energy_above_idle_is_that_of_a_window_without_that_of_an_idle_one(tmp_path):
    output = tmp_path / "run.parquet"
    finish(recorded(output, [(IDLE, 6.0, 8.0), ("epoch", 8.0, 18.0)]), output)
    idle, epoch = (row["devices"][GPU] for row in power.read_windows(output))
    assert epoch.idle_power.low <= WATTS <= epoch.idle_power.high
    assert epoch.above_idle.low <= 0 <= epoch.above_idle.high  # it idles all the time
    assert epoch.above_idle.value == epoch.energy.value - 10 * idle.energy.value / 2
    assert epoch.above_idle_reason is None
    text = " ".join(as_text("epoch", SECOND, {GPU: epoch})[2].split())
    assert text == "device energy above idle mean power changes"


def test_without_an_idle_window_no_energy_is_above_idle_and_the_reason_says_what_to_do():
    used = DeviceEnergy(TEN, None, 1.0)
    assert used.with_idle(DeviceEnergy(None, SHORT, 1.0)).above_idle is None
    assert "opcost measure --idle 10s" in used.above_idle_reason
    assert DeviceEnergy(None, SHORT).above_idle_reason == SHORT
    assert "above idle" not in str(as_text("epoch", SECOND, {GPU: used}))


def test_a_total_needs_the_energy_of_each_device_and_counts_none_twice():
    inside = DeviceEnergy(TEN, None, 1.0, overlap="is contained in cpu: do not add the two")
    host, gpu = DeviceEnergy(TEN, None, 1.0, 3), DeviceEnergy(TEN, None, 1.0, 4, ("throttled",))
    name, found = together({GPU: gpu, "cpu": host, "cpu:core": inside})
    assert (name, found.energy) == (f"{GPU} + cpu", Estimate(20.0, 18.0, 22.0))
    assert (found.changes, found.flags, found.mean_power_w) == (7, ("throttled",), 20.0)
    assert found.above_idle is None
    idle = DeviceEnergy(Estimate(2.0, 2.0, 2.0), None, 1.0)
    of_both = {GPU: gpu.with_idle(idle), "cpu": host.with_idle(idle)}
    assert together(of_both)[1].above_idle == Estimate(16.0, 14.0, 18.0)
    _, none = together({GPU: gpu, "cpu": DeviceEnergy(None, "no energy sensor")})
    assert (none.energy, none.reason) == (
        None,
        "1 of 2 devices have no energy; the first of them: no energy sensor",
    )
    name, alone = together({"cpu": host, "cpu:core": inside})
    assert name == "all devices"  # the processor keeps its row
    assert "needs two devices" in alone.reason
    assert together({"cpu": DeviceEnergy(None, "no sensor")})[1].reason == "no sensor"


def test_the_machine_beside_a_window_is_what_was_read_in_it(tmp_path):
    output = tmp_path / "run.parquet"
    recording = recorded(output, [("epoch", 8.0, 12.0), ("step", 8.0, 8.1)], cores=4)
    of_machine = np.zeros(20, SAMPLE)
    for name in SAMPLE.names[2:]:
        of_machine[name] = np.nan
    of_machine["source"], of_machine["time_s"] = 1, 5 + np.arange(20)
    of_machine["all_use"] = 3.0 * np.arange(20)  # three of four cores are busy
    of_machine["own_memory_bytes"] = 1e6 * np.arange(20)
    of_machine["temperature_c"] = 50
    both = np.sort(np.concatenate([recording.samples(), of_machine]), order="time_s")
    recording.samples_file.write_bytes(both.tobytes())
    assert finish(recording, output) == len(both)
    step, epoch = (row["machine"] for row in power.read_windows(output))
    assert epoch == {
        "processor_use_percent": pytest.approx(75),
        "processor_temperature_c": 50,
        "memory_bytes": 7e6,
    }
    assert step["processor_use_percent"] is None
    assert MACHINE in pq.read_table(output)["device"].to_pylist()
    known = json.loads(printed("--json", "--each", output))[0]["machine"]
    assert "shorter than 0.2 s" in known["reasons"]["processor_use_percent"]


def test_a_file_of_the_version_before_is_read(tmp_path):
    path = tmp_path / "run.parquet"
    of_window = {"window": "epoch", "start_s": 0, "end_s": 1, "time_s": 1, "metrics": {}}
    used = DeviceEnergy(TEN, None, 1.0).columns
    old = {name: used[name] for name in used if "idle" not in name}
    known = {"version": 2, "labels": {}, "windows": [{**of_window, "devices": {GPU: old}}]}
    metadata = {b"opcost": json.dumps(known).encode()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), path)
    [row] = power.read_windows(path)
    assert (row["devices"][GPU].energy, row["machine"]) == (TEN, {})
    assert row["devices"][GPU].above_idle is None


def test_what_a_killed_measurement_left_is_recovered_by_the_next_command(tmp_path):
    output = tmp_path / "run.parquet"
    recorded(output, [("epoch", 8.0, 12.0)])
    with pytest.raises(OpcostError, match="exists: name another file"):
        power.Monitor([GPU], output=output)
    recorded(tmp_path / "other.parquet", [("epoch", 8.0, 12.0)], labels={"batch": "8"})
    lines = printed(output, tmp_path / "other.parquet").splitlines()
    assert lines[0].split() == ["recording", "batch", "window", "time", GPU]
    assert [line.split()[1] for line in lines[1:3]] == ["-", "8"]


def test_a_file_that_was_written_meanwhile_is_left_and_so_are_the_readings(tmp_path):
    output = tmp_path / "run.parquet"
    recording = recorded(output, [])
    output.write_text("mine\n")
    with pytest.raises(OpcostError, match="was written meanwhile; the readings stay in"):
        finish(recording, output)
    assert output.read_text() == "mine\n"
    output.unlink()
    assert len(power.read_windows(output)) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_who_finishes_a_recording_keeps_it_to_itself(times, tmp_path, monkeypatch):
    """A program that closes its monitor, and `opcost windows` on the same file meanwhile."""
    output, refused = tmp_path / "run.parquet", []
    held = recorded(output, [("epoch", 8.0, 12.0)])
    rows = recording.window_rows

    def slowly(*arguments):
        with pytest.raises(OpcostError, match="is being written by a measurement: wait"):
            power.read_windows(output)
        refused.append(output)
        time.sleep(0.5)
        return rows(*arguments)

    monkeypatch.setattr(recording, "window_rows", slowly)
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(finish, held, output) for _ in range(times)]
        assert [each.result() for each in found] == [1000] * times
    assert refused == [output]
    assert len(power.read_windows(output)) == 1


def test_a_recording_that_was_deleted_is_said_to_be(tmp_path):
    output = tmp_path / "run.parquet"
    monitor = power.Monitor([], output=output)
    shutil.rmtree(monitor.recording.folder)
    with pytest.raises(OpcostError, match=r"run\.parquet: No such file"):
        monitor.close()


def test_a_folder_in_the_place_of_a_recording_is_not_touched(tmp_path):
    folder = recording_beside(tmp_path / "run.parquet").folder
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(OpcostError, match="something else is there"):
        power.Monitor([GPU], output=tmp_path / "run.parquet")
    assert (folder / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (None, "is not a recording of opcost measure .another program wrote it"),
        (["x"], "is not a recording of opcost measure"),
        ({"version": VERSION + 1}, f"it is of version {VERSION + 1}, this opcost reads {VERSION}"),
        ({"version": VERSION, "labels": {}}, "is not a recording"),
    ],
)
def test_a_file_of_another_program_or_version_is_refused(described, message, tmp_path):
    path = tmp_path / "run.parquet"
    metadata = None if described is None else {b"opcost": json.dumps(described).encode()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), path)
    with pytest.raises(OpcostError, match=message):
        power.read_windows(path)


def row(name, start_s, energy=None, reason=None, **more):
    used = DeviceEnergy(energy, reason, 1.0, 4, **more)
    known = {"recording": "run.parquet", "labels": {}, "window": name, "metrics": {}}
    known |= {"start_s": start_s, "end_s": start_s + 1, "time_s": 1.0}
    return {**known, "devices": {GPU: used}}


def by_name(*rows):
    [found] = rows_by_name(rows)
    return found, " ".join(" ".join(window_lines([found])).split())


def test_the_total_of_a_name_has_the_limits_of_all_its_windows():
    found, _ = by_name(row("step", 0, TEN), row("step", 2, TEN))
    used = found["devices"][GPU]
    assert (found["windows"], found["time_s"]) == (2, 2)
    assert used.energy == Estimate(20.0, 18.0, 22.0)
    assert (used.changes, used.mean_power_w) == (8, 10.0)


def test_a_name_with_a_window_without_energy_has_no_total():
    found, text = by_name(row("step", 0, TEN), row("step", 2, None, SHORT), row("step", 4, TEN))
    assert found["devices"][GPU].energy is None
    reason = f"1 of 3 windows have no energy; the first of them: {SHORT}"
    assert found["devices"][GPU].reason == reason
    assert f"{GPU}: no energy: {reason}." in text


def test_windows_of_one_name_that_overlap_have_no_total():
    found, text = by_name(row("step", 0, TEN), row("step", 0.5, TEN))
    assert found["devices"][GPU].energy is None
    assert f"{GPU}: no energy: the windows overlap" in text


def test_reasons_that_differ_in_numbers_are_told_once_and_flags_with_their_windows():
    rows = [
        row("step", 0, None, SHORT),
        row("update", 1, None, SHORT.replace("0.01", "0.02")),
        row("epoch", 2, TEN, flags=("throttled",)),
    ]
    text = " ".join(" ".join(window_lines(rows)).split())
    assert f"{GPU}: no energy in 'step', 'update', in the first of them: {SHORT}." in text
    assert "in 'epoch'." in text
    assert text.count("flagged throttled (") == 1


def test_what_is_attributed_is_labelled_as_none_that_was_measured_and_null_has_a_reason():
    used = {
        "cpu": DeviceEnergy(TEN, None, 1.0, share=0.25, by=PROCESSOR_TIME),
        "cpu:core": DeviceEnergy(TEN, None, 1.0, overlap="is contained in cpu: do not add the two"),
        GPU: DeviceEnergy(TEN, None, 1.0, by=MEMORY),
        "amd:0": DeviceEnergy(None, "no driver"),
        "amd:1": DeviceEnergy(None, "no driver"),
    }
    text = " ".join(" ".join(as_text("run", SECOND, used)).split())
    assert "cpu: the program had 25% of its busy processor time; by that share, 2.50 J" in text
    assert "which is no measurement" in text
    assert "cpu:core is contained in cpu: do not add the two." in text
    assert "what part of it was the program's is unknown: its driver names no process" in text
    assert "amd:0, amd:1: no energy: no driver." in text
    found = as_document("run", SECOND, 1, used)["devices"]
    assert (found["cpu"]["attributed_share"], found["cpu"]["attributed_by"]) == (
        0.25,
        PROCESSOR_TIME,
    )
    assert found["cpu"]["attributed_reason"] is None
    assert found["amd:0"]["attributed_reason"] == "no driver"
    assert found["amd:0"]["time_s"] is None
    assert "its driver names no process" in found[GPU]["attributed_reason"]
