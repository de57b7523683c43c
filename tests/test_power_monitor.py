"""Windows around code and commands, with a sampler process that reads a simulated card.

The card idles at 60 W, in real time, in the sampler's process: what this process computes does not
change that.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.power import windows
from opcost.power.attribution import By, User, share
from opcost.power.command import watch
from opcost.power.device_energy import DeviceEnergy
from opcost.power.export import recording_beside, segments
from opcost.power.recorded_windows import window_rows
from opcost.power.recording import SAMPLE, Recording
from opcost.power.window_text import as_document, as_line, as_text, repeated
from opcost.rows.quantities import ENERGY
from opcost.statistics import Estimate

from tests.opcost_measure import GPU, IDLE_W, measure, used

pytestmark = pytest.mark.usefixtures("card_of_sampler")


def is_about(estimate, joules):
    return estimate.low <= joules * 1.02 and estimate.high >= joules * 0.98


def test_a_window_has_the_energy_of_each_device_or_the_reason_why_not():
    with power.measure("sleep") as window:
        time.sleep(0.6)
    assert is_about(window.devices[GPU].energy, IDLE_W * window.time_s)
    assert window.devices[GPU].mean_power_w == pytest.approx(IDLE_W, rel=0.1)
    text = str(window)
    assert text.startswith("sleep: ")
    if window.devices["cpu"].energy is None:
        assert f"cpu: no energy: {window.devices['cpu'].reason}" in " ".join(text.split())


def test_windows_nest_and_overlap():
    first = power.start("first")
    time.sleep(0.3)
    with power.measure("second") as second:
        time.sleep(0.3)
        first.stop()
        time.sleep(0.3)
    for window in (first, second):
        assert is_about(window.devices[GPU].energy, IDLE_W * window.time_s)
    assert (first.time_s, second.time_s) == (pytest.approx(0.6, rel=0.2),) * 2


def test_a_window_is_over_once_and_asked_after_that():
    window = power.start("once")
    assert str(window) == "once: not over"
    with pytest.raises(OpcostError, match="is not over: call its stop"):
        _ = window.devices
    window.stop()
    with pytest.raises(OpcostError, match="is over already"):
        window.stop()


def test_a_block_that_raises_has_a_window_as_well():
    def fail():
        time.sleep(0.3)
        raise RuntimeError

    with pytest.raises(RuntimeError), power.measure("failing") as window:
        fail()
    assert window.devices[GPU].energy is not None


def test_a_short_window_has_an_upper_limit():
    with power.measure("short") as window:
        time.sleep(0.002)
    found = window.devices[GPU]
    assert found.energy is None
    assert "are too short for the sensor" in found.reason
    assert found.at_most_j >= IDLE_W * window.time_s


def test_devices_are_chosen_by_name_and_wrong_ones_explained():
    with power.Monitor([GPU]) as monitor:
        assert monitor.devices == [GPU]
    with pytest.raises(OpcostError, match=r"'cuda:7' is no device of this machine.*cuda:0"):
        power.Monitor(["cuda:7"])
    with pytest.raises(OpcostError, match="period_s is 0; allowed"):
        power.Monitor(period_s=0)


def test_a_recording_needs_an_empty_folder(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(OpcostError, match="is not an empty folder"):
        power.Monitor(folder=tmp_path)


def test_the_sampler_ends_when_its_parent_is_killed_and_loses_a_second_at_most(tmp_path):
    folder = tmp_path / "kept"
    script = (
        "import os, sys, time\n"
        "from opcost import power\n"
        f"monitor = power.Monitor(['{GPU}'], folder={str(folder)!r})\n"
        "print(monitor._sampler.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        sampler = int(parent.stdout.readline())
        time.sleep(2)
        parent.kill()
        killed_s = time.monotonic()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{sampler}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{sampler}").exists()
    samples = Recording(folder).samples()
    assert killed_s - samples["time_s"][-1] < 1
    assert len(samples) > 50


def test_what_a_killed_sampler_wrote_is_kept_and_a_window_says_that_it_was(tmp_path):
    with power.Monitor([GPU], folder=tmp_path / "kept") as monitor:
        window = power.start("cut off", monitor=monitor)
        time.sleep(1.5)
        monitor._sampler.process.kill()
        monitor._sampler.process.wait()
        window.stop()
        found = window.devices[GPU]
        assert found.energy is None
        assert found.reason == "the process that reads the meters has ended (killed by SIGKILL)"
    assert len(Recording(tmp_path / "kept").samples()) > 40


def test_a_fork_has_a_monitor_of_its_own():
    power.start("parent").stop()
    child = os.fork()
    if child == 0:
        try:
            window = power.start("child")
            time.sleep(0.3)
            window.stop()
            os._exit(0 if window.devices[GPU].energy else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
    ],
)
def test_the_exit_code_is_that_of_the_command(command, code):
    assert measure("--", *command).returncode == code


def test_streams_and_options_after_the_command_are_its_own():
    script = 'read line; echo "$line" "$@"'
    found = measure("sh", "-c", script, "sh", "--json", "-d", input="hello\n")
    assert found.stdout == "hello --json -d\n"
    assert f"{GPU} " in found.stderr


def test_repeated_runs_have_an_interval_over_the_runs():
    found = measure("--json", "--repeat", 3, "--", "sleep", 0.4)
    assert '"runs": 3' in found.stderr
    time_s = json.loads(found.stderr)
    assert time_s["time_ci_low_s"] < time_s["time_s"] < time_s["time_ci_high_s"]
    assert used(found)["energy_j"] == pytest.approx(IDLE_W * 0.4, rel=0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command(number):
    """SIGINT: one that no terminal sends to the command as well."""
    script = "trap 'echo ended; exit 3' TERM INT; echo ready; while true; do sleep 0.05; done"
    command = [sys.executable, "-m", "opcost", "measure", "--", "sh", "-c", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        try:
            assert running.stdout.readline() == b"ready\n"
            running.send_signal(number)
            assert running.stdout.readline() == b"ended\n"
            assert running.wait(20) == 3
        finally:
            running.kill()


def test_a_process_is_measured_until_it_ends():
    with subprocess.Popen(["sleep", "5"]) as process:
        found = measure("--json", "--pid", process.pid)
    assert found.returncode == 0
    assert 10 < used(found)["energy_j"] < 300
    gone = measure("--pid", process.pid)
    assert (gone.returncode, "there is no process" in gone.stderr) == (1, True)


def test_readings_windows_labels_and_metrics_are_written_to_a_table(tmp_path):
    output = tmp_path / "run.parquet"
    script = "import time; from opcost import power; time.sleep(0.5); print(power.log(loss=0.3))"
    found = measure("-o", output, "--label", "batch=8", "--", sys.executable, "-c", script)
    assert (found.returncode, found.stdout) == (0, "True\n")
    table = pq.read_table(output)
    assert set(table["device"].to_pylist()) >= {GPU}
    assert table["power_w"].to_pylist()[0] == pytest.approx(IDLE_W, rel=0.1)
    [segment] = segments(output)
    assert segment["labels"] == {"batch": "8"}
    events = {key: event for event in segment["events"] for key in event}
    assert events["metrics"]["metrics"] == {"loss": 0.3}
    assert events["window"]["window"] == sys.executable
    assert not recording_beside(output).exists()


def test_what_a_killed_measurement_left_becomes_a_segment(tmp_path):
    output = tmp_path / "run.parquet"
    command = [sys.executable, "-m", "opcost", "measure", "-o", output, "--", "sleep", "30"]
    left = Recording(recording_beside(output))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        while not left.size:
            time.sleep(0.05)
        running.kill()
    while left.is_written:  # the sampler notices
        time.sleep(0.05)
    listed = CliRunner().invoke(main, ["windows", str(output)])
    assert listed.exit_code == 1
    assert f"killed left {recording_beside(output)}; `opcost measure" in str(listed.output)
    assert measure("-o", output, "--append", "--", "sleep", 0.1).returncode == 0
    assert sorted(set(pq.read_table(output)["segment"].to_pylist())) == [1, 2]


def test_a_table_may_be_csv(tmp_path):
    output = tmp_path / "run.csv"
    assert measure("-o", output, "--", "sleep", 0.2).returncode == 0
    assert pyarrow.csv.read_csv(output).num_rows > 5
    listed = CliRunner().invoke(main, ["windows", str(output)])
    assert (listed.exit_code, "has readings alone" in str(listed.output)) == (1, True)


def test_power_needs_no_pytorch():
    script = "import sys; import opcost.power; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_meter_that_fails_leaves_the_command_and_its_exit_code_alone(monkeypatch):
    monkeypatch.setenv("SIMULATED_LOST_AT_S", "1.5")
    found = measure("--", "sh", "-c", "sleep 2.5; exit 4")
    assert found.returncode == 4
    assert f"{GPU}: no energy: NVML: GPU is lost; at most" in " ".join(found.stderr.split())


def test_readings_that_never_differ_are_flagged(monkeypatch):
    monkeypatch.setenv("SIMULATED_FAIL_COUNTER", "3")
    assert used(measure("--json", "--duration", 1))["flags"] == ["too_few_refreshes"]


def test_nothing_is_left_behind_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert measure("--", "true").returncode == 0
    assert measure("-d", "tpu", "--", "true").returncode == 1
    command = [sys.executable, "-m", "opcost", "measure", "--", "sleep", "9"]
    with subprocess.Popen(command) as killed:
        while not list(tmp_path.glob("opcost-power-*/about.json")):
            time.sleep(0.02)
        killed.kill()
    for _ in range(100):  # its sampler notices, and cleans up
        if not list(tmp_path.glob("opcost-power-*")):
            break
        time.sleep(0.1)
    assert list(tmp_path.glob("opcost-power-*")) == []


def test_a_file_of_another_program_is_not_continued_and_the_command_does_not_run(tmp_path):
    output = tmp_path / "run.parquet"
    pq.write_table(pyarrow.table({"a": [1]}), output)
    found = measure("-o", output, "--append", "--", "echo", "ran")
    assert (found.returncode, found.stdout) == (1, "")
    assert "is not a recording of opcost measure (another program wrote it)" in found.stderr


def test_a_folder_in_the_place_of_a_recording_is_not_touched(tmp_path):
    output = tmp_path / "run.parquet"
    folder = recording_beside(output)
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    found = measure("-o", output, "--", "echo", "ran")
    assert (found.returncode, found.stdout) == (1, "")
    assert "is something else: move it away" in found.stderr
    (folder / "thesis.txt").unlink()
    assert measure("-o", output, "--", "echo", "ran").stdout == "ran\n"


BUSY = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\n"


def test_what_a_process_and_its_descendants_use_is_told_from_what_all_use():
    user = User(os.getpid(), without=0)
    own_s, all_s = user.processor_time_s()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    more_s, all_more_s = user.processor_time_s()
    assert 0 < more_s - own_s <= all_more_s - all_s + 0.05
    assert user.memory_bytes({os.getpid(): 30, -1: 10}) == (30, 40)
    assert User(os.getpid(), without=os.getpid()).memory_bytes({os.getpid(): 30}) == (0, 30)


def test_a_share_is_of_the_time_of_a_window_or_of_the_memory_in_it():
    samples = np.zeros(5, SAMPLE)
    samples["time_s"] = np.arange(5)
    samples["own_use"], samples["all_use"] = [0, 1, 1, 2, 2], [0, 1, 2, 3, 4]
    assert share(samples, By.PROCESSOR_TIME, 1.0, 3.0) == pytest.approx(0.5)
    assert share(samples, By.MEMORY, 2.0, 2.0) == pytest.approx(4 / 6)
    assert share(samples[:1], By.MEMORY, 0.0, 2.0) is None
    samples["all_use"] = 0
    assert share(samples, By.MEMORY, 2.0, 2.0) is None


def test_an_attributed_part_is_labelled_as_none_that_was_measured():
    energy = Estimate(10.0, 9.0, 11.0)
    found = DeviceEnergy(energy, None, 1.0, share=0.25, by=By.PROCESSOR_TIME)
    text = " ".join(" ".join(as_text("run", 1.0, {"cpu": found})).split())
    assert "cpu: the program had 25% of its busy processor time; by that share, 2.50 J" in text
    assert "which is no measurement" in text
    document = as_document("run", 1.0, 1, {"cpu": found})["devices"]["cpu"]
    assert (document["attributed_share"], document["attributed_by"]) == (0.25, By.PROCESSOR_TIME)


def test_what_is_null_has_a_reason_beside_it():
    energy = Estimate(10.0, 9.0, 11.0)
    used = {
        "cpu": DeviceEnergy.without("no energy sensor"),
        GPU: DeviceEnergy(energy, None, 1.0, by=By.MEMORY),
    }
    devices = as_document("run", 1.0, 1, used)["devices"]
    assert devices["cpu"]["above_idle_reason"] == "no energy sensor"
    assert devices["cpu"]["attributed_reason"] == "no energy sensor"
    assert "the power of the idle device is unknown" in devices[GPU]["above_idle_reason"]
    assert "its driver names no process" in devices[GPU]["attributed_reason"]
    known = {GPU: DeviceEnergy(energy, None, 1.0, idle_w=2.0, share=0.5, by=By.MEMORY)}
    found = as_document("run", 1.0, 1, known)["devices"][GPU]
    assert (found["above_idle_reason"], found["attributed_reason"]) == (None, None)
    text = " ".join(" ".join(as_text("run", 1.0, used)).split())
    assert "what part of it was the program's is unknown: its driver names no process" in text


def test_a_window_has_a_line_with_its_energies_alone():
    window = power.start("epoch")
    time.sleep(0.4)
    assert re.fullmatch(rf"epoch so far: .* m?s, {GPU} .* J ± .* \(.* W\)", window.line())
    window.stop()
    assert re.fullmatch(rf"epoch: .* m?s, {GPU} .* J ± .* \(.* W\)", window.line())
    used = {
        "cpu": DeviceEnergy.without("no energy sensor"),
        GPU: DeviceEnergy(None, "0.01 s are too short", 0.01, at_most_j=4.0),
    }
    assert as_line("step", 0.01, used) == f"step: 10.00 ms, {GPU} no energy, at most 4.00 J"
    assert as_line("step", 0.01, {"cpu": used["cpu"]}) == "step: 10.00 ms, no energy"


def test_a_recording_of_another_version_is_not_taken_for_one_of_this(tmp_path):
    recording = Recording(tmp_path)
    recording.begin({})
    about = json.loads((tmp_path / "about.json").read_text())
    (tmp_path / "about.json").write_text(json.dumps(about | {"version": 2}))
    with pytest.raises(OpcostError, match="is of version 2 of recordings, this opcost reads 1"):
        _ = recording.about


STEPS = """
import time
from opcost import power
for step in range(3):
    with power.measure("forward"):
        time.sleep(0.3)
        power.log(loss=1 / (1 + step))
    with power.measure("update"):
        time.sleep(0.002)
"""


def test_the_windows_of_a_recording_have_energies_and_figures_or_reasons(tmp_path):
    output = tmp_path / "run.parquet"
    ran = measure("-o", output, "--label", "batch=8", "--", sys.executable, "-c", STEPS)
    assert ran.returncode == 0, ran.stderr
    text = CliRunner().invoke(main, ["windows", str(output)]).output
    assert re.search(r"^batch  window +windows +time +cuda:0", text, re.MULTILINE)
    assert re.search(r"^8 +forward +3 .* J ± ", text, re.MULTILINE)
    prose = " ".join(text.split())
    assert f"{GPU}: no energy in 'update':" in prose
    assert "3 of 3 windows have no energy; the first of them: 0.00" in prose
    assert prose.count("The interval does not hold the error of the sensor's gain") == 1
    if "cpu" in segments(output)[0]["missing"]:
        assert prose.count("cpu: no energy in any window: ") == 1
    each = json.loads(CliRunner().invoke(main, ["windows", "--each", "--json", str(output)]).output)
    assert [row["window"] for row in each].count("forward") == 3
    rows = [row for row in window_rows(segments(output)) if row["window"] == "forward"]
    assert [row["metrics"] for row in rows] == [{"loss": 1 / (1 + step)} for step in range(3)]
    for row in rows:
        assert is_about(ENERGY.read(row["devices"][GPU]), IDLE_W * row["time_s"])
    used = next(row for row in each if row["window"] == "forward")["devices"][GPU]
    assert used["changes"] > 10
    assert used["mean_power_w"] == pytest.approx(IDLE_W, rel=0.1)
    assert used["gain_uncertainty"] == 0.05


def test_a_monitor_of_ones_own_writes_its_windows_and_figures_to_a_file(tmp_path):
    output = tmp_path / "run.parquet"
    with (
        power.Monitor([GPU], output=output) as monitor,
        power.measure("inside", monitor=monitor),
    ):
        time.sleep(0.3)
        assert power.log(loss=2)
    assert not power.log(loss=3)
    [row] = window_rows(segments(output))
    assert (row["window"], row["metrics"]) == ("inside", {"loss": 2.0})
    assert is_about(ENERGY.read(row["devices"][GPU]), IDLE_W * row["time_s"])
    with pytest.raises(OpcostError, match=r"exists: continue it \(--append, in Python append=True"):
        power.Monitor([GPU], output=output)


def test_a_monitor_continues_the_recording_of_an_earlier_one(tmp_path):
    output = tmp_path / "run.parquet"
    for batch in ("8", "16"):
        with (
            power.Monitor([GPU], output=output, append=True, labels={"batch": batch}) as monitor,
            power.measure("step", monitor=monitor),
        ):
            time.sleep(0.3)
    rows = window_rows(segments(output))
    assert [(row["segment"], row["labels"]["batch"]) for row in rows] == [(1, "8"), (2, "16")]
    assert all(is_about(ENERGY.read(row["devices"][GPU]), IDLE_W * row["time_s"]) for row in rows)
    with pytest.raises(OpcostError, match="append continues an output"):
        power.Monitor([GPU], append=True)
    with pytest.raises(OpcostError, match=r"continued in a \.parquet file only"):
        power.Monitor([GPU], output=tmp_path / "run.csv", append=True)


def test_what_is_no_number_is_not_logged_whether_or_not_there_is_a_recording():
    with pytest.raises(OpcostError, match="log: loss is None: give numbers"):
        power.log(loss=None)


def test_a_machine_without_sensors_says_so_before_the_command_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    ran = measure("--device", "cpu", "--", sys.executable, "-c", "print('ran')")
    if "no energy sensor" in ran.stderr:  # as in a virtual machine
        assert ran.stderr.startswith("opcost: no energy will be measured (cpu: ")
    assert ran.stdout == "ran\n"


def test_what_is_printed_meanwhile_keeps_to_the_clock_and_skips_what_it_has_missed():
    moments_s = []
    with power.Monitor([GPU]) as monitor:

        def during(window):
            moments_s.append(window.time_s)
            time.sleep(0.2 if len(moments_s) < 3 else 0.4)

        watch(None, 1.6, monitor, during, 0.3)
    assert np.median([moment_s % 0.3 for moment_s in moments_s]) < 0.1


def test_watching_shows_power_and_energy_and_needs_a_sensor(monkeypatch, tmp_path):
    command = [sys.executable, "-m", "opcost", "watch", "--every", "0.5", "--device"]
    with subprocess.Popen([*command, GPU], stdout=subprocess.PIPE, text=True) as watching:
        line = watching.stdout.readline()
        watching.send_signal(signal.SIGTERM)
        rest = watching.communicate(timeout=60)[0]
    interval = r"± .*|\[.* J, .* J\]"  # of one side each, where readings came late
    assert re.fullmatch(rf"..:..:..  {GPU} .* W, .* J ({interval})\n", line)
    assert "machine: " in rest
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    without = [*command, "cpu", "--every", "9"]
    with subprocess.Popen(without, stderr=subprocess.PIPE, text=True) as watching:
        if "no energy sensor" in watching.stderr.readline():  # as in a virtual machine
            assert "there is no power sensor to watch" in watching.communicate(timeout=60)[1]
            assert watching.returncode == 1
        watching.kill()


def test_what_is_printed_meanwhile_does_not_lengthen_the_window():
    found = measure("--every", "2", "--json", "--", "sleep", "2.2")
    text = found.stderr[found.stderr.rindex('{\n  "name"') :]
    assert json.loads(text)["time_s"] < 3.8


def test_many_short_windows_leave_their_epoch_its_energy():
    with power.measure("epoch") as epoch:
        for number in range(300):
            with power.measure(f"step {number}"):
                time.sleep(0.002)
    assert is_about(epoch.devices[GPU].energy, IDLE_W * epoch.time_s)


def test_threads_may_ask_at_the_same_time():
    with power.measure() as window:
        time.sleep(0.2)
    monitor = window._monitor
    with ThreadPoolExecutor(4) as threads:
        edges = window._start_s, window._end_s
        found = [threads.submit(monitor.energy, *edges) for _ in range(12)]
    assert all(each.result()[GPU].energy is not None for each in found)


def test_a_window_after_the_sampler_was_killed_has_another_one():
    with power.measure():
        pass
    windows._shared._sampler.process.kill()
    windows._shared._sampler.process.wait()
    with power.measure() as window:
        time.sleep(0.2)
    assert window.devices[GPU].energy is not None


def test_the_share_of_several_runs_is_that_of_all_of_them():
    runs = [
        (1.0, {"cpu": DeviceEnergy(Estimate(joules, None, None), None, share=share)})
        for joules, share in ((10.0, 0.9), (30.0, 0.1))
    ]
    _, found = repeated(runs)
    assert found["cpu"].share == pytest.approx(0.3)


def test_half_a_line_of_events_is_left_out(tmp_path):
    recording = Recording(tmp_path)
    recording.note({"metrics": {"loss": 1.0}})
    with recording.events_file.open("a") as file:
        file.write('{"time_s": 1, "met{"time_s": 2}\n')
    recording.note({"metrics": {"loss": 2.0}})
    assert [each["metrics"]["loss"] for each in recording.events()] == [1.0, 2.0]
