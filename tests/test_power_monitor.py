"""Windows around code, with a sampler process that reads a simulated card.

The card idles at 60 W, in real time, in the sampler's process: what this process computes does not
change that.
"""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opcost import power
from opcost.errors import OpcostError
from opcost.power import windows
from opcost.power.energy import DeviceEnergy
from opcost.power.recording import DID_NOT_END, WHOLE, Recording, recording_beside
from opcost.power.text import as_line
from opcost.statistics import Estimate

from tests.opcost_measure import GPU, IDLE_W

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


def test_a_window_has_its_machine_and_the_total_of_its_devices():
    with power.Monitor([GPU], idle_s=0.5) as monitor:
        with power.measure("sleep", monitor=monitor) as window:
            time.sleep(0.6)
        short = power.start("short", monitor=monitor)
        short.stop()
        assert short.machine["processor_use_percent"] is None
    assert 0 <= window.machine["processor_use_percent"] <= 100
    assert window.machine["memory_bytes"] > 1e6
    assert {f"{GPU}_use_percent", f"{GPU}_temperature_c"} <= window.machine.keys()
    assert window.devices[GPU].idle_power.value == pytest.approx(IDLE_W, rel=0.1)
    assert "needs two devices" in window.total.reason


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
    assert (str(window), repr(window)) == ("once: not over", "<Window 'once', not over>")
    with pytest.raises(OpcostError, match="is not over: call its stop"):
        _ = window.devices
    window.stop()
    assert GPU not in repr(window)  # which does not wait for the sensors
    with pytest.raises(OpcostError, match="is over already"):
        window.stop()


def test_a_block_that_raises_has_a_window_as_well():
    def fail():
        time.sleep(0.3)
        raise RuntimeError

    with pytest.raises(RuntimeError), power.measure("failing") as window:
        fail()
    assert window.devices[GPU].energy is not None


def test_a_short_window_is_refused():
    with power.measure("short") as window:
        time.sleep(0.002)
    assert window.devices[GPU].energy is None
    assert "are too short for the sensor" in window.devices[GPU].reason


def test_many_short_windows_leave_their_epoch_its_energy():
    with power.measure("epoch") as epoch:
        for number in range(300):
            with power.measure(f"step {number}"):
                time.sleep(0.002)
    assert is_about(epoch.devices[GPU].energy, IDLE_W * epoch.time_s)


def test_devices_are_chosen_by_name_and_wrong_ones_explained():
    with power.Monitor([GPU, "cpu"]) as monitor:
        both = power.start("all", monitor=monitor)
        one = power.start("one", [GPU], monitor)
        one.stop()
        both.stop()
        assert (set(one.devices), set(both.devices)) == ({GPU}, {GPU, "cpu"})
        with pytest.raises(OpcostError, match=r"reads the devices cuda:0, cpu: for others, open a"):
            power.start("other", ["cuda:7"], monitor)
    with pytest.raises(OpcostError, match=r"'cuda:7' is no device of this machine.*cuda:0"):
        power.Monitor(["cuda:7"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"devices": [0]}, r"devices is \[0\]: give a list of names"),
        ({"devices": GPU}, "devices is 'cuda:0': give a list of names"),
        ({"labels": {"batch": 8}}, "the label 'batch' is 8: give text that can be printed"),
        ({"idle_s": -1}, "idle_s is -1; allowed is a finite number of at least 0"),
        ({"period_s": float("nan")}, "period_s is nan; allowed: seconds from 0.001 to 60"),
        ({"output": "run.csv"}, r"run\.csv': name a file that ends with \.parquet"),
        ({"output": None, "labels": {"batch": "8"}}, "labels are kept in a recording"),
    ],
)
def test_arguments_of_another_kind_are_explained_and_leave_no_folder(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OpcostError, match=message):
        power.Monitor(**{"output": tmp_path / "run.parquet", **arguments})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [5, b"epoch", "two\nlines", None])
def test_the_name_of_a_window_is_a_line_of_text(name):
    with pytest.raises(OpcostError, match="the name of a window is"):
        power.start(name)


@pytest.mark.parametrize("value", [None, 10**400])
def test_what_is_no_number_is_not_logged_whether_or_not_there_is_a_recording(value):
    with pytest.raises(OpcostError, match=r"log: loss is .*: give numbers"):
        power.log(loss=value)


def test_a_window_has_a_line_with_its_energies_alone():
    window = power.start("epoch")
    time.sleep(0.4)
    assert re.fullmatch(rf"epoch so far: .* m?s, {GPU} .* J ± .* \(.* W\)", window.line())
    window.stop()
    assert re.fullmatch(rf"epoch: .* m?s, {GPU} .* J ± .* \(.* W\)", window.line())
    used = {
        "cpu": DeviceEnergy(None, "no energy sensor"),
        GPU: DeviceEnergy(None, "0.01 s are too short", 0.01, flags=("throttled",)),
    }
    assert as_line("step", 0.01, used) == f"step: 10.00 ms, {GPU} no energy [throttled]"
    assert as_line("step", 0.01, {"cpu": used["cpu"]}) == "step: 10.00 ms, no energy"


class SteadyMonitor:
    """A device that draws 200 W; each answer is off by 5 J, and notes what it read."""

    def __init__(self):
        self.parts_s, self.reason = [], None

    def edge(self):
        return 0.0

    def note(self, event):
        pass

    def energy(self, start_s, end_s):
        self.parts_s.append(end_s - start_s)
        joules = 200 * (end_s - start_s)
        energy = None if self.reason else Estimate(joules, joules - 5, joules + 5)
        return {GPU: DeviceEnergy(energy, self.reason, end_s - start_s, 3, ("stuck",))}


def test_of_a_window_that_is_not_over_only_the_last_minute_is_read_again():
    monitor = SteadyMonitor()
    window = windows.Window("long", monitor)
    for second in range(1, 3601):
        found = window.so_far(float(second))[GPU]
    assert max(monitor.parts_s) <= windows._PART_S
    assert found.energy == Estimate(200 * 3600, 200 * 3600 - 300, 200 * 3600 + 300)
    assert (found.time_s, found.changes, found.flags) == (3600, 180, ("stuck",))
    monitor.reason = "lost"
    window.so_far(3661.0)
    monitor.reason = None
    assert window.so_far(3670.0)[GPU].reason == (
        "1 of 2 parts have no energy; the first of them: 1 of 2 parts have no energy; the first of "
        "them: lost"
    )


def test_power_needs_no_pytorch():
    script = "import sys; import opcost.power; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


class TestRecordings:
    def test_a_monitor_writes_its_windows_and_figures_to_a_new_file(self, tmp_path):
        output = tmp_path / "run.parquet"
        labels = {"batch": "8"}
        with (
            power.Monitor([GPU], output=output, labels=labels) as monitor,
            power.measure("inside", monitor=monitor) as window,
        ):
            time.sleep(0.3)
            assert power.log(loss=2)
        assert not power.log(loss=3)
        [row] = power.read_windows(output)
        assert (row["window"], row["labels"], row["metrics"]) == ("inside", labels, {"loss": 2.0})
        assert is_about(row["devices"][GPU].energy, IDLE_W * row["time_s"])
        found = window.devices[GPU].energy
        assert is_about(found, IDLE_W * row["time_s"])
        with pytest.raises(OpcostError, match="exists: name another file"):
            power.Monitor([GPU], output=output)

    def test_windows_that_are_over_can_be_asked_after_their_monitor_was_closed(self):
        with power.Monitor([GPU]) as monitor:
            with power.measure("first", monitor=monitor) as first:
                time.sleep(0.4)
            late = power.start("late", monitor=monitor)
        assert is_about(first.devices[GPU].energy, IDLE_W * first.time_s)
        late.stop()
        assert late.devices[GPU].reason == (
            "the monitor was closed before the window was over: call its stop() first"
        )
        with pytest.raises(OpcostError, match="is closed: open another"):
            power.start("later", monitor=monitor)

    def test_a_monitor_that_is_not_closed_writes_its_output_as_the_program_ends(self, tmp_path):
        (tmp_path / "disk").mkdir()
        (tmp_path / "run.parquet").symlink_to(tmp_path / "disk" / "other.parquet")
        script = (
            "import os; from opcost import power; m = power.Monitor(output='run.parquet'); "
            "power.start('never stopped', monitor=m); os.chdir('/')"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=tmp_path)
        assert (tmp_path / "run.parquet").is_symlink()
        whole, never = power.read_windows(tmp_path / "disk" / "other.parquet")
        assert whole["window"] == WHOLE
        assert (never["window"], never["devices"][GPU].reason) == ("never stopped", DID_NOT_END)

    def test_a_killed_program_leaves_its_windows_and_the_energy_of_the_whole(self, tmp_path):
        output = tmp_path / "run.parquet"
        script = (
            "import time\n"
            "from opcost import power\n"
            f"monitor = power.Monitor(['{GPU}'], output={str(output)!r})\n"
            "power.start('epoch', monitor=monitor)\n"
            "{}\n"
            "print(monitor._sampler.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        step = "with power.measure('step', monitor=monitor): time.sleep(0.5)"
        for inside, name in (("", WHOLE), (step, "step")):
            command = [sys.executable, "-c", script.format(inside)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
                sampler = int(parent.stdout.readline())
                time.sleep(1.5)
                with pytest.raises(OpcostError, match="is being written"):
                    power.read_windows(output)
                parent.kill()
            while Path(f"/proc/{sampler}").exists():  # it notices
                time.sleep(0.02)
            row, epoch = power.read_windows(output)
            assert row["window"] == name
            assert is_about(row["devices"][GPU].energy, IDLE_W * row["time_s"])
            assert (epoch["window"], epoch["devices"][GPU].reason) == ("epoch", DID_NOT_END)
            assert not recording_beside(output).folder.exists()
            output.unlink()

    def test_a_recording_that_shows_nothing_has_no_window(self, tmp_path):
        power.Monitor([], output=tmp_path / "run.parquet").close()
        assert power.read_windows(tmp_path / "run.parquet") == []

    def test_the_last_window_of_a_recording_has_energy_though_nobody_has_asked(self, tmp_path):
        output = tmp_path / "run.parquet"
        with (
            power.Monitor([GPU], output=output, period_s=1) as monitor,
            power.measure("last", monitor=monitor),
        ):
            time.sleep(3.4)
        [row] = power.read_windows(output)
        assert row["devices"][GPU].energy is not None


class TestSamplers:
    def test_what_a_killed_sampler_wrote_is_kept_and_a_window_says_that_it_was(self, tmp_path):
        with power.Monitor([GPU], output=tmp_path / "run.parquet") as monitor:
            with power.measure("before", monitor=monitor):
                time.sleep(0.5)
            window = power.start("cut off", monitor=monitor)
            time.sleep(1.0)
            monitor._sampler.kill()
            monitor._sampler.wait()
            window.stop()
            found = window.devices[GPU]
        assert found.energy is None
        assert found.reason == "the process that reads the meters has ended (killed by SIGKILL)"
        before, _ = power.read_windows(tmp_path / "run.parquet")
        assert before["devices"][GPU].energy is not None

    def test_a_window_after_the_sampler_was_killed_has_another_one(self):
        power.start().stop()
        windows._shared._sampler.kill()
        windows._shared._sampler.wait()
        with power.measure() as window:
            time.sleep(0.2)
        assert window.devices[GPU].energy is not None

    def test_a_meter_that_hangs_holds_up_no_program(self, monkeypatch):
        monkeypatch.setenv("SIMULATED_HANG_AT_READING", "60")
        with power.Monitor([GPU]) as monitor:
            start_s = time.monotonic()
            while time.monotonic() < start_s + 1:
                for _ in range(2000):
                    monitor.edge()
                time.sleep(0.05)
            monkeypatch.setattr("opcost.power.monitor._ANSWER_S", 0.2)
            with power.measure("hung", monitor=monitor) as window:
                pass
            assert "does not answer" in window.devices[GPU].reason
            start_s = time.monotonic()
        assert time.monotonic() - start_s < 5

    def test_a_file_with_the_name_of_a_module_does_not_stop_the_sampler(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "random.py").write_text("raise SystemExit('not that one')")
        monkeypatch.chdir(tmp_path)
        with power.measure("beside it") as window:
            time.sleep(0.2)
        assert window.devices[GPU].energy is not None

    @pytest.mark.parametrize("python", ["", None, "/no/such/python"])
    def test_without_a_python_to_read_with_there_is_no_monitor_and_no_folder(
        self, python, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(sys, "executable", python)
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(OpcostError, match="power cannot be read: "):
            power.Monitor([GPU])
        assert list(tmp_path.iterdir()) == []

    def test_a_program_may_close_all_descriptors_and_open_others_by_their_numbers(self, tmp_path):
        script = (
            "import os, time\n"
            "from opcost import power\n"
            "window = power.start('before')\n"
            "os.closerange(3, 256)\n"
            "files = [open(f'file {number}', 'w+b', 0) for number in range(12)]\n"
            "time.sleep(0.4)\n"
            "window.stop()\n"
            "print(window.devices['cuda:0'].energy is not None)\n"
            "print([os.fstat(file.fileno()).st_size for file in files] == [0] * 12)\n"
        )
        command = [sys.executable, "-c", script]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert found.stdout.split() == ["True", "True"]


class TestForksThreadsAndSignals:
    def test_a_fork_has_a_monitor_of_its_own_and_leaves_that_of_its_parent_alone(self):
        window = power.start("parent")
        child = os.fork()
        if child == 0:
            try:
                window.stop()
                theirs = window.devices[GPU].reason
                with power.measure("child") as own:
                    time.sleep(0.3)
                is_own = own.devices[GPU].energy and "a fork of it cannot go on" in theirs
                os._exit(0 if is_own else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        time.sleep(0.3)
        window.stop()
        assert window.devices[GPU].energy is not None

    def test_a_fork_that_leaves_a_window_ends_it_in_no_recording(self, tmp_path):
        output = tmp_path / "run.parquet"
        monitor = power.Monitor([GPU], output=output)
        with power.measure("once", monitor=monitor):
            child = os.fork()
            if child == 0:
                break_out = True
            else:
                break_out = False
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if break_out:
            os._exit(0)
        monitor.close()
        assert [row["window"] for row in power.read_windows(output)] == ["once"]

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

    def test_threads_and_handlers_of_signals_may_ask_at_the_same_time(self):
        with power.measure("before") as before:
            time.sleep(0.3)
        edges_s, found = (before._start_s, before._end_s), []
        energy = before._monitor.energy
        handler = signal.signal(signal.SIGALRM, lambda *_: found.append(energy(*edges_s)))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            with ThreadPoolExecutor(4) as threads:
                asked = [threads.submit(energy, *edges_s) for _ in range(12)]
                found += [each.result() for each in asked]
            time.sleep(0.2)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        assert len(found) > 12
        assert [each[GPU].reason for each in found if each[GPU].energy is None] == []


def test_nothing_is_left_behind_in_the_folder_for_temporary_files(tmp_path):
    script = "import time; from opcost import power; power.start(); print(1, flush=True); {}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    options = {"stdout": subprocess.PIPE, "env": environment}
    for rest in ("pass", "time.sleep(60)"):
        command = [sys.executable, "-c", script.format(rest)]
        with subprocess.Popen(command, **options) as running:
            running.stdout.readline()
            assert len(list(tmp_path.iterdir())) == 1 or rest == "pass"
            if rest != "pass":
                running.kill()
        deadline_s = time.monotonic() + 10  # its sampler notices, and cleans up
        while list(tmp_path.iterdir()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) == []


def test_events_that_are_damaged_or_cut_spoil_no_others(tmp_path):
    recording = Recording(tmp_path)
    recording.note({"metrics": {"loss": 1.0}})
    with recording.events_file.open("ab") as file:
        file.write(b'\xff\n5\n{"time_s": 3.0, "wind')  # by a full disk
    recording.note({"metrics": {"loss": 2.0}})
    assert [each["metrics"]["loss"] for each in recording.events()] == [1.0, 2.0]


TOO_MANY = """
import resource
from opcost import power
from opcost.errors import OpcostError
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
for _ in range(8):
    try:
        power.start("without files").stop()
    except OpcostError as error:
        print(error)
    files.pop()
"""


def test_a_program_without_free_descriptors_is_told_so(tmp_path):
    command, environment = [sys.executable, "-c", TOO_MANY], {**os.environ, "TMPDIR": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "Too many open files" in found.stdout
