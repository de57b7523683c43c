"""Recordings whose program was killed, or had no window: what they show is not lost."""

import subprocess
import sys
import time
from contextlib import suppress

import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.power.estimation import CUT_OFF
from opcost.power.export import recording_beside, segments
from opcost.power.recorded_windows import WHOLE, window_rows
from opcost.power.recording import Recording
from opcost.rows.quantities import ENERGY

from tests.opcost_measure import GPU, IDLE_W, measure

pytestmark = pytest.mark.usefixtures("card_of_sampler")


def is_about(estimate, joules):
    return estimate.low <= joules * 1.02 and estimate.high >= joules * 0.98


def salvaged(output, program, seconds=30.0, then=lambda left: None):
    """The rows of a program that is killed after some seconds of recording, or kills itself before,
    and what is said of its file. `then` changes what it left.
    """
    left = Recording(recording_beside(output))
    with subprocess.Popen(program, stderr=subprocess.DEVNULL) as running:
        while not left.size:
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            running.wait(seconds)
        running.kill()
    while left.is_written:  # the sampler notices
        time.sleep(0.02)
    then(left)
    assert measure("-o", output, "--append", "--", "true").returncode == 0
    rows = [row for row in window_rows(segments(output)) if row["segment"] == 1]
    return rows, CliRunner().invoke(main, ["windows", str(output)]).stderr


def cut_at_the_end_of_the_window(left):
    """Leave no later reading: the sensor may have changed just then."""
    [end_s] = [event["end_s"] for event in left.events() if "window" in event]
    samples = left.samples()
    left.samples_file.write_bytes(samples[samples["time_s"] <= end_s].tobytes())


def program(tmp_path, script):
    """A command of a monitor that writes to run.parquet, of which some code is killed."""
    begin = (
        "import time\n"
        "from opcost import power\n"
        f"monitor = power.Monitor(['{GPU}'], output={str(tmp_path / 'run.parquet')!r})\n"
    )
    return tmp_path / "run.parquet", [sys.executable, "-c", f"{begin}{script}\ntime.sleep(60)"]


def test_a_measurement_that_was_killed_has_the_energy_of_its_whole_recording(tmp_path):
    output = tmp_path / "run.parquet"
    command = [sys.executable, "-m", "opcost", "measure", "-o", output, "--", "sleep", "3"]
    [row], said = salvaged(output, command, 1.5)
    assert row["window"] == WHOLE
    assert row["time_s"] > 1
    assert is_about(ENERGY.read(row["devices"][GPU]), IDLE_W * row["time_s"])
    assert "opcost: 1 window began and did not end: 'sleep'" in said


def test_a_recording_that_shows_nothing_has_no_window(tmp_path):
    power.Monitor([], output=tmp_path / "run.parquet").close()
    assert window_rows(segments(tmp_path / "run.parquet")) == []


def test_a_window_at_whose_end_the_program_was_killed_says_that_the_recording_ends(tmp_path):
    script = (
        "import os\n"
        "with power.measure('step', monitor=monitor):\n"
        "    time.sleep(1.0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    [row], said = salvaged(*program(tmp_path, script), then=cut_at_the_end_of_the_window)
    used = row["devices"][GPU]
    assert (row["window"], used["energy_j"], used["reason"]) == ("step", None, CUT_OFF)
    assert IDLE_W * row["time_s"] < used["at_most_j"]
    assert "did not end" not in said


def test_windows_that_began_and_did_not_end_are_named(tmp_path):
    script = (
        "for number in range(5):\n"
        "    power.start(f'epoch {number}', monitor=monitor)\n"
        "with power.measure('step', monitor=monitor):\n"
        "    time.sleep(0.5)\n"
    )
    [row], said = salvaged(*program(tmp_path, script), 2.0)
    assert row["window"] == "step"
    names = "'epoch 0', 'epoch 1', 'epoch 2', 2 others"
    assert f"5 windows began and did not end: {names}" in " ".join(said.split())


def test_of_windows_that_have_ended_no_beginning_is_kept(tmp_path):
    with power.Monitor([GPU], output=tmp_path / "run.parquet") as monitor:
        for _ in range(3):
            power.start("step", monitor=monitor).stop()
        power.start("not begun", monitor=monitor).abandon()
    [segment] = segments(tmp_path / "run.parquet")
    assert [event["window"] for event in segment["events"]] == ["step"] * 3
