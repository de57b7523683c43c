"""A target's device.json is read as it was written, or refused in words that say what to do."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.devices.device_file import (
    DeviceFile,
    Sample,
    read_device,
    read_overhead,
    write_device,
)
from opcost.errors import OpcostError

CPU = DeviceFile("cpu", "Xeon", None, "cpu", 3e-5, (Sample(4e-6, 9e-6, 1e-6, False),) * 6)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("target") / "device.json"


def refused(path, read=read_device):
    with pytest.raises(OpcostError) as caught:
        read(path)
    return str(caught.value)


def with_values(path, **values):
    write_device(path, CPU)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return path


def test_a_device_survives_the_round_trip(path):
    write_device(path, CPU)
    assert read_device(path) == CPU


def test_what_a_newer_opcost_writes_beside_is_left_out(path):
    assert read_device(with_values(path, moon="full")) == CPU


@pytest.mark.parametrize("speed", [2500.0, None])
def test_the_speed_of_the_core_that_version_1_wrote_is_left_out(path, speed):
    samples = [[*sample, speed] for sample in CPU.overhead]
    assert read_device(with_values(path, overhead=samples)) == CPU


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("device", None, "device is null"),
        ("device_name", "a\x1b[2J", "allowed is a string of 1 to 300 printable characters"),
        ("lock_key", "../x", r"lock_key is '\.\./x'"),
        ("quiet_s", -1, "quiet_s is -1; allowed is a finite number above 0 and at most 1, or null"),
        ("quiet_s", True, "quiet_s is True"),
        ("quiet_s", float("nan"), "NaN is not a finite number"),
        ("quiet_s", 10**400, "quiet_s is 1000"),
        ("overhead", [[1e-6, 1e-6, -5, False]], "overhead is "),
        ("overhead", [[1e-6, 1e-6, float("inf"), False]], "Infinity is not a finite number"),
        ("overhead", [[1e-6, 1e-6, 1e-6, False, *[None] * 4, 2.0]], "overhead is "),
    ],
)
def test_a_value_that_cannot_be_is_refused(path, key, value, message):
    found = refused(with_values(path, **{key: value}))
    assert re.search(message, found)
    assert f"delete only {path}, and run again" in found
    assert "rows measured on it are kept" in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "holds a list where a JSON object is expected"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"device": ' + b"[" * 100_000, "too deep"),
        (b'{"quiet_s": 1e999}', "1e999 is not a finite number"),
        (rb'{"device": "\ud800"}', "surrogates not allowed"),
        (b'{"quiet_s": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b"{}", "has no device"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(path, content, message):
    path.write_bytes(content)
    found = refused(path)
    assert message in found
    assert f"delete only {path}" in found


def test_a_folder_in_its_place_is_named(tmp_path):
    assert f"{tmp_path} is a folder, not a file" in refused(tmp_path)


def test_nothing_is_written_that_would_be_refused(path):
    with pytest.raises(OpcostError, match="quiet_s is nan"):
        write_device(path, DeviceFile("cpu", "Xeon", quiet_s=float("nan")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(CPU.__dataclass_fields__)), value=JSON)
def test_any_value_is_either_allowed_or_an_error_of_ours(path, key, value):
    try:
        device = read_device(with_values(path, **{key: value}))
    except OpcostError:
        return
    assert 0 < (device.quiet_s or 1) <= 1
    assert all(
        0 <= seconds <= 1
        for sample in device.overhead or ()
        for seconds in sample[:3]
        if seconds is not None
    )


def test_what_calls_cost_at_the_end_is_of_the_same_device(path):
    again = path.with_name("overhead_2.json")
    write_device(again, CPU)
    assert read_overhead(again, CPU) == CPU.overhead
    other = DeviceFile("cpu", "Another")
    message = refused(again, lambda file: read_overhead(file, other))
    assert "was measured on cpu (Xeon, None), its target is cpu (Another, None)" in message
    assert f"delete {again} and run again" in message
    again.write_text('{"overhead": "a"}')
    assert f"delete {again} and run again" in refused(again, lambda file: read_overhead(file, CPU))
