"""Later rounds repeat what the variance of each answer that is not yet precise enough is from."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.planning.rounds import Known, plan_round, read_round, write_round
from opcost.results_folder import MODELS, OPERATORS
from opcost.study import Precision

from tests.test_planning import LARGE, MIDDLE, SMALL, ids, model, record

LARGE_ONE, MIDDLE_ONE, SMALL_ONE = ((OPERATORS, *ids(each)) for each in (LARGE, MIDDLE, SMALL))
NET = model([LARGE, MIDDLE, SMALL], [1, 1, 1])
END_TO_END = (MODELS, NET.model)
TIMES_S = {LARGE_ONE: 1.0, MIDDLE_ONE: 0.8, SMALL_ONE: 1e-5, END_TO_END: 1.8}
VAGUE, PRECISE = Precision(models=1e-6), Precision(models=0.5)


def known(times_s=TIMES_S, runs=2, half_width=0.04):
    """Subjects of which a run takes a second, with an interval of this half-width."""
    return {
        subject: Known(time_s, runs, half_width, half_width, 1.0)
        for subject, time_s in times_s.items()
    }


def new(number, found, precision, *more, models=(NET,), **options):
    return plan_round(number, models, found, precision, *more, **options).new


def test_the_operators_that_make_up_nine_tenths_of_the_variance_are_repeated():
    assert new(3, known(), VAGUE) == [END_TO_END, LARGE_ONE, MIDDLE_ONE]
    assert new(3, known(TIMES_S | {MIDDLE_ONE: 0.3}), VAGUE) == [END_TO_END, LARGE_ONE]
    uncertain = known() | {SMALL_ONE: Known(1e-5, 1, 1e6, 0.1, 1.0)}
    assert new(3, uncertain, VAGUE) == [END_TO_END, SMALL_ONE]
    often_measured = known(TIMES_S | {MIDDLE_ONE: 0.3}) | {LARGE_ONE: Known(1.0, 200, 0.04, 1, 1)}
    assert new(3, often_measured, VAGUE) == [END_TO_END, MIDDLE_ONE, LARGE_ONE]


def test_calls_count():
    often = model([LARGE, SMALL], [1, 10**6])
    assert new(3, known(), VAGUE, models=[often]) == [END_TO_END, SMALL_ONE]


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=30), st.integers(1, 4))
def test_no_smaller_number_of_operators_makes_up_nine_tenths(times_s, runs):
    records = [record(size) for size in range(1, len(times_s) + 1)]
    subjects = [(OPERATORS, each) for each in ids(*records)]
    found = known(dict(zip(subjects, times_s, strict=True)), runs)
    net = model(records, [1] * len(records))
    repeated = new(3, found, Precision(models=1e-9), models=[net])
    parts = {each: found[each].time_s ** 2 for each in subjects}
    assert sum(parts[each] for each in repeated) >= 0.9 * sum(parts.values()) * (1 - 1e-9)
    fewer = sum(parts[each] for each in repeated[:-1])
    assert fewer < 0.9 * sum(parts.values()) * (1 + 1e-9)
    assert [*map(parts.get, repeated)] == sorted(parts.values(), reverse=True)[: len(repeated)]


def test_what_is_as_precise_as_requested_is_left():
    assert not plan_round(3, [NET], known(), PRECISE)
    assert not plan_round(3, [NET], known(), Precision())
    # The estimate has two independent parts, so its interval is narrower.
    end_to_end, estimate = 0.04 / 2**0.5, 0.04 / 2**0.5 * (1 + 0.8**2) ** 0.5 / 1.8
    assert new(3, known(), Precision(models=0.99 * end_to_end)) == [END_TO_END]
    assert new(3, known(), Precision(models=1.01 * end_to_end)) == []
    exact = known() | {END_TO_END: Known(1.8, 2, 1e-9, 1e-9, 1.0)}
    assert new(3, exact, Precision(models=0.99 * estimate)) == [LARGE_ONE, MIDDLE_ONE]
    assert new(3, exact, Precision(models=1.01 * estimate)) == []


def test_precise_models_are_left_beside_others():
    other = model([SMALL], [1], "other")
    found = known() | {(MODELS, "other"): Known(1e-5, 1, 0.9, 0.9, 1.0)}
    assert new(3, found, PRECISE, models=[NET, other]) == [(MODELS, "other")]


@pytest.mark.parametrize("precision", [PRECISE, Precision()])
def test_round_2_repeats_these_of_each_model_and_some_so_that_variation_is_known(precision):
    assert new(2, known(runs=1), precision) == [END_TO_END, LARGE_ONE, MIDDLE_ONE, SMALL_ONE]


def test_round_2_repeats_ten_operators_that_hardly_matter():
    others = {(OPERATORS, f"{n:016x}"): Known(1e-9, 1, 0.04, 0.04, 1.0) for n in range(30)}
    repeated = new(2, known(runs=1) | others, PRECISE)
    assert repeated[:3] == [END_TO_END, LARGE_ONE, MIDDLE_ONE]
    assert set(repeated[3:]) == set(sorted({*others, LARGE_ONE, MIDDLE_ONE, SMALL_ONE})[:10])


def test_a_precision_of_rows_repeats_each_wider_row():
    found = known() | {MIDDLE_ONE: Known(0.8, 2, 0.5, 0.01, 1.0)}
    wanted = new(3, found, Precision(rows=0.02))
    assert set(wanted) == {LARGE_ONE, SMALL_ONE}
    assert new(3, known(), Precision(1e-6, 0.02))[-1] == SMALL_ONE, "its share is least"


def test_a_model_with_an_unknown_operator_has_no_estimate_to_be_precise():
    assert new(3, known({LARGE_ONE: 1.0, END_TO_END: 1.8}), VAGUE) == [END_TO_END]


@given(st.sets(st.sampled_from(sorted(TIMES_S))))
def test_a_round_stays_the_same_when_it_is_planned_again_half_way(done):
    first = plan_round(3, [NET], known(), VAGUE)
    again = plan_round(3, [NET], known(), VAGUE, done)
    assert {*again.new} == {*first.new} - done
    assert again.needed_s == len(again.new)
    assert {*again.operators} == {*first.operators} | {name for of, name in done if of == OPERATORS}
    if done <= {*first.new}:
        assert replace(again, new=first.new, needed_s=first.needed_s) == first


@pytest.mark.parametrize("left_s", [-1.0, 0.0, 0.5, 1.0, 2.5, 100.0])
def test_a_budget_holds_and_end_to_end_runs_come_first(left_s):
    planned = plan_round(3, [NET], known(), VAGUE, left_s=left_s)
    assert planned.new == [END_TO_END, LARGE_ONE, MIDDLE_ONE][: max(0, int(left_s))]
    assert planned.needed_s == len(planned.new)
    assert planned.is_cut == (left_s < 3)


def test_a_round_that_a_budget_cut_goes_on_within_that_of_the_next_run():
    measured = []
    for expected in ([END_TO_END, LARGE_ONE], [MIDDLE_ONE]):
        planned = plan_round(3, [NET], known(), VAGUE, measured, 2.0)
        assert planned.new == expected
        measured += planned.new
    assert not planned.is_cut


def test_a_round_is_read_as_it_was_written(tmp_path):
    for left_s in (2.0, 100.0):
        planned = plan_round(2, [NET], known(), VAGUE, left_s=left_s)
        write_round(tmp_path / "round.json", replace(planned, anew=3.0))
        found = read_round(tmp_path / "round.json")
        assert (found.operators, found.models) == (planned.operators, planned.models)
        assert (found.is_cut, found.anew) == (planned.is_cut, 3.0)


def test_rounds_end_when_models_are_precise():
    found, repeated = known(runs=1), Counter()
    for number in range(2, 20):
        planned = plan_round(number, [NET], found, Precision(models=0.018))
        repeated.update(planned.new)
        found = {
            each: replace(of, runs=of.runs + (each in planned.new)) for each, of in found.items()
        }
    assert repeated == {END_TO_END: 4, LARGE_ONE: 2, MIDDLE_ONE: 2, SMALL_ONE: 1}
    assert (0.04 / 5**0.5) < 0.018 < (0.04 / 4**0.5)
