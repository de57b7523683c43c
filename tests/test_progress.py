"""A person sees which tuple, how many are left, and for how long."""

import os

import pytest
from opcost.progress import model_line, operator_line, result, seconds

ROW = {
    "target": "local",
    "description": "relu(4x4)",
    "status": "ok",
    "time_s": 2e-6,
    "time_ci_low_s": 1.9e-6,
    "time_ci_high_s": 2.1e-6,
    "model": "net",
}


def finish(directory, *times):
    for name, time in zip("abcdefgh", times, strict=False):
        (directory / f"{name}.parquet").touch()
        os.utime(directory / f"{name}.parquet", (time, time))


def test_the_remaining_time_follows_the_pace(tmp_path):
    finish(tmp_path, 100, 103, 106)
    line = operator_line(ROW, tmp_path, set("abcdefgh"), since=0)
    assert line == "[3/8] local       2 us ± 5.0%  relu(4x4)  (about 15 s left)"


def test_a_pause_does_not_spoil_the_estimate(tmp_path):
    finish(tmp_path, 100, 103, 90_000, 90_003)
    assert "about 12 s left" in operator_line(ROW, tmp_path, set("abcdefgh"), since=0)


def test_what_was_measured_before_a_change_or_for_other_models_does_not_count(tmp_path):
    finish(tmp_path, 100, 103, 200, 203)
    assert operator_line(ROW, tmp_path, set("bcdefg"), since=150).startswith("[2/6]")


def test_the_last_one_has_nothing_left(tmp_path):
    finish(tmp_path, 100, 103)
    assert "left" not in operator_line(ROW, tmp_path, set("ab"), since=0)


def test_failures_are_shown_as_what_they_are():
    failed = {"status": "out_of_memory", "error": "too large"}
    assert result(failed) == "out_of_memory: too large"
    assert "out_of_memory" in model_line({**ROW, **failed})


def test_energy_is_shown_where_there_is_some():
    assert result({**ROW, "energy_j": 1.375}).endswith("1.38e+03 mJ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.5 s"), (0.0125, "12.5 ms"), (3.456789e-6, "3.457 us"), (2e-9, "2 ns")],
)
def test_durations_have_the_unit_that_suits_them(value, text):
    assert seconds(value) == text
