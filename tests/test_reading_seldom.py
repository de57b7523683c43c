"""Sensors that are read more seldom than they change: the period is to blame, not the sensor."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from opcost.energy.sensor import Sensor
from opcost.power.curves import of_counter, of_readings
from opcost.power.estimation import energy_of
from opcost.power.recorded_windows import events_with_energy
from opcost.power.recording import SAMPLE, Recording

SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1)
SHORTER = "give a shorter period, or leave the sampler a core"
GUIDE = Path(__file__).parent.parent / "docs/how_to/measure_energy.md"


def counted(times_s, watts=200.0):
    """The counter of a sensor that changes every 0.1 s."""
    return np.floor(times_s / 0.1 + 1e-9) * 0.1 * watts


def test_steps_that_a_shorter_period_would_show_ask_for_it():
    times_s = np.sort(np.concatenate([np.arange(0, 20, 1.0), np.arange(0.35, 20, 0.36)]))
    curve = of_counter(times_s, counted(times_s), 0.1, read_every_s=0.1)
    found = energy_of(curve, times_s[20], times_s[20] + 0.36)
    assert found.energy is None
    assert found.reason.startswith("the sensor was not read, or stood still, for 0.")
    assert found.reason.endswith(SHORTER)


def test_steps_that_no_period_would_show_are_too_short_for_the_sensor():
    times_s = np.sort(np.concatenate([np.arange(0, 20, 0.31), [9.0, 9.02]]))
    curve = of_counter(times_s, counted(times_s), 0.1, read_every_s=0.1)
    found = energy_of(curve, 9.0, 9.02)
    assert found.reason.startswith("0.02 s are too short for the sensor, which changes every 0.1 s")


def test_readings_between_which_the_sensor_changes_ask_for_a_shorter_period():
    times_s = np.arange(0, 20, 0.3)
    watts = 200 + np.random.default_rng(0).normal(0, 2, len(times_s))
    assert SHORTER in energy_of(of_readings(times_s, watts, SENSOR), 9.0, 9.3).reason


@pytest.mark.parametrize("period_s", [1.0, 10.0])
def test_long_windows_of_a_counter_that_is_read_seldom_have_an_energy(tmp_path, period_s):
    recording = Recording(tmp_path)
    source = {"name": "cuda:0", "sensor": vars(SENSOR), "reads_since_last": False}
    recording.begin({"sources": [source], "period_s": period_s})
    times_s = np.sort(np.concatenate([np.arange(0, 600, period_s), [203.3, 403.4]]))
    samples = np.zeros(len(times_s), SAMPLE)
    for name in SAMPLE.names[2:]:
        samples[name] = np.nan
    samples["time_s"] = times_s
    samples["counter_j"] = counted(times_s)
    samples.tofile(recording.samples_file)
    recording.note({"window": "epoch", "start_s": 203.3, "end_s": 403.4})
    [event] = events_with_energy(recording)
    used = event["devices"]["cuda:0"]
    assert used["energy_ci_low_j"] <= 200 * 200.1 <= used["energy_ci_high_j"]


def test_the_epochs_of_the_guide_have_an_energy(card_of_sampler, tmp_path):
    """Those for users of SustainableML."""
    [recipe] = [
        part.partition("```")[0]
        for part in GUIDE.read_text().split("```python\n")
        if "readings.parquet" in part.partition("```")[0]
    ]
    script = f"import time\ndef train():\n    time.sleep(0.36)\n{recipe}"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 3
    assert all("cuda:0 2" in line and " J ± " in line for line in lines), json.dumps(lines)
