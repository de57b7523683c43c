"""A wattmeter that prints watts, one number on each line: a simulated one, in real time."""

import json
import os
import re
import sys
import threading
import time
import tty

import psutil
import pytest
from click.testing import CliRunner
from opcost import power
from opcost.commands import main
from opcost.energy.meter import MeterUnavailable
from opcost.energy.wattmeter import Wattmeter, characterise_wattmeter

from tests.documents import ROOT
from tests.simulated_wattmeter import BUSY_W, IDLE_W, SimulatedLoad

INTERVAL_S, DELAY_S = 0.05, 0.08


@pytest.fixture
def load(tmp_path):
    return SimulatedLoad(tmp_path / "load")


@pytest.fixture
def command(load, tmp_path, monkeypatch):
    """The command of a simulated wattmeter, for other processes as well."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("OPCOST_RECORDINGS", raising=False)

    def command(then="", interval_s=INTERVAL_S, delay_s=DELAY_S):
        module = "-m tests.simulated_wattmeter"
        return f"{sys.executable} {module} {tmp_path / 'load'} {interval_s} {delay_s} {then}"

    return command


@pytest.fixture
def described(command, tmp_path):
    """The file that states the interval and the delay of the wattmeter."""
    found = {"refresh_s": INTERVAL_S, "averaging_s": INTERVAL_S, "lag_s": DELAY_S, "rise_s": 0.0}
    document = {
        "schema_version": 1,
        "source": command(),
        "meter": "wattmeter",
        "meter_reason": None,
        "readings": {"wattmeter": {**found, "correlated_share": None}},
        "counter": {"refresh_s": None},
        "idle_power_w": IDLE_W,
    }
    path = tmp_path / "wattmeter.json"
    path.write_text(json.dumps(document))
    return path


def windows_of(source, monkeypatch, lengths_s=(1.0,)):
    """Windows of such lengths with the wattmeter alone."""
    monkeypatch.setenv("OPCOST_WATTMETER", str(source))
    found = []
    with power.Monitor(["wattmeter"]) as monitor:
        for length_s in lengths_s:
            with power.measure(monitor=monitor) as window:
                time.sleep(length_s)
            found.append(window.devices["wattmeter"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("interval_s", "delay_s"), [(0.05, 0.08), (0.03, 0.15)])
def test_interval_and_delay_are_found_by_a_random_load(command, load, interval_s, delay_s):
    meter = Wattmeter(command(interval_s=interval_s, delay_s=delay_s))
    assert meter.assumed.refresh_s == pytest.approx(interval_s, rel=0.2)
    found = characterise_wattmeter(meter, load)["readings"]["wattmeter"]
    assert found["refresh_s"] == pytest.approx(interval_s, rel=0.05)
    assert found["averaging_s"] == pytest.approx(interval_s, rel=0.5)
    reach_s = found["averaging_s"] + found["lag_s"] + found["rise_s"]
    assert reach_s == pytest.approx(interval_s + delay_s, rel=0.3)


@pytest.mark.slow
def test_a_window_has_the_energy_of_its_time_though_the_wattmeter_is_late(
    described, load, monkeypatch
):
    monkeypatch.setenv("OPCOST_WATTMETER", str(described))
    with power.Monitor(["wattmeter"]) as monitor:
        time.sleep(0.5)
        with power.measure(monitor=monitor) as window:
            load.busy_until(time.monotonic() + 1.0)
            time.sleep(1.0)
    found = window.devices["wattmeter"]
    drawn_j = BUSY_W * 1.0 + IDLE_W * (window.time_s - 1.0)  # a busy machine sleeps longer
    assert found.energy.low <= 1.02 * drawn_j
    assert found.energy.high >= 0.98 * drawn_j
    assert found.energy.value == pytest.approx(drawn_j, rel=0.05)
    assert found.overlap == "measures the whole machine: add no other to it"


def test_without_a_file_the_delay_is_said_to_be_unknown(command, monkeypatch):
    [found] = windows_of(command(), monkeypatch)
    assert found.energy.low <= IDLE_W * found.time_s * 1.01
    assert "Its delay is unknown: opcost wattmeter finds it" in found.overlap


def named_pipe(path):
    """The path of a pipe, and a descriptor to write to it."""
    os.mkfifo(path)
    return path, os.open(path, os.O_RDWR)


def serial_line(_):
    """The path of a terminal, which is a character device, and its other end."""
    other, line = os.openpty()
    tty.setraw(line)
    return os.ttyname(line), other


@pytest.mark.parametrize("opened", [named_pipe, serial_line])
def test_a_pipe_and_a_serial_line_are_read_like_a_command(opened, tmp_path, monkeypatch):
    path, descriptor = opened(tmp_path / "pipe")
    over = threading.Event()

    def write():
        number = 0
        while not over.wait(0.05):
            number += 1
            os.write(descriptor, f"{IDLE_W + number % 2}\r\n".encode())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        [found] = windows_of(path, monkeypatch)
        assert found.reason is None
        assert found.mean_power_w == pytest.approx(IDLE_W, rel=0.05)
    finally:
        over.set()
        writer.join()
        os.close(descriptor)


def test_a_serial_line_that_needs_rights_says_which(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("opcost.energy.wattmeter.os.open", refuse)
    with pytest.raises(MeterUnavailable, match=r"may not be read: run as root \(sudo\), or join"):
        Wattmeter("/dev/null")


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("ends", r"the wattmeter '.*' has ended \(exit code 3\) after '100"),
        ("text", "the wattmeter '.*' prints 'Leistung: hoch': it must print watts, a number on"),
        ("silent", r"the wattmeter '.*' has printed nothing for \d+ s"),
    ],
)
def test_a_wattmeter_that_fails_leaves_the_windows_before_and_one_sentence(
    then, reason, command, monkeypatch
):
    before, after = windows_of(command(then), monkeypatch, (0.5, 7.5))
    assert before.energy is not None
    assert after.energy is None
    assert re.search(reason, after.reason)


def test_a_wattmeter_that_repeats_a_value_is_said_to_stand_still(command, monkeypatch):
    before, after = windows_of(command("same"), monkeypatch, (0.5, 4.0))
    assert before.energy is not None
    assert after.energy is None
    assert "the sensor was not read, or stood still, for" in after.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("no-such-program --watts", "cannot be started: .*No such file"),
        ("echo 12", r"has ended \(exit code 0\): it must keep printing"),
        ("sh -c 'while true; do echo watts; sleep 0.1; done'", "prints 'watts': it must print wat"),
        ("sh -c 'sleep 0.2; printf \"1\\n2\\n3\\n4\\n5\\n\"; sleep 9'", "several lines at once"),
        ("sleep 60", "printed 0 lines within 0.3 s, not 4: have it flush each line"),
        ("'unclosed", "cannot be started"),
    ],
)
def test_what_is_no_wattmeter_is_refused_in_a_sentence(source, reason, monkeypatch):
    monkeypatch.setattr("opcost.energy.wattmeter._FIRST_S", 0.3 if "60" in source else 10)
    with pytest.raises(MeterUnavailable, match=reason):
        Wattmeter(source)


@pytest.mark.slow
def test_the_command_writes_a_file_and_says_what_it_did_not_find(command, tmp_path, monkeypatch):
    """This wattmeter does not show the load of the processor."""
    output = tmp_path / "rack.json"
    source = command(interval_s=0.02)
    ran = CliRunner().invoke(main, ["wattmeter", source, "-o", str(output)])
    assert ran.exit_code == 0, ran.output
    assert "\nlag_s: -\n" in ran.output
    assert "averaging_s is unknown: the reading is not a moving average of the load" in ran.output
    assert f"OPCOST_WATTMETER={output} opcost measure" in ran.output
    assert json.loads(output.read_text())["source"] == source
    [found] = windows_of(output, monkeypatch)
    assert "Its delay is unknown" in found.overlap
    refused = CliRunner().invoke(main, ["wattmeter", "false"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)


def test_a_wattmeter_ends_with_its_reader(command, tmp_path, monkeypatch):
    def commands():
        return [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]

    monkeypatch.setenv("OPCOST_WATTMETER", command())
    with power.Monitor(["wattmeter"]):
        assert any(str(tmp_path / "load") in each for each in commands())
    assert not any(str(tmp_path / "load") in each for each in commands())
