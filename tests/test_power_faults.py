"""What may go wrong around a window: it has no energy then, but a reason; nothing else suffers.

Sensors that stand still, jump or are read too seldom; forks, signals, full disks and closed pipes;
samplers that hang or are killed. The card is the simulated one, which idles.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost import power
from opcost.commands import main
from opcost.energy.sensor import Sensor
from opcost.errors import OpcostError
from opcost.power.curves import of_counter, of_readings
from opcost.power.estimation import NOT_SHOWN, energy_of
from opcost.power.export import finish, recording_beside, segments
from opcost.power.recorded_windows import window_rows
from opcost.power.recording import SAMPLE, Recording, environment_in
from opcost.power.shown import Shown
from opcost.power.window_table import window_lines
from opcost.rows.flags import COUNTER_DISAGREES

from tests.opcost_measure import GPU, IDLE_W, measure
from tests.simulated_nvml.recorded import record, switching

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1)


def noisy(times_s, watts=200.0):
    """Readings that change with each refresh of the sensor."""
    refreshes = np.floor(times_s / 0.1).astype(int)
    return watts + np.random.default_rng(0).normal(0, 2, refreshes.max() + 1)[refreshes]


def samples(times_s, power_w=np.nan, counter_j=np.nan):
    found = np.zeros(len(times_s), SAMPLE)
    for name in SAMPLE.names:
        found[name] = np.nan if name != "source" else 0
    found["time_s"], found["power_w"], found["counter_j"] = times_s, power_w, counter_j
    return found


class TestSensors:
    def test_a_sampler_that_stood_still_in_a_window_does_not_know_it(self):
        times_s = np.concatenate([np.arange(0, 10, 0.025), np.arange(14, 30, 0.025)])
        curve = of_readings(times_s, noisy(times_s), SENSOR)
        assert "was not read, or stood still, for 4.02 of 6 s" in energy_of(curve, 9.0, 15.0).reason
        assert energy_of(curve, 16.0, 25.0).energy is not None

    @pytest.mark.parametrize("pause_s", [0.25, 0.4])
    def test_short_pauses_of_the_sampler_widen_the_interval(self, card, pause_s):
        generator = random.Random(3)
        recorded = record(card, SENSOR, generator, 60.0, counter=False)
        times_s = recorded.samples["time_s"]
        held, told, widths = 0, 0, []
        for _ in range(60):
            start_s = generator.uniform(6, 50)
            whole, true_j = recorded.window(start_s, start_s + 5.0)
            pause = start_s + generator.uniform(0.5, 4.0)
            kept = recorded.samples[(times_s < pause) | (times_s > pause + pause_s)]
            near = kept[(kept["time_s"] > start_s - 5) & (kept["time_s"] < start_s + 7)]
            found = Shown(near, SENSOR).energy(start_s, start_s + 5.0)
            if found.energy is not None and whole.energy is not None:
                told += 1
                held += found.energy.low <= true_j <= found.energy.high
                widths.append(found.energy.relative_half_width / whole.energy.relative_half_width)
        assert told >= 50
        assert held >= 0.9 * told
        assert np.median(widths) > 1

    @given(
        st.floats(3.0, 12.0),
        st.sampled_from([-1e4, -50.0, 1e9]),
        st.floats(0.5, 5.0),
    )
    def test_a_counter_that_is_set_anew_in_a_window_gives_no_energy(self, at_s, by_j, length_s):
        times_s = np.arange(0, 20, 0.025)
        joules = np.floor(times_s / 0.1 + 1e-9) * 20 + 1e5
        curve = of_counter(times_s, joules + np.where(times_s > at_s, by_j, 0), 0.1)
        inside = energy_of(curve, at_s - length_s / 2, at_s + length_s / 2)
        assert (inside.energy, inside.at_most_j) == (None, None)
        assert "was set back or jumped" in inside.reason
        for start_s in (at_s - length_s - 0.4, at_s + 0.4):
            beside = energy_of(curve, start_s, start_s + length_s)
            if beside.energy is not None:
                assert beside.energy.low <= 200 * length_s <= beside.energy.high
                assert beside.energy.low > 0

    def test_readings_that_never_change_are_known_to_the_step_that_they_show(self):
        times_s = np.arange(0, 20, 0.025)
        for watts, half_w in ((60.0, 0.5), (60.3, 0.05), (60.302, 0.0005)):
            found = energy_of(of_readings(times_s, np.full(len(times_s), watts), SENSOR), 5.0, 15.0)
            assert found.energy.high - 10 * watts == pytest.approx(10 * half_w)

    def test_a_sensor_that_shows_nothing_gives_no_zero(self):
        times_s = np.arange(0, 20, 0.025)
        found = energy_of(of_readings(times_s, np.zeros(len(times_s)), SENSOR), 5.0, 15.0)
        assert (found.energy, found.reason) == (None, "the sensor shows no power")

    def test_a_counter_that_stands_still_gives_way_to_the_readings(self):
        times_s = np.arange(0, 20, 0.025)
        found = Shown(samples(times_s, noisy(times_s), 1234.5), SENSOR).energy(5.0, 15.0)
        assert found.energy.value == pytest.approx(2000, rel=0.01)
        assert COUNTER_DISAGREES in found.flags
        alone = Shown(samples(times_s, counter_j=1234.5), SENSOR).energy(5.0, 15.0)
        assert (alone.energy, alone.reason) == (None, NOT_SHOWN)

    @pytest.mark.parametrize("period_s", [0.2, 0.5])
    def test_windows_of_a_counter_that_is_read_seldom_hold_the_truth(self, card, period_s):
        generator = random.Random(5)
        edges_s = sorted(generator.uniform(6, 50) for _ in range(40))
        edges = [(edge_s, lambda: None) for edge_s in edges_s]  # the meter is read there, too
        recorded = record(
            card,
            SENSOR,
            generator,
            60.0,
            period_s=period_s,
            load=switching(generator, 60.0, (0.05, 0.6)),
            meanwhile=edges,
        )
        told = held = 0
        for start_s, end_s in zip(edges_s[::4], edges_s[3::4], strict=True):
            found, true_j = recorded.window(start_s, end_s)
            if found.energy is not None:
                told += 1
                held += found.energy.low <= true_j <= found.energy.high
        assert told >= 3
        assert held == told

    def test_power_is_unknown_at_an_edge_where_the_counter_was_not_read(self):
        times_s = np.concatenate([np.arange(0, 9, 0.025), np.arange(12, 30, 0.025)])
        burst_j = 270.0  # half a second of 600 W, from 9.5 s on, at 60 W otherwise
        joules = np.floor(times_s / 0.1 + 1e-9) * 6 + np.where(times_s > 10, burst_j, 0)
        found = energy_of(of_counter(times_s, joules, 0.1, read_every_s=0.1), 10.2, 20.0)
        true_j = 60 * 9.8
        assert found.energy is None or found.energy.low <= true_j <= found.energy.high
        beside = energy_of(of_counter(times_s, joules, 0.1, read_every_s=0.1), 8.0, 20.0)
        assert beside.energy.relative_half_width < 0.05
        assert beside.energy.low <= 60 * 12 + burst_j <= beside.energy.high

    def test_a_sensor_that_is_slower_than_assumed_is_taken_for_what_it_shows(self):
        generator = np.random.default_rng(2)
        times_s = np.arange(0, 60, 0.025)
        watts = 200 + generator.normal(0, 3, 60)
        curve = of_readings(times_s, watts[times_s.astype(int)], SENSOR)
        found = energy_of(curve, 20.0, 40.0)
        assert 17 <= found.changes <= 21
        assert found.energy.low <= watts[20:40].sum() <= found.energy.high
        assert (
            energy_of(of_readings(times_s, watts[times_s.astype(int)], SENSOR), 7.3, 7.9).energy
            is None
        )

    def test_a_sensor_that_sticks_after_it_has_moved_does_not_know_the_rest(self):
        times_s = np.arange(0, 30, 0.025)
        power_w = np.where(times_s < 10, noisy(times_s), 200.123)
        curve = of_readings(times_s, power_w, SENSOR)
        assert "stood still, for" in energy_of(curve, 8.0, 20.0).reason
        assert energy_of(curve, 3.0, 9.0).energy is not None

    @pytest.mark.parametrize("wrong_w", [0.0, 1500.0])
    def test_readings_that_the_device_cannot_draw_are_left_out(self, wrong_w):
        times_s = np.arange(0, 20, 0.025)
        power_w = noisy(times_s)
        odd = (times_s > 7) & (times_s < 7.2)
        found = samples(times_s, np.where(odd, wrong_w, power_w))
        found["power_limit_w"] = 350.0
        window = Shown(found, SENSOR).energy(5.0, 15.0)
        assert window.energy.low <= 2000 <= window.energy.high
        long = samples(times_s, np.where((times_s > 7) & (times_s < 10), wrong_w, power_w))
        long["power_limit_w"] = 350.0
        assert "was not read" in Shown(long, SENSOR).energy(5.0, 15.0).reason

    def test_a_jump_of_the_counter_is_told_by_the_power_limit_or_by_the_readings(self):
        times_s = np.arange(0, 20, 0.025)
        joules = np.floor(times_s / 0.1 + 1e-9) * 20 + np.where(times_s > 7, 500.0, 0.0)
        found = samples(times_s, noisy(times_s), joules)
        flagged = Shown(found, SENSOR).energy(6.5, 8.0)
        assert COUNTER_DISAGREES in flagged.flags
        found["power_limit_w"] = 350.0
        assert "set back or jumped" in Shown(found, SENSOR).energy(6.5, 8.0).reason

    def test_only_windows_that_a_loss_has_cut_are_without_energy_for_it(self):
        times_s = np.arange(0, 10, 0.025)
        kept = samples(times_s, noisy(times_s))
        lost = {"lost": "NVML: GPU is lost"}
        assert Shown(kept, SENSOR).energy(9.0, 12.0, **lost).reason == lost["lost"]
        assert Shown(kept, SENSOR).energy(2.0, 6.0, **lost).energy is not None
        short = Shown(kept, SENSOR).energy(2.0, 2.001, **lost)
        assert "too short" in short.reason


@pytest.mark.usefixtures("card_of_sampler")
class TestPrograms:
    def test_a_meter_that_hangs_holds_up_no_program(self, monkeypatch):
        monkeypatch.setenv("SIMULATED_HANG_AT_READING", "60")
        with power.Monitor([GPU]) as monitor:
            start_s = time.monotonic()
            while time.monotonic() < start_s + 1:
                for _ in range(2000):  # more commands than a pipe holds
                    monitor.mark()
                time.sleep(0.05)
            with power.measure("hung", monitor=monitor) as window:
                pass
            monkeypatch.setattr("opcost.power.sampler_process._ANSWER_S", 0.2)
            assert "does not answer" in window.devices[GPU].reason
            start_s = time.monotonic()
        assert time.monotonic() - start_s < 5

    def test_a_fork_leaves_the_monitor_of_its_parent_alone(self):
        with power.Monitor([GPU]) as monitor:
            window = power.start("of both", monitor=monitor)
            child = os.fork()
            if child == 0:
                try:
                    window.stop()
                    reason = window.devices[GPU].reason
                    monitor.close()
                    os._exit(0 if "a fork of it cannot go on" in reason else 1)
                except BaseException:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            time.sleep(0.3)
            window.stop()
            assert window.devices[GPU].energy is not None

    def test_a_fork_that_leaves_a_window_ends_it_in_no_recording(self, tmp_path, monkeypatch):
        recording = Recording(tmp_path / "around")
        recording.folder.mkdir()
        recording.begin({})
        for name, value in environment_in(recording).items():
            monkeypatch.setenv(name, value)
        with power.measure("once"):
            child = os.fork()
            if child == 0:
                break_out = True
            else:
                break_out = False
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if break_out:
            os._exit(0)
        assert len([event for event in recording.events() if "window" in event]) == 1

    def test_a_fork_may_measure_while_its_parent_begins_to(self):
        with ThreadPoolExecutor(1) as threads:
            beginning = threads.submit(power.start, "of the parent")
            time.sleep(0.1)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                power.start("of the fork").stop()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            beginning.result().stop()

    def test_a_handler_of_a_signal_may_ask_for_energy_meanwhile(self):
        with power.measure("before") as before:
            time.sleep(0.3)
        found = []
        previous = signal.signal(
            signal.SIGALRM, lambda *_: found.append(before._monitor.energy(*before_edges))
        )
        before_edges = (before._start_s, before._end_s)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            deadline_s = time.monotonic() + 1
            while time.monotonic() < deadline_s:
                assert before._monitor.energy(*before_edges)[GPU].energy is not None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert [each[GPU].reason for each in found if each[GPU].energy is None] == []

    def test_a_file_with_the_name_of_a_module_does_not_stop_the_sampler(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "random.py").write_text("raise SystemExit('not that one')")
        monkeypatch.chdir(tmp_path)
        with power.measure("beside it") as window:
            time.sleep(0.2)
        assert window.devices[GPU].energy is not None

    def test_an_output_stays_where_it_was_named_when_the_program_moves(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with power.Monitor([GPU], output="run.parquet"):
            os.chdir("/")
        assert len(segments(tmp_path / "run.parquet")) == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"devices": [0]}, r"devices is \[0\]: give a list of names"),
            ({"devices": GPU}, "devices is 'cuda:0': give a list of names"),
            ({"labels": {"batch": 8}}, "the label 'batch' is 8: names and values are text"),
            ({"period_s": float("nan")}, "period_s is nan; allowed"),
        ],
    )
    def test_arguments_of_another_kind_are_explained_and_leave_no_folder(
        self, arguments, message, tmp_path
    ):
        with pytest.raises(OpcostError, match=message):
            power.Monitor(**arguments, output=tmp_path / "run.parquet")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", [5, b"epoch", "two\nlines", None])
    def test_the_name_of_a_window_is_a_line_of_text(self, name):
        with pytest.raises(OpcostError, match="the name of a window is"):
            power.start(name)

    def test_a_number_that_is_too_large_is_not_logged(self):
        with pytest.raises(OpcostError, match="log: x is 1000"):
            power.log(x=10**400)


@pytest.mark.usefixtures("card_of_sampler")
class TestCommands:
    def test_an_answer_that_cannot_be_written_changes_no_exit_code_and_loses_no_reading(
        self, tmp_path
    ):
        output = tmp_path / "run.parquet"
        with open("/dev/full", "w") as full:
            found = measure(
                "-o", output, "--", "sh", "-c", "exit 7", capture_output=False, stderr=full
            )
        assert found.returncode == 7
        assert len(segments(output)) == 1

    def test_runs_before_one_that_cannot_start_are_kept(self, tmp_path):
        output, script = tmp_path / "run.parquet", tmp_path / "once"
        script.write_text('#!/bin/sh\nsleep 0.3\nrm "$0"\n')
        script.chmod(0o755)
        found = measure("-o", output, "--repeat", 3, "--", script)
        assert found.returncode == 127
        assert f"opcost: {script} cannot be run: No such file" in found.stderr
        assert " J ± " in found.stderr
        assert len(window_rows(segments(output))) == 1

    def test_a_run_that_fails_is_not_in_the_mean_of_those_before(self, tmp_path):
        script = f"test -e {tmp_path}/ran && exit 5; touch {tmp_path}/ran"
        found = measure("--json", "--repeat", 3, "--", "sh", "-c", script)
        document = json.loads(found.stderr)
        assert (found.returncode, document["runs"]) == (5, 1)
        assert document["stopped"] == "run 2 of 3 failed (exit code 5): it is not in the mean"

    def test_of_two_measurements_with_one_output_one_is_refused_and_the_other_whole(self, tmp_path):
        output = tmp_path / "run.parquet"
        command = [sys.executable, "-m", "opcost", "measure", "--append", "-o", output]
        command += ["--", "sh", "-c", "sleep 1.5; echo ran"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = [subprocess.Popen(command, **streams) for _ in range(2)]
        said = [each.communicate(timeout=120) for each in running]
        codes = [each.returncode for each in running]
        if sorted(codes) == [0, 0]:  # the second began when the first had ended
            assert len(segments(output)) == 2
            return
        assert sorted(codes) == [0, 1]
        refused = said[codes.index(1)]
        assert refused[0] == ""
        assert "another measurement is writing to" in refused[1]
        assert len(segments(output)) == 1
        assert not recording_beside(output).exists()

    def test_an_output_is_not_taken_from_a_measurement_whose_sampler_was_killed(self, tmp_path):
        output = tmp_path / "run.parquet"
        with power.Monitor([GPU], output=output) as monitor:
            monitor._sampler.process.kill()
            monitor._sampler.process.wait()
            second = measure("-o", output, "--", "echo", "ran")
            assert (second.returncode, second.stdout) == (1, "")
            assert "another measurement is writing to" in second.stderr
        assert len(segments(output)) == 1

    def test_a_signal_ends_a_measurement_of_the_machine_with_an_answer(self, tmp_path):
        output = tmp_path / "run.parquet"
        command = [sys.executable, "-m", "opcost", "measure", "--duration", "10min", "-o", output]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            while not (recording_beside(output) / "samples").exists():
                time.sleep(0.05)
            time.sleep(1.5)
            running.send_signal(signal.SIGTERM)
            said = running.communicate(timeout=60)[1]
        assert running.returncode == 128 + signal.SIGTERM
        assert "opcost: machine: " in said
        assert len(window_rows(segments(output))) == 1

    def test_watching_ends_with_its_reader(self):
        command = [sys.executable, "-m", "opcost", "watch", "--every", "0.2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            assert GPU in watching.stdout.readline()
            watching.stdout.close()
            assert watching.wait(60) != 0

    def test_figures_are_in_the_recordings_of_all_measurements_around(self, tmp_path):
        outer, inner = tmp_path / "outer.parquet", tmp_path / "inner.parquet"
        script = "from opcost import power; print(power.log(loss=0.5))"
        opcost = [sys.executable, "-m", "opcost"]
        within = [*opcost, "measure", "-o", inner, "--", sys.executable, "-c", script]
        assert measure("-o", outer, "--", *within).stdout == "True\n"
        for output in (outer, inner):
            [segment] = segments(output)
            assert {"loss": 0.5} in [event.get("metrics") for event in segment["events"]]

    def test_a_survivor_of_a_recording_writes_nothing_into_the_next_one_at_its_place(
        self, tmp_path, monkeypatch
    ):
        recording = Recording(tmp_path / "run.parquet.recording")
        recording.folder.mkdir()
        recording.begin({})
        for name, value in environment_in(recording).items():
            monkeypatch.setenv(name, value)
        assert power.log(loss=1)
        shutil.rmtree(recording.folder)
        assert not power.log(loss=2)
        recording.folder.mkdir()
        recording.begin({})
        assert not power.log(loss=3)
        assert list(recording.events()) == []

    def test_a_file_that_the_command_writes_in_its_place_is_left_and_so_are_the_readings(
        self, tmp_path
    ):
        output = tmp_path / "run.parquet"
        found = measure("-o", output, "--", "sh", "-c", f"echo mine > {output}; exit 3")
        assert found.returncode == 3
        assert output.read_text() == "mine\n"
        assert f"the readings stay in {recording_beside(output)}" in found.stderr
        output.unlink()
        assert measure("-o", output, "--append", "--", "true").returncode == 0
        assert len(segments(output)) == 2

    def test_a_recording_that_was_written_before_a_kill_is_not_written_twice(self, tmp_path):
        output = tmp_path / "run.parquet"
        with power.Monitor([GPU], folder=recording_beside(output)):
            time.sleep(0.1)
        (tmp_path / ".run.parquet.4711.tmp").write_text("half a table")
        shutil.copytree(recording_beside(output), tmp_path / "kept")
        finish(output)
        (tmp_path / "kept").rename(recording_beside(output))
        finish(output)
        assert len(segments(output)) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]

    def test_a_command_may_have_any_name(self, tmp_path):
        program = Path(os.fsdecode(os.fsencode(tmp_path) + b"/two\nlines\xff"))
        program.write_text("#!/bin/sh\nexit 5\n")
        program.chmod(0o755)
        assert measure("--", os.fsdecode(program)).returncode == 5


def test_figures_may_have_the_names_of_columns_and_any_value(tmp_path):
    event = {"time_s": 1.5, "metrics": {"time": float("nan"), "window": 2.0, GPU: 3.0}}
    window = {"time_s": 2.0, "window": "epoch", "start_s": 1.0, "end_s": 2.0, "devices": {GPU: {}}}
    window["devices"][GPU] = {"energy_j": IDLE_W, "energy_ci_low_j": 59.0, "energy_ci_high_j": 61.0}
    rows = window_rows([{"events": [event, window]}])
    header, line = (each.split() for each in window_lines(rows))
    assert header == ["window", "time", GPU, "time", "window", GPU]
    assert line == ["epoch", "1.000", "s", "60.0", "J", "±", "1.7%", "nan", "2", "3"]
    output = tmp_path / "run.parquet"
    described = {b"opcost": json.dumps([{"events": [event, window]}]).encode()}
    pq.write_table(pyarrow.table({"a": [1]}).replace_schema_metadata(described), output)
    said = CliRunner().invoke(main, ["windows", "--json", str(output)]).output
    assert "NaN" not in said
    assert json.loads(said)[0]["metrics"] == {"time": None, "window": 2.0, GPU: 3.0}
