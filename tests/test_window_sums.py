"""Windows of the same name together: their limits, how many have no energy, and the same fields."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.energy.sensor import Sensor
from opcost.power.export import finish, recording_beside, segments
from opcost.power.recorded_windows import rows_by_name
from opcost.power.recording import SAMPLE, Recording
from opcost.power.window_table import window_lines

GPU = "cuda:0"
SENSOR = Sensor(refresh_s=0.1, averaging_s=0.1, counter_refresh_s=0.1)
WATTS = 200.0
SECONDS = 20.0


def recorded(output, windows, missing=None):
    """Write the recording of a card that draws constant power, with windows of that name."""
    folder = recording_beside(output)
    folder.mkdir()
    recording = Recording(folder)
    source = {"name": GPU, "sensor": vars(SENSOR), "reads_since_last": False}
    recording.begin({"sources": [source], "period_s": 0.02, "missing": missing or {}})
    samples = np.zeros(round(SECONDS / 0.02), SAMPLE)
    for name in SAMPLE.names[2:]:
        samples[name] = np.nan
    samples["time_s"] = np.arange(len(samples)) * 0.02
    samples["counter_j"] = np.floor(samples["time_s"] / 0.1 + 1e-9) * 0.1 * WATTS
    samples.tofile(recording.samples_file)
    for name, start_s, end_s in windows:
        recording.note({"window": name, "start_s": start_s, "end_s": end_s})
    finish(output)


def printed(*arguments):
    return CliRunner().invoke(main, ["windows", *map(str, arguments)]).output


def test_many_short_windows_have_used_no_more_than_the_time_around_them_can_have(tmp_path):
    output = tmp_path / "run.parquet"
    steps = [("step", 5 + 0.005 * number, 5.002 + 0.005 * number) for number in range(400)]
    recorded(output, [*steps, ("once", 8.0, 8.002)])
    step, once = rows_by_name(segments(output))
    assert step["devices"][GPU]["energy_j"] is None
    true_j = 400 * 0.002 * WATTS
    assert true_j < step["devices"][GPU]["at_most_j"] < 1.2 * WATTS * 2
    assert once["devices"][GPU]["at_most_j"] == pytest.approx(0.1 * WATTS, rel=0.1)
    text = " ".join(window_lines([step]))
    assert re.search(r"no energy in 'step': 0\.002 s .*at\s+most\s+4\d\d\s+J\s+in\s+all\.", text)


def test_a_recording_without_the_limits_of_names_has_the_sum_of_those_of_windows(tmp_path):
    output = tmp_path / "run.parquet"
    recorded(output, [("step", 5.0, 5.002), ("step", 9.0, 9.002)])
    known = segments(output)
    bounded = rows_by_name(known)[0]["devices"][GPU]["at_most_j"]
    del known[0]["most_by_name"]
    assert rows_by_name(known)[0]["devices"][GPU]["at_most_j"] == pytest.approx(0.2 * WATTS)
    assert bounded == pytest.approx(0.2 * WATTS)


def event(name, start_s, reason):
    used = {"energy_j": None, "energy_ci_low_j": None, "energy_ci_high_j": None, "reason": reason}
    known = {"window": name, "time_s": start_s + 0.02, "start_s": start_s, "end_s": start_s + 0.02}
    return {**known, "devices": {GPU: used}}


def sentences(*of_segments):
    return " ".join(" ".join(window_lines(rows_by_name(of_segments))).split())


def test_windows_without_energy_are_counted_once_over_all_segments():
    def segment(first_s):
        steps = [event("update", first_s + n, f"0.0{n + 1} s are too short") for n in range(6)]
        return {"events": [*steps, event("run", first_s, "the sensor shows no power")]}

    assert (
        f"{GPU}: no energy in 'update': 12 of 12 windows have no energy; the first of them: "
        "0.01 s are too short." in sentences(segment(0), segment(100))
    )


def fields(rows):
    return {tuple(sorted(used)) for row in rows for used in row["devices"].values()}


@pytest.mark.parametrize("options", [[], ["--each"]])
def test_each_device_of_each_row_has_the_same_fields(tmp_path, options):
    output = tmp_path / "run.parquet"
    windows = [("step", 5.0, 5.002), ("step", 9.0, 12.0), ("once", 14.0, 17.0)]
    recorded(output, windows, {"cpu": "no energy sensor"})
    rows = json.loads(printed("--json", *options, output))
    assert len(fields(rows)) == 1
    without = rows[-1]["devices"]["cpu"]
    assert without["reason"] == "no energy sensor"
    assert (without["at_most_j"], without["flags"], without["changes"]) == (None, [], 0)
