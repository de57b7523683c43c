"""What `opcost measure`, `watch` and `windows` say: of wrong options, missing meters and ends.

The card is the simulated one, which idles.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.power import command
from opcost.power.command import CannotRun, run_command
from opcost.power.export import recording_beside
from opcost.power.recording import Recording

from tests.opcost_measure import GPU, measure, used

pytestmark = pytest.mark.usefixtures("card_of_sampler")

ONE_OF = "give only one of COMMAND, --pid and --duration (--pid may have a --duration)"
WITH_OUTPUT = "labels are kept in a recording: name a .parquet file for it (--output, in Python"


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a COMMAND, --pid or --duration"),
        (["--repeat", "2", "--duration", "1"], "--repeat is for a COMMAND"),
        (["--append", "--", "true"], "--append needs --output"),
        (["-o", "a.parquet", "--label", "batch", "--", "true"], "'batch' is not a label: give NAM"),
        (
            ["-o", "a.parquet", "--label", "a=1", "--label", "a=1", "--", "true"],
            "the label 'a' is given twice",
        ),
        (["-o", "run.txt", "--", "true"], "name a file that ends with .parquet or .csv"),
        (["-d", "tpu", "--", "true"], "'tpu' is no device of this machine"),
        (["--period", "0", "--", "true"], "'0': give a number and s, min or h"),
        (["--every", "inf", "--", "true"], "'inf': give a number and s, min or h"),
        (["--every", "0.01", "--", "true"], "'0.01': allowed are 0.1 s to"),
        (["--period", "2min", "--", "true"], "'2min': allowed are 0.001 s to 60 s"),
        (["--duration", "2", "--", "sleep", "1"], ONE_OF),
        (["--pid", "1", "--", "sleep", "1"], ONE_OF),
        (["--label", "batch=8", "--", "true"], "--label needs --output"),
        (["--label", "batch=8", "-o", "run.csv", "--", "true"], WITH_OUTPUT),
        (["-o", os.fsdecode(b"run\xff.parquet"), "--", "true"], "that can be printed"),
        (
            ["--label", os.fsdecode(b"a=\xff"), "-o", "run.parquet", "--", "true"],
            "that can be printed",
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


def test_labels_of_a_monitor_without_a_recording_are_refused():
    with pytest.raises(OpcostError, match="labels are kept in a recording"):
        power.Monitor([GPU], labels={"batch": "8"})


def test_an_answer_in_a_file_of_its_own_is_alone_there(tmp_path):
    script = "import sys; print('of the program', file=sys.stderr)"
    answer = tmp_path / "answer.json"
    found = measure(
        *("--json", "--every", 0.2, "--to", answer, "--", sys.executable, "-c", script),
    )
    assert "of the program" in found.stderr
    assert json.loads(answer.read_text())["devices"].keys() >= {GPU}
    assert "{" not in found.stderr


def test_a_file_for_the_answer_that_cannot_be_written_is_refused_before_the_command(tmp_path):
    recording, ran = tmp_path / "run.parquet", tmp_path / "ran"
    power.Monitor([], output=recording).close()
    before = recording.read_bytes()
    for to in (tmp_path / "none" / "answer", recording):
        options = ["-o", str(recording), "--append", "--to", str(to)]
        found = CliRunner().invoke(main, ["measure", *options, "--", "touch", str(ran)])
        assert found.exit_code == 1
        assert str(to) in found.stderr
        assert not ran.exists()
    assert recording.read_bytes() == before


def test_how_long_a_process_had_run_before_is_told():
    with subprocess.Popen(["sleep", "600"]) as running:
        found = measure("--pid", running.pid, "--duration", 0.3)
        known = json.loads(measure("--json", "--pid", running.pid, "--duration", 0.3).stderr)
        running.terminate()
    assert "it had run for " in found.stderr
    assert "that is not in the energy" in found.stderr
    assert 0.3 < known["ran_before_s"] < 600


def test_of_a_command_that_does_not_begin_only_the_reason_is_told():
    found = measure("--", "no-such-program")
    assert found.returncode == 127
    assert found.stderr == (
        "opcost: no-such-program cannot be run: it is in no folder of PATH. If it is of the shell: "
        "opcost measure -- sh -c no-such-program\n"
    )


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            ["sleep 1 && echo hi"],
            127,
            "sleep 1 && echo hi is a line of a shell, not a program: opcost measure -- sh -c "
            "'sleep 1 && echo hi'",
        ),
        (
            ["N=1", "true"],
            127,
            "N=1 cannot be run: it is in no folder of PATH. If it is of the shell: opcost measure "
            "-- sh -c 'N=1 true'",
        ),
        ([""], 126, "the command is empty: name a program"),
        (["./none"], 127, "./none cannot be run: No such file or directory"),
        (["./folder"], 126, "./folder is a folder: name a program"),
        (["./text"], 126, "./text cannot be run: it may not be executed: chmod +x ./text, or name"),
        (["./bare"], 126, "./bare cannot be run: it is no program for this machine, nor a script"),
        (["./other"], 127, "./other cannot be run: the interpreter that its first line names does"),
    ],
)
def test_a_command_that_cannot_be_run_says_why_and_what_to_type(
    line, code, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text, mode in (
        ("text", "", 0o644),
        ("bare", "echo", 0o755),
        ("other", "#!/none\n", 0o755),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    with power.Monitor([GPU]) as monitor, pytest.raises(CannotRun) as caught:
        run_command(line, monitor)
    assert (str(caught.value)[: len(message)], caught.value.code) == (message, code)


def test_a_window_has_the_devices_that_it_asks_for():
    with power.Monitor([GPU, "cpu"]) as monitor:
        both = power.start("all", monitor=monitor)
        one = power.start("one", [GPU], monitor)
        time.sleep(0.3)
        one.stop()
        both.stop()
        assert set(one.devices) == {GPU}
        assert set(both.devices) == {GPU, "cpu"}
        with pytest.raises(OpcostError, match=r"reads the devices cuda:0, cpu: for others, open a"):
            power.start("other", ["cuda:7"], monitor)


def test_of_a_machine_no_part_is_attributed_to_a_program():
    found = measure("--json", "--duration", 0.5)
    assert used(found)["attributed_reason"] == "no program is measured whose part it could be"
    assert used(found)["energy_j"] == pytest.approx(30, rel=0.15)


def test_watching_says_nothing_of_a_program():
    command = [sys.executable, "-m", "opcost", "watch", "--every", "0.3s", "--device", GPU]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        rest = watching.communicate(timeout=60)[0]
    assert "machine: " in rest
    assert "program" not in rest


def test_a_signal_that_ends_a_measurement_early_is_told():
    command = [sys.executable, "-m", "opcost", "measure", "--json", "--every", "0.2"]
    with subprocess.Popen(
        [*command, "--duration", "60"], stderr=subprocess.PIPE, text=True
    ) as running:
        running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=60)[1]
    document = json.loads(said[said.index("{\n") :])
    assert document["stopped"].startswith("SIGTERM ended it after ")
    assert document["stopped"].endswith(" of 60.00 s")


def test_the_folder_of_a_killed_measurement_is_told_from_its_recording(tmp_path):
    output = tmp_path / "run.parquet"
    with power.Monitor([GPU], folder=recording_beside(output)):
        time.sleep(0.1)
    while Recording(recording_beside(output)).is_written:
        time.sleep(0.05)
    found = CliRunner().invoke(main, ["windows", str(recording_beside(output))])
    assert found.exit_code == 1
    said = words(found.output)
    assert "run.parquet.recording is a folder: a measurement that was killed left" in said
    assert f"opcost measure --output {output} --append -- true" in said
    other = words(CliRunner().invoke(main, ["windows", str(tmp_path)]).output)
    assert "is a folder: give the .parquet file of opcost measure --output" in other


def test_why_there_is_no_gpu_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = measure("--device", GPU, "--", "true")
    assert (
        "'cuda:0' is no device of this machine: CUDA_VISIBLE_DEVICES='' leaves 0 of 1 NVIDIA GPUs. "
        in words(hidden.stderr)
    )
    assert hidden.stderr.count("cpu") == 1
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    without = words(measure("--device", GPU, "--", "true").stderr)
    if "lists no GPU" not in without:
        assert (
            "'cuda:0' is no device of this machine: no NVIDIA driver library (libnvidia-ml.so.1) "
            "was found" in without
        )


def test_a_machine_without_any_meter_says_which_were_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    said = words(measure("--", "true").stderr)
    if "no energy will be measured" in said:  # not where the processor has a meter
        assert "; no NVIDIA driver library (libnvidia-ml.so.1) was found; " in said
        chosen = words(measure("--device", "cpu", "--", "true").stderr)
        assert "NVIDIA" not in chosen
