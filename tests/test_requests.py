"""What a request to a language model costs: interpolated steps, added to a prefill."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.interpolation import interpolation_half_width, mean_cost, mean_weights
from opcost.costs.requests import (
    DECODE,
    PREFILL,
    Request,
    request_cells,
    request_lines,
    request_notes,
    requests_in,
)
from opcost.models.generation import Generation
from opcost.rows import schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate

LENGTHS = st.lists(st.integers(1, 5000), min_size=2, max_size=8, unique=True).map(sorted)
CHAT = Generation("chat", 2, 100, 101, (100, 150, 199))
SECONDS = {"chat[prompt=100]": 1.0, **{CHAT.step(n): 0.01 + n / 10_000 for n in (100, 150, 199)}}


def estimate(value, half=0.02):
    return Estimate(value, value * (1 - half), value * (1 + half))


@given(lengths=LENGTHS, data=st.data())
def test_the_weights_of_a_mean_are_shares_and_keep_its_length(lengths, data):
    inside = st.integers(lengths[0], lengths[-1])
    wanted = data.draw(st.lists(inside, min_size=1, max_size=20))
    weights = mean_weights(lengths, wanted)
    assert min(weights) >= 0
    assert math.isclose(sum(weights), 1)
    mean = sum(weight * each for weight, each in zip(weights, lengths, strict=True))
    assert math.isclose(mean, sum(wanted) / len(wanted))


@given(lengths=LENGTHS.filter(lambda each: len(each) > 2), data=st.data())
def test_what_is_linear_is_interpolated_exactly(lengths, data):
    costs = [estimate(1 + 0.5 * length) for length in lengths]
    length = data.draw(st.integers(lengths[0], lengths[-1]))
    at = mean_cost(lengths, costs, [length])
    assert math.isclose(at.value, 1 + 0.5 * length)
    assert math.isclose(at.relative_half_width, 0.02, rel_tol=1e-6)


def test_the_interval_of_an_interpolated_cost_tells_how_far_the_curve_is_from_a_line():
    lengths, squares = (1, 2, 3, 4), [estimate(each**2) for each in (1.0, 2.0, 3.0, 4.0)]
    errors = [math.log(5 / 4), math.log(10 / 9)]
    half = 4.302652729911275 * math.sqrt(sum(error**2 for error in errors) / 2)
    assert math.isclose(interpolation_half_width(lengths, squares), half)
    assert mean_cost(lengths, squares, [2]).relative_half_width == pytest.approx(0.02)


def test_an_interval_that_is_unknown_is_shown_as_unknown():
    generation = Generation("chat", 1, 100, 101, (100, 199))
    rows = [row(model, 0.01234) for model in generation.models]
    [found] = requests_in([generation], rows)
    [cells] = request_cells([found.columns()])
    assert (cells["each further"], cells["tokens/s"]) == ("15 ms ± ?", "65")
    note, *_ = request_notes([found.columns()])
    assert "by an unknown error (± ?): measure a third length" in note


def test_two_lengths_do_not_tell_how_far_interpolation_is_off():
    lengths, costs = (10, 20), [estimate(1.0), estimate(2.0)]
    assert interpolation_half_width(lengths, costs) is None
    assert mean_cost(lengths, costs, [15]) == Estimate(1.5, None, None)
    assert mean_cost(lengths, costs, [10]) == Estimate(1.0, 0.98, 1.02)


def row(model, seconds, reference=True, watts=None):
    """A row of the comparison."""
    columns = {"model": model, "target": "local", "calls": 10, "flops": 1000}
    columns |= {"overhead_time_s": seconds / 10, "idle_time_s": None}
    for quantity, value in ((TIME, seconds), (ENERGY, watts and seconds * watts)):
        total = estimate(value) if value else None
        columns |= quantity.of("estimate").columns(total)
        whole = estimate(value * 1.25) if value and reference else None
        columns |= quantity.of("end_to_end").columns(whole)
        columns[f"{quantity}_reason"] = None if total else "no sensor"
    return columns


def request(**options):
    rows = [row(model, seconds, **options) for model, seconds in SECONDS.items()]
    [found] = requests_in([CHAT], rows)
    return found


def test_a_request_is_its_prefill_and_each_of_its_steps():
    columns = request(watts=50).columns()
    steps_s = sum(0.01 + n / 10_000 for n in range(100, 200))
    assert columns["estimate_time_s"] == pytest.approx(1 + steps_s)
    assert columns["estimate_prefill_time_s"] == 1
    assert columns["estimate_token_time_s"] == pytest.approx(steps_s / 100)
    assert columns["estimate_energy_j"] == pytest.approx(50 * (1 + steps_s))
    assert columns["end_to_end_time_s"] == pytest.approx(1.25 * (1 + steps_s))
    assert columns["time_relative_error"] == pytest.approx(-0.2)
    assert columns["overhead_time_s"] == pytest.approx((1 + steps_s) / 10)
    assert columns["flops"] == 1000 * 101
    assert columns.keys() == set(schemas.REQUESTS.names)


def test_errors_of_the_steps_are_not_averaged_away():
    found = request().parts(TIME, "estimate")[""]
    assert found.relative_half_width == pytest.approx(0.02, rel=0.05)


def test_a_request_with_a_missing_step_is_null_with_the_reason():
    rows = {model: row(model, seconds) for model, seconds in SECONDS.items()}
    without = dict.fromkeys(TIME.of("estimate").names) | {"time_reason": "conv2d failed"}
    columns = Request(CHAT, "local", rows | {CHAT.step(150): rows[CHAT.step(150)] | without})
    assert columns.columns()["estimate_time_s"] is None
    assert columns.columns()["time_reason"] == "chat[cache=150]: conv2d failed"
    assert columns.columns()["estimate_prefill_time_s"] == 1


def test_whole_steps_that_are_off_the_line_do_not_widen_what_is_interpolated():
    rows = {model: row(model, seconds) for model, seconds in SECONDS.items()}
    rows[CHAT.step(150)] |= TIME.of("end_to_end").columns(estimate(0.1))  # off by four
    found = Request(CHAT, "local", rows).parts(TIME, "end_to_end")["_token"]
    assert found.relative_half_width == pytest.approx(0.02, rel=0.01)


def test_the_parts_of_a_row_are_of_whole_steps_or_of_sums_together():
    rows = {model: row(model, seconds) for model, seconds in SECONDS.items()}
    failed = CHAT.step(150)
    rows[failed] |= TIME.of("end_to_end").columns(None)
    rows[failed] |= {"time_reason": "the whole model was not measured"}
    columns = Request(CHAT, "local", rows).columns()
    [cells] = request_cells([columns])
    assert all(
        cells[title].endswith("(estimate)") for title in ("first token", "each further", "time")
    )
    [note] = [each for each in request_notes([columns]) if each.startswith("No end-to-end")]
    assert note == (
        "No end-to-end time of chat: chat[cache=150]: the whole model was not measured."
    )


def test_a_request_needs_rows_of_all_of_its_steps():
    assert requests_in([CHAT], [row(model, 1.0) for model in list(SECONDS)[:-1]]) == []


def share(model, operator, seconds, calls, kernel=True):
    amounts = {"time_s": seconds, "energy_j": None, "partial_time_s": seconds}
    return {
        **{"model": model, "target": "local", "operator": operator, "phase": "forward"},
        **{"launches_kernel": kernel, "calls": calls, "tuples": 1, "measured_tuples": 1},
        "predicted_tuples": 0,
        **amounts,
        **{"partial_energy_j": None, "flops": 10, "bytes": 20},
    }


def test_operators_of_a_request_are_those_of_its_phases():
    shares = {model: [share(model, "aten.linear.default", 0.001, 5)] for model in SECONDS}
    shares[CHAT.step(150)] += [share(CHAT.step(150), "aten.cat.default", 0.002, 1)]
    shares["other"] = [share("other", "aten.linear.default", 9.0, 1)]
    linear, appended, prompt = request().operators(shares)
    assert (linear["operator"], linear["phase"], linear["calls"]) == (
        "aten.linear.default",
        DECODE,
        500,
    )
    assert linear["time_s"] == pytest.approx(0.1)
    assert (appended["operator"], appended["phase"]) == ("aten.cat.default", DECODE)
    assert (prompt["phase"], prompt["time_s"], prompt["calls"]) == (PREFILL, 0.001, 5)


def test_the_text_gives_the_first_token_each_further_one_and_all():
    shares = [share(model, "aten.linear.default", 0.9 * s, 5) for model, s in SECONDS.items()]
    text = "\n".join(request_lines([request()], shares))
    assert "100 + 101" in text
    assert "1.25 s ± 2.0%" in text
    assert "chat: linear 90%, call overhead 10%" in text
    assert "of its 100 steps, 3 were measured, at 100, 150, 199 cached tokens" in text
    assert "No energy of chat: chat[prompt=100]: no sensor." in text
    assert request_lines([], []) == []


def test_sums_are_labelled_where_steps_were_not_measured_as_a_whole():
    [cells] = request_cells([request(reference=False).columns()])
    assert cells["first token"].endswith("(estimate)")
    assert "estimate - end-to-end" not in cells
    assert "energy" not in cells


def test_tokens_per_second_are_those_of_all_sequences():
    columns = request().columns()
    [cells] = request_cells([columns])
    expected = 2 * 101 / columns["end_to_end_time_s"]
    assert float(cells["tokens/s"]) == pytest.approx(expected, rel=0.05)


def test_energy_has_columns_where_it_was_measured():
    [cells] = request_cells([request(watts=50).columns()])
    assert {"energy of the first", "of each further", "energy"} <= cells.keys()
    assert request_notes([request(watts=50).columns()])[0].startswith("chat: of its 100 steps")
