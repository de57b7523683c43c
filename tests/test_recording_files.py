"""Files of recordings that other programs, versions and people have made or named."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opcost import power
from opcost.errors import OpcostError
from opcost.power.export import prepare_table, segments
from opcost.power.recording import VERSION, Recording, around
from opcost.report.recording_chart import write_chart

from tests.opcost_measure import GPU

BREAKING_OUT = "</script><script>alert(1)</script>"


@pytest.fixture
def table(tmp_path):
    """Writes a file of a recording."""

    def write(**about):
        segment = {"version": VERSION, "unix_s": 0, "monotonic_s": 0, "events": [], **about}
        path = tmp_path / "run.parquet"
        times = pa.array([0, 1_000_000], pa.timestamp("us", "UTC"))
        columns = {"segment": [1, 1], "time": times, "device": [GPU, GPU]}
        columns |= {"power_w": [60.0, 61.0], "counter_j": [0.0, 60.0]}
        described = {b"opcost": json.dumps([segment]).encode()}
        pq.write_table(pa.table(columns).replace_schema_metadata(described), path)
        return path

    return write


def test_names_of_windows_and_labels_stay_text_in_a_chart(table, tmp_path):
    window = {"window": BREAKING_OUT, "start_s": 0, "end_s": 1, "time_s": 1, "devices": {}}
    page = tmp_path / "run.html"
    write_chart(table(events=[window], labels={BREAKING_OUT: BREAKING_OUT}), page)
    assert "alert(1)" in page.read_text()
    assert BREAKING_OUT not in page.read_text()
    assert "\\u003c/script>" in page.read_text()


def test_a_recording_of_a_later_version_is_neither_read_nor_continued(table):
    path = table(version=VERSION + 1)
    for refused in (segments, lambda path: prepare_table(path, append=True)):
        with pytest.raises(OpcostError, match=f"it is of version {VERSION + 1}, this opcost reads"):
            refused(path)
    assert segments(table(version=VERSION - 1))


@pytest.mark.parametrize("damaged", [{"a": 1}, ["x"], [{"version": "x"}]])
def test_a_description_of_another_shape_is_no_recording(damaged, tmp_path):
    path = tmp_path / "run.parquet"
    described = {b"opcost": json.dumps(damaged).encode()}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(described), path)
    with pytest.raises(OpcostError, match="is not a recording of opcost measure"):
        segments(path)


@pytest.mark.usefixtures("card_of_sampler")
def test_an_output_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "disk").mkdir()
    link, output = tmp_path / "run.parquet", tmp_path / "disk" / "other.parquet"
    link.symlink_to(output)
    power.Monitor([GPU], output=link).close()
    assert link.is_symlink()
    assert len(segments(output)) == 1


@pytest.mark.parametrize(
    "named", ["null", "5", "{}", "[1]", '[{"folder": 5, "id": "a"}]', '[{"folder": "/a"}]', "?"]
)
def test_a_variable_of_another_shape_names_no_recording(named, monkeypatch, tmp_path):
    monkeypatch.setenv("OPCOST_RECORDINGS", named)
    assert around() == []
    assert not power.log(loss=1)
    recording = Recording(tmp_path)
    recording.begin({})
    own = {"folder": str(tmp_path), "id": recording.about["id"]}
    monkeypatch.setenv("OPCOST_RECORDINGS", json.dumps([5, own]))
    assert around() == [recording]
