"""Programs with many windows: what each is said to have used does not depend on the others that are
asked, and takes no more time than one alone.
"""

import json
import random
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from opcost import power
from opcost.energy.sensor import Sensor
from opcost.power import recorded_windows
from opcost.power.curves import Curve
from opcost.power.export import finish, recording_beside, segments
from opcost.power.recorded_windows import events_with_energy, window_rows
from opcost.power.recording import Recording
from opcost.power.shown import Shown, around

from tests.benchmarks.power_windows import KINDS, draw
from tests.opcost_measure import GPU

PERIOD_S = 0.025


@pytest.fixture
def recorded(card, tmp_path, request):
    """A recording of a card of some kind, with windows that nest, follow and overlap."""
    sensor, has_counter = KINDS[request.param]
    samples = draw(card, sensor, has_counter, 0).samples
    recording = Recording(recording_beside(tmp_path / "run.parquet"))
    recording.folder.mkdir()
    source = {"name": GPU, "sensor": vars(sensor), "reads_since_last": False}
    recording.begin({"sources": [source], "missing": {}, "period_s": PERIOD_S, "labels": {}})
    recording.samples_file.write_bytes(samples.tobytes())
    generator = random.Random(1)
    starts_s = np.arange(6.0, 25.0, 0.11)
    windows = [(start_s, start_s + generator.choice([0.01, 0.1, 0.7, 4.0])) for start_s in starts_s]
    with recording.events_file.open("w") as file:
        for start_s, end_s in windows:
            event = {"time_s": end_s, "window": "step", "start_s": start_s, "end_s": end_s}
            file.write(json.dumps(event) + "\n")
    return recording


@pytest.mark.parametrize("recorded", KINDS, indirect=True)
def test_each_window_of_a_recording_has_the_energy_that_it_has_alone(recorded):
    samples, events = recorded.mapped(), events_with_energy(recorded)
    [source] = recorded.about["sources"]
    edges_s = np.unique([event[edge] for event in events for edge in ("start_s", "end_s")])
    told = 0
    for event in events:
        first_s, last_s = around(event["start_s"], event["end_s"], PERIOD_S)
        near = samples[(samples["time_s"] >= first_s) & (samples["time_s"] < last_s)]
        shown = Shown(near, Sensor(**source["sensor"]))
        alone = shown.energy(event["start_s"], event["end_s"], edges_s=edges_s)
        used = event["devices"][GPU]
        assert used == recorded_windows._kept(alone)
        told += used["energy_j"] is not None
    assert told


@pytest.mark.parametrize("recorded", ["counter of 100 ms"], indirect=True)
def test_windows_close_in_time_share_the_curves_of_their_sensor(recorded, monkeypatch):
    made = []
    monkeypatch.setattr(Curve, "__post_init__", made.append, raising=False)
    assert len(events_with_energy(recorded)) > 150
    seconds = 19 + 4
    assert len(made) < 4 * 3 * seconds  # of each length, in each second, and copies with limits


@pytest.mark.parametrize("recorded", KINDS, indirect=True)
def test_a_file_keeps_of_each_window_what_there_is(recorded, tmp_path):
    output, events = tmp_path / "run.parquet", events_with_energy(recorded)
    finish(output)
    [segment] = segments(output)
    assert segment["events"] == events
    described = sum(len(value) for value in pq.ParquetFile(output).metadata.metadata.values())
    assert described < 5000 + 400 * len(events)


@pytest.mark.usefixtures("card_of_sampler")
def test_windows_that_are_asked_after_a_loop_have_the_energy_of_the_recording(tmp_path):
    output = tmp_path / "run.parquet"
    with power.Monitor([GPU], output=output) as monitor:
        windows = []
        for number in range(40):
            with power.measure(f"step {number}", monitor=monitor) as window:
                time.sleep(0.3 if number % 10 == 0 else 0.002)
            windows.append(window)
        time.sleep(3.1)  # until all readings that tell of the last one are there
        found = [window.devices[GPU] for window in windows]
    rows = window_rows(segments(output))
    assert [row["devices"][GPU] for row in rows] == [recorded_windows._kept(each) for each in found]
