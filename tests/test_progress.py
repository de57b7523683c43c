"""A person sees which tuple, how many are left, and for how long."""

import pytest
from opcost.planning.progress import Pace, measured_line, result
from opcost.statistics import Estimate
from opcost.text import difference, plus_minus, seconds, with_interval, with_meaning_of_noise

ROW = {
    "target": "local",
    "description": "relu(4x4)",
    "status": "ok",
    "time_s": 2e-6,
    "time_ci_low_s": 1.9e-6,
    "time_ci_high_s": 2.1e-6,
    "model": "net",
}


def lines(*times_s, total=8):
    """What is said after jobs that finish at these times."""
    pace = Pace()
    return [pace.line(number + 1, total, time_s) for number, time_s in enumerate(times_s)]


def test_the_remaining_time_follows_the_pace():
    assert lines(100, 103)[-1] == "[2/8] about 18 s left"


def test_a_pause_hardly_spoils_the_estimate():
    assert lines(100, 103, 106, 90_000)[-1] == "[4/8] about 48 s left"


def test_the_estimate_forgets_the_beginning():
    times_s = [*range(0, 400, 2), *range(400, 10_000, 100)]
    said = [line for line in lines(*times_s, total=1000) if line]
    assert said[1] == "[17/1000] about 33 min left"
    assert said[-1].endswith("about 1173 min left")


def test_jobs_side_by_side_count_as_many():
    pace = Pace()
    pace.line(0, 100, now_s=0.0)
    assert pace.line(10, 100, now_s=5.0) == "[10/100] about 45 s left"


def test_it_is_said_now_and_then_not_after_each_job():
    said = lines(*range(100), total=1000)
    assert [number for number, line in enumerate(said) if line] == [1, 31, 61, 91]


def test_the_last_one_has_nothing_left():
    assert lines(100, 200, total=2) == [None, None]


def test_a_measurement_is_one_line():
    line = measured_line("operator", "relu(4x4)", ROW)
    assert line == "[operator] local   2.00 µs ± 5.0%  relu(4x4)"


def test_a_result_that_is_too_noisy_has_its_limits():
    noisy = {**ROW, "time_s": 2e-3, "time_ci_low_s": 0.5e-3, "time_ci_high_s": 9e-3}
    assert result(noisy).startswith("500 µs to 9.0 ms")


def test_failures_are_shown_as_what_they_are():
    failed = {"status": "out_of_memory", "error": "too large"}
    assert result(failed) == "out_of_memory: too large"
    assert "out_of_memory" in measured_line("model", "mine", {**ROW, **failed})


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.500 s"), (0.0125, "12.50 ms"), (3.456789e-6, "3.457 µs"), (2e-9, "2.000 ns")],
)
def test_durations_have_the_unit_that_suits_them(value, text):
    assert seconds(value) == text


def test_a_difference_that_rounds_to_zero_has_no_minus():
    assert difference(Estimate(-0.001, -0.131, 0.129)) == "+0% ± 13%"
    assert difference(Estimate(-0.071, -0.075, -0.067)) == "-7.1% ± 0.4%"


def test_a_wide_and_lopsided_difference_has_its_limits():
    """Half of their distance would hold zero where the limits do not."""
    assert difference(Estimate(85.82, 70.1, 115.0)) == "+8582% [+7010%, +11500%]"
    assert difference(Estimate(0.10, 0.05, 0.15)) == "+10.0% ± 5.0%"


@pytest.mark.parametrize(
    ("limits_s", "runs_s", "text"),
    [
        ((0.5e-3, 1.5e-3), (), "1.0 ms ± 50%"),
        ((0.4e-3, 1.5e-3), (), "too noisy to say"),
        ((8.9e-6, 110e-3), (1.41e-3, 0.67e-3), "too noisy to say (2 runs: 670 µs and 1.41 ms)"),
        ((-1e-3, 3e-3), (2e-3, 1e-3, 3e-3), "too noisy to say (3 runs: 1.00 ms to 3.00 ms)"),
        ((-1e-3, 3e-3), (1e-3,), "too noisy to say"),
    ],
)
def test_a_value_within_more_than_half_is_too_noisy_to_say(limits_s, runs_s, text):
    assert with_interval(Estimate(1e-3, *limits_s), seconds, runs_s) == text


def test_a_difference_is_too_noisy_as_a_share_of_the_ratio():
    assert difference(Estimate(0.10, -0.99, 122.5)) == "too noisy to say"
    assert difference(Estimate(5.32, 4.75, 5.89)) == "+532% ± 57%"


def test_half_of_an_interval_alone_is_limited():
    assert [plus_minus(share) for share in (0.06, 0.5, 54.82)] == ["±6.0%", "±50%", ">±50%"]


def test_what_is_too_noisy_comes_with_what_to_do():
    text = with_meaning_of_noise("cnn  too noisy to say")
    assert "It narrows with runs on a quiet machine" in text
    assert with_meaning_of_noise("cnn  1.00 ms ± 2.0%") == "cnn  1.00 ms ± 2.0%"
