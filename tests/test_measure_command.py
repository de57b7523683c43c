"""`opcost measure` and `opcost watch`: what they pass on, print and refuse.

The card is the simulated one, which idles.
"""

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.power import command
from opcost.power.command import watch
from opcost.power.machine import PowerLog
from opcost.power.recording import WHOLE, environment_in, recording_beside

from tests.opcost_measure import GPU, IDLE_W, measure, used

pytestmark = pytest.mark.usefixtures("card_of_sampler")

OPCOST = [sys.executable, "-m", "opcost"]


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of COMMAND, --pid and --duration"),
        (["--duration", "2", "--", "sleep", "1"], "give one of COMMAND, --pid and --duration"),
        (["--pid", "1", "--", "sleep", "1"], "give one of COMMAND, --pid and --duration"),
        (["--repeat", "2", "--duration", "1"], "--repeat is for a COMMAND"),
        (["--idle", "1", "--duration", "1"], "--idle is for a COMMAND"),
        (["--label", "batch=8", "--", "true"], "--label needs --output"),
        (["-o", "a.parquet", "--label", "batch", "--", "true"], "'batch' is not a label: give NAM"),
        (
            ["-o", "a.parquet", "--label", "a=1", "--label", "a=1", "--", "true"],
            "the label 'a' is given twice",
        ),
        (["-o", "run.csv", "--", "true"], "name a file that ends with .parquet"),
        (["-d", "tpu", "--", "true"], "'tpu' is no device of this machine"),
        (["--period", "0", "--", "true"], "'0': give a number and s, min or h"),
        (["--every", "inf", "--", "true"], "'inf': give a number and s, min or h"),
        (["--period", "2min", "--", "true"], "'2min': allowed are 0.001 s to 60 s"),
        (["--to", "none/answer", "--", "true"], "none/answer"),
        (
            ["-o", "a.parquet", "--to", "./a.parquet", "--", "true"],
            "--output and --to are the same file",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_before_the_command_runs(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run_command", None)
    found = CliRunner().invoke(main, ["measure", *arguments])
    assert found.exit_code in (1, 2), found.exception
    assert message in words(found.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "code"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM)],
)
def test_the_exit_code_is_that_of_the_command(line, code):
    assert measure("--", *line).returncode == code


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        (["no-such-program", "x"], 127, "No such file or directory"),
        ([""], 126, ""),
        (["./folder"], 126, "Permission denied"),
        (["./bare"], 126, "Exec format error"),
    ],
)
def test_a_command_that_cannot_be_run_says_why_and_what_to_type(line, code, why, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "bare").write_text("echo")
    (tmp_path / "bare").chmod(0o755)
    found = measure("--", *line, cwd=tmp_path)
    assert found.returncode in (code, 127)
    assert f"opcost: {line[0]} cannot be run: {why}" in found.stderr
    assert "If it is of the shell: opcost measure -- sh -c " in found.stderr
    assert "cuda" not in found.stderr


def test_streams_descriptors_and_options_after_the_command_are_its_own(tmp_path):
    (tmp_path / "hello").write_text("hello\n")
    with open(tmp_path / "hello") as file:
        os.set_inheritable(file.fileno(), True)
        script = f'read line; echo "$line" "$@"; cat /dev/fd/{file.fileno()}; ls /proc/self/fd'
        arguments = ["sh", "-c", script, "sh", "--json", "-d"]
        options = {"input": "mine\n", "pass_fds": [file.fileno()], "text": True}
        found = measure(*arguments, **options)
        file.seek(0)
        alone = subprocess.run(arguments, capture_output=True, check=True, **options)
    assert found.stdout == alone.stdout
    assert found.stdout.startswith("mine --json -d\nhello\n")
    assert f"{GPU} " in found.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command(number):
    """SIGINT: one that no terminal sends to the command as well."""
    script = "trap 'echo ended; exit 3' TERM INT; echo ready; while true; do sleep 0.05; done"
    line = [*OPCOST, "measure", "--", "sh", "-c", script]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, start_new_session=True, **streams) as running:
        try:
            assert running.stdout.readline() == b"ready\n"
            running.send_signal(number)
            assert running.stdout.readline() == b"ended\n"
            assert running.wait(20) == 3
        finally:
            running.kill()


def test_repeated_runs_have_an_interval_over_the_runs():
    found = measure("--json", "--repeat", 3, "--", "sleep", 0.4)
    document = json.loads(found.stderr)
    assert document["runs"] == 3
    assert document["time_ci_low_s"] < document["time_s"] < document["time_ci_high_s"]
    assert used(found)["energy_j"] == pytest.approx(IDLE_W * 0.4, rel=0.1)


def test_a_run_that_fails_is_not_in_the_mean_of_those_before(tmp_path):
    script = f"test -e {tmp_path}/ran && exit 5; touch {tmp_path}/ran"
    found = measure("--json", "--repeat", 3, "--", "sh", "-c", script)
    document = json.loads(found.stderr)
    assert (found.returncode, document["runs"]) == (5, 1)
    assert document["stopped"] == "run 2 of 3 failed (exit code 5): it is not in the mean"


def test_a_process_is_measured_until_it_ends():
    with subprocess.Popen(["sleep", "5"]) as process:
        found = measure("--json", "--pid", process.pid)
    assert found.returncode == 0
    assert 10 < used(found)["energy_j"] < 300
    gone = measure("--pid", process.pid)
    assert (gone.returncode, "there is no process" in gone.stderr) == (1, True)


def test_of_a_machine_no_part_is_attributed_to_a_program():
    found = measure("--json", "--duration", 0.5)
    assert used(found)["attributed_reason"].startswith("no program is measured whose part it")
    assert used(found)["energy_j"] == pytest.approx(30, rel=0.15)


def test_energy_above_idle_and_a_total_are_stated_on_request(monkeypatch):
    found = measure("--json", "--idle", 1, "--total", "--repeat", 2, "--", "sleep", 0.5)
    of_card, document = used(found), json.loads(found.stderr)
    assert of_card["idle_power_w"] == pytest.approx(IDLE_W, rel=0.1)
    assert of_card["above_idle_energy_ci_low_j"] < 0 < of_card["above_idle_energy_ci_high_j"]
    [(name, total)] = document["total"].items()
    if document["devices"]["cpu"]["energy_j"] is None:
        assert total["energy_j"] is None
        assert "1 of 2 devices have no energy" in total["reason"]
    assert GPU in name
    without = json.loads(measure("--json", "--", "sleep", 0.5).stderr)
    assert without["total"] is None
    assert "--idle 10s" in without["devices"][GPU]["above_idle_reason"]


def test_without_a_meter_there_is_no_wait_for_idle_power_and_one_reason_for_all():
    with power.Monitor(["cpu"]) as monitor:
        if monitor.devices:
            pytest.skip("this processor has a meter")
    found = measure("--device", "cpu", "--idle", 3600, "--total", "--", "true")
    said = words(found.stderr)
    assert f"no energy and no idle power will be measured (cpu: {monitor.missing['cpu']})" in said
    assert f"cpu, all devices: no energy: {monitor.missing['cpu']}." in said


def test_a_log_has_power_and_the_machine_at_each_interval(tmp_path):
    log = tmp_path / "run.csv"
    script = "import time; x = bytearray(50_000_000); end = time.time() + 2\n"
    script += "while time.time() < end: pass"
    line = ["--json", "--log", log, "--every", 0.5, "--", sys.executable, "-c", script]
    found = measure(*line)
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["time_s"]) for row in rows] == pytest.approx([0.5, 1, 1.5, 2], abs=0.2)
    for row in rows[1:]:
        assert float(row[f"{GPU}_power_w"]) == pytest.approx(IDLE_W, rel=0.1)
        assert float(row[f"{GPU}_use_percent"]) >= 0
        assert float(row[f"{GPU}_temperature_c"]) > 0
        assert 50e6 < int(row["memory_bytes"]) < 80e6  # opcost itself holds more than 60 MB
        assert 0 < float(row["processor_use_percent"]) <= 100
    assert float(rows[-1][f"{GPU}_energy_j"]) == pytest.approx(2 * IDLE_W, rel=0.2)
    [machine] = json.loads(found.stderr)["machine"]
    assert machine["memory_bytes"] > 50e6
    assert machine["reasons"].keys() == {name for name in machine if machine[name] is None}
    refused = measure(*line)
    assert (refused.returncode, refused.stderr) == (
        1,
        f"opcost: {log} exists: name another file\n",
    )


class OnFullDisk:
    """A path at which nothing can be written."""

    def open(self, *_, **__):
        return open("/dev/full", "w")


def test_a_log_that_cannot_be_written_is_said_to_end(capfd):
    with power.Monitor([GPU]) as monitor, pytest.raises(OSError, match="No space left"):
        PowerLog(OnFullDisk(), monitor)
    said = "opcost: /dev/full ends here (No space left on device): the energy is measured\n"
    assert capfd.readouterr().err == said


def test_a_signal_ends_a_measurement_of_the_machine_with_an_answer(tmp_path):
    output = tmp_path / "run.parquet"
    line = [*OPCOST, "measure", "--json", "--every", "0.2", "--duration", "10min", "-o", output]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as running:
        assert "machine so far: " in running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 128 + signal.SIGTERM
    document = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
    assert document["stopped"].startswith("SIGTERM ended it after ")
    assert len(power.read_windows(output)) == 1


STEPS = """
import time
from opcost import power
for step in range(3):
    with power.measure("forward"):
        time.sleep(0.3)
        power.log(loss=1 / (1 + step))
"""


def test_windows_and_figures_are_in_the_recordings_of_all_measurements_around(tmp_path):
    outer, inner = tmp_path / "outer.parquet", tmp_path / "inner.parquet"
    within = [*OPCOST, "measure", "-o", inner, "--label", "batch=8", "--"]
    ran = measure("-o", outer, "--", *within, sys.executable, "-c", STEPS)
    assert ran.returncode == 0, ran.stderr
    assert pq.read_table(inner)["power_w"].to_pylist()[0] == pytest.approx(IDLE_W, rel=0.1)
    for output, labels in ((outer, {}), (inner, {"batch": "8"})):
        rows = [row for row in power.read_windows(output) if row["window"] == "forward"]
        assert [row["metrics"] for row in rows] == [{"loss": 1 / (1 + step)} for step in range(3)]
        assert all(row["labels"] == labels for row in rows)
        for row in rows:
            energy = row["devices"][GPU].energy
            assert energy.low <= 1.02 * IDLE_W * row["time_s"]
            assert energy.high >= 0.98 * IDLE_W * row["time_s"]


def test_a_killed_measurement_is_recovered_and_one_that_runs_is_refused(tmp_path):
    output = tmp_path / "run.parquet"
    line = [*OPCOST, "measure", "-o", output, "--", "sleep", "30"]
    recording = recording_beside(output)
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as running:
        while not (recording.is_begun and recording.events_file.exists()):
            time.sleep(0.05)
        second = measure("-o", output, "--", "echo", "ran")
        assert (second.returncode, second.stdout) == (1, "")
        assert "another measurement is writing" in second.stderr
        running.kill()
    while recording.is_written:  # the sampler notices
        time.sleep(0.05)
    listed = CliRunner().invoke(main, ["windows", str(output)])
    assert listed.exit_code == 0, listed.output
    assert WHOLE in listed.output
    assert "no energy in 'sleep': the window did not end" in words(listed.output)


def test_a_survivor_of_a_recording_that_has_ended_writes_nothing(tmp_path, monkeypatch):
    output = tmp_path / "run.parquet"
    with power.Monitor([GPU], output=output) as monitor:
        for name, value in environment_in(monitor.recording).items():
            monkeypatch.setenv(name, value)
        assert power.log(loss=1)
    assert not power.log(loss=2)
    assert not monitor.recording.folder.exists()


def test_an_answer_that_cannot_be_written_changes_no_exit_code_and_loses_no_reading(tmp_path):
    output = tmp_path / "run.parquet"
    with open("/dev/full", "w") as full:
        streams = {"capture_output": False, "stderr": full}
        found = measure("-o", output, "--", "sh", "-c", "exit 7", **streams)
    assert found.returncode == 7
    assert len(power.read_windows(output)) == 1


def test_a_full_disk_is_named_and_so_is_the_way_to_the_readings(tmp_path):
    output, limit = tmp_path / "run.parquet", (resource.RLIMIT_FSIZE, (4096, 4096))
    arguments = ("-o", output, "--", "sleep", 1)
    found = measure(*arguments, preexec_fn=lambda: resource.setrlimit(*limit))
    said = words(found.stderr)
    full = r"the meters has ended \((No space left on device|File too large)\)"
    assert re.search(full, said)
    assert f"{output} cannot be written (File too large); the readings stay in" in said
    assert said.endswith(f"and run opcost windows {output}")
    assert "run the same command again" not in said
    assert len(power.read_windows(output)) == 1


def test_an_answer_in_a_file_of_its_own_is_alone_there(tmp_path):
    answer = tmp_path / "answer.json"
    script = "import sys; print('of the program', file=sys.stderr)"
    found = measure("--json", "--to", answer, "--", sys.executable, "-c", script)
    assert "of the program" in found.stderr
    assert json.loads(answer.read_text())["devices"].keys() >= {GPU}
    assert "{" not in found.stderr


def test_a_meter_that_fails_leaves_the_command_and_its_exit_code_alone(monkeypatch):
    monkeypatch.setenv("SIMULATED_LOST_AT_S", "1.5")
    found = measure("--", "sh", "-c", "sleep 2.5; exit 4")
    assert found.returncode == 4
    assert f"{GPU}: no energy: NVML: GPU is lost" in words(found.stderr)


def test_readings_that_never_differ_are_flagged(monkeypatch):
    monkeypatch.setenv("SIMULATED_FAIL_COUNTER", "3")
    assert used(measure("--json", "--duration", 1))["flags"] == ["too_few_refreshes"]


def test_why_there_is_no_meter_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = words(measure("--device", GPU, "--", "true").stderr)
    assert "CUDA_VISIBLE_DEVICES='' leaves 0 of 1 NVIDIA GPUs" in hidden
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    ran = measure("--", sys.executable, "-c", "print('ran')")
    assert ran.stdout == "ran\n"
    if "no energy will be measured" in ran.stderr:  # not where the processor has a meter
        none = "no NVIDIA driver library (libnvidia-ml.so.1) was found"
        assert f"; {none}" in words(ran.stderr)
        script = "from opcost import power; w = power.start(); w.stop(); print(w)"
        command = [sys.executable, "-c", script]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"No other device is seen: {none}" in words(printed)


def test_what_is_printed_meanwhile_keeps_to_the_clock_and_skips_what_it_has_missed():
    moments_s = []
    with power.Monitor([GPU]) as monitor:

        def during(window):
            moments_s.append(window.time_s)
            time.sleep(0.2 if len(moments_s) < 3 else 0.4)

        window, _ = watch(None, 1.6, monitor, during, 0.3)
    assert np.median([moment_s % 0.3 for moment_s in moments_s]) < 0.1
    assert window.time_s < 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watching_shows_power_and_energy(number):
    line = [*OPCOST, "watch", "--every", "0.5", "--device", GPU]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as watching:
        first = watching.stdout.readline()
        watching.send_signal(number)
        rest = watching.communicate(timeout=60)[0]
    interval = r"± .*|\[.* J, .* J\]"  # of one side each, where readings came late
    assert re.fullmatch(rf"..:..:..  {GPU} .* W, .* J ({interval})\n", first)
    assert "machine: " in rest
    assert "program" not in rest
    assert watching.returncode == (0 if number == signal.SIGINT else 128 + number)


def test_watching_ends_with_its_reader():
    line = [*OPCOST, "watch", "--every", "0.2"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as watching:
        assert GPU in watching.stdout.readline()
        watching.stdout.close()
        assert watching.wait(60) != 0
