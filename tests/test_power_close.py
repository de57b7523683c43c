"""Windows whose monitor is closed: those that are over keep their energy, others are told.

The card is the simulated one, which idles.
"""

import subprocess
import sys
import time
import warnings

import pytest
from opcost import power
from opcost.errors import OpcostError

from tests.opcost_measure import GPU, IDLE_W

pytestmark = pytest.mark.usefixtures("card_of_sampler")


def is_about(estimate, joules):
    return estimate.low <= joules * 1.02 and estimate.high >= joules * 0.98


@pytest.mark.parametrize("kept", [False, True])
def test_windows_that_are_over_can_be_asked_after_their_monitor_was_closed(tmp_path, kept):
    output = tmp_path / "run.parquet" if kept else None
    with power.Monitor([GPU], output=output) as monitor:
        with power.measure("first", monitor=monitor) as first:
            time.sleep(0.4)
        with power.measure("second", monitor=monitor) as second:
            time.sleep(0.4)
    for window in (first, second):
        assert is_about(window.devices[GPU].energy, IDLE_W * window.time_s)
    assert "no energy" not in str(first)
    assert monitor._left is None


def test_a_window_that_was_never_stopped_is_told_when_its_monitor_is_closed(tmp_path):
    monitor = power.Monitor([GPU], output=tmp_path / "run.parquet")
    window = power.start("late", monitor=monitor)
    with pytest.warns(UserWarning, match="the window 'late' has no energy and is in no recording"):
        monitor.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.close()
        window.stop()
    assert window.devices[GPU].reason == (
        "the monitor was closed before the window was over: call its stop() first"
    )
    with pytest.raises(OpcostError, match="is closed: open another"):
        power.start("later", monitor=monitor)


def test_a_window_that_was_never_stopped_is_told_when_the_program_ends():
    script = "from opcost import power; power.start('never stopped')"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "the window 'never stopped' has no energy" in found.stderr


def test_what_is_known_of_a_window_is_seen_without_waiting_for_the_sensors():
    window = power.start("epoch")
    assert repr(window) == "<Window 'epoch', not over>"
    time.sleep(0.3)
    window.stop()
    assert repr(window).startswith("<Window 'epoch': 3")
    assert GPU not in repr(window)
    _ = window.devices
    assert f"{GPU} " in repr(window)
