"""A round measures what makes the answers most precise for its time, and no more."""

from dataclasses import replace

import pytest
from opcost.executions import Executions, Scatter
from opcost.planning.rounds import Known, plan_round
from opcost.planning.target_plan import expected_widths
from opcost.planning.target_rounds import read_round, write_round
from opcost.results_folder import MODELS, OPERATORS
from opcost.study import Precision

from tests.test_planning import LARGE, MIDDLE, SMALL, ids, model

[LARGE_ID], [MIDDLE_ID], [SMALL_ID] = ids(LARGE), ids(MIDDLE), ids(SMALL)
NET = model([LARGE, MIDDLE, SMALL], [1, 1, 1])
WHOLE = (MODELS, NET.model)


def known(times_s, executions=2, device_s=1.0, errors=0.001):
    """Subjects whose executions agree, by tuple id; the whole model is their sum."""
    found = {(OPERATORS, name): time_s for name, time_s in times_s.items()}
    found[WHOLE] = sum(times_s.values())
    return {
        subject: Known(Executions([time_s] * executions, [errors] * executions), device_s)
        for subject, time_s in found.items()
    }


TIMES = {LARGE_ID: 1.0, MIDDLE_ID: 0.1, SMALL_ID: 1e-5}


def test_what_makes_up_most_of_the_time_is_measured_again_first():
    planned = plan_round(3, [NET], known(TIMES), Precision(models=0.025), left_s=2.0)
    assert set(planned.new) == {WHOLE, (OPERATORS, LARGE_ID)}


def test_what_hardly_matters_is_not_measured_again():
    planned = plan_round(3, [NET], known(TIMES), Precision(models=0.03))
    assert SMALL_ID not in planned.operators
    assert planned.half_widths[NET.model] <= 0.04


def test_precise_answers_end_the_rounds():
    assert not plan_round(3, [NET], known(TIMES), Precision(models=0.5))


def test_round_2_measures_wholes_and_some_tuples_whatever_their_share():
    planned = plan_round(2, [NET], known(TIMES, executions=1), Precision(models=0.5))
    assert planned.operators == sorted(TIMES)
    assert planned.models == [NET.model]


@pytest.mark.parametrize("executions", [1, 2, 8])
def test_each_subject_is_measured_at_most_once_in_a_round(executions):
    planned = plan_round(5, [NET], known(TIMES, executions), Precision(models=1e-6))
    assert sorted(planned.new) == [WHOLE, (OPERATORS, LARGE_ID)]


def test_what_is_measured_in_the_round_already_stays_in_it():
    done = [(OPERATORS, SMALL_ID)]
    planned = plan_round(3, [NET], known(TIMES), Precision(models=0.5), done)
    assert (planned.operators, planned.new) == ([SMALL_ID], [])


def test_a_round_that_is_done_stays_as_it_is_when_it_is_planned_again():
    before = known({LARGE_ID: 1.0, MIDDLE_ID: 0.8, SMALL_ID: 0.6}, executions=1)
    wanted = Precision(models=0.04)
    first = plan_round(2, [NET], before, wanted)
    again = plan_round(2, [NET], before, wanted, done=first.new)
    assert (again.new, again.needed_s) == ([], 0.0)
    assert (again.operators, again.models) == (first.operators, first.models)
    assert again.half_widths == pytest.approx(first.half_widths)
    partly = plan_round(2, [NET], before, wanted, done=list(first.new)[:1])
    assert set(partly.new) == set(list(first.new)[1:])


@pytest.mark.parametrize("left_s", [1.5, 2.5, 3.5])
def test_a_round_that_a_budget_cut_goes_on_within_that_of_the_next_run(left_s):
    before = known({LARGE_ID: 1.0, MIDDLE_ID: 0.8, SMALL_ID: 0.6}, executions=1)
    first = plan_round(2, [NET], before, Precision(models=1e-6), left_s=left_s)
    assert first.is_cut
    again = plan_round(2, [NET], before, Precision(models=1e-6), first.new, left_s)
    assert {*first.operators} <= {*again.operators}
    assert again.new
    assert not {*again.new} & {*first.new}
    assert again.needed_s <= left_s


def test_a_precision_of_rows_measures_every_vague_row():
    planned = plan_round(3, [NET], known(TIMES), Precision(rows=0.01))
    assert planned.operators == sorted(TIMES)
    assert planned.models == []


@pytest.mark.parametrize("left_s", [0.0, 0.5, 1.0, 2.5, 100.0])
def test_a_budget_is_kept(left_s):
    planned = plan_round(2, [NET], known(TIMES), Precision(models=1e-6), left_s=left_s)
    assert planned.needed_s <= left_s
    assert len(planned.new) == min(4, int(left_s))
    assert planned.is_cut == (left_s < 4)


def test_a_round_that_its_budget_cut_is_read_as_one(tmp_path):
    for left_s in (2.0, 100.0):
        planned = plan_round(2, [NET], known(TIMES), Precision(models=1e-6), left_s=left_s)
        write_round(tmp_path / "round.json", planned)
        assert read_round(tmp_path / "round.json").is_cut == planned.is_cut


def test_a_model_with_an_unknown_operator_has_no_sum_to_be_precise():
    some = {LARGE_ID: 1.0}
    planned = plan_round(3, [NET], known(some), Precision(models=1e-6))
    assert planned.operators == []
    assert planned.models == [NET.model]


def test_widths_follow_the_scatter_of_the_target_and_what_is_chosen_does_not():
    chosen, widths = [], []
    for scatter in (None, Scatter(0.01, 6.0), Scatter(0.3, 6.0)):
        planned = plan_round(2, [NET], known(TIMES), Precision(models=0.01), scatter=scatter)
        chosen.append(list(planned.new))
        widths.append(planned.half_widths[NET.model])
    assert chosen[0] == chosen[1] == chosen[2]
    assert widths[1] < widths[0] < widths[2]


def test_executions_that_are_expected_count_as_those_that_are_known():
    found = known(TIMES)
    twice_more = {name: replace(each, expected=2) for name, each in found.items()}
    wanted = Precision(models=0.035)
    assert plan_round(5, [NET], found, wanted)
    assert not plan_round(5, [NET], twice_more, wanted)
    widths = [
        plan_round(5, [NET], each, Precision(models=1.0)).half_widths[NET.model]
        for each in (found, twice_more)
    ]
    assert widths[0] == pytest.approx(2**0.5 * widths[1])


def test_a_plan_says_what_it_assumes_while_nothing_tells_the_scatter():
    unknown = plan_round(2, [NET], known(TIMES, executions=1), Precision(models=0.5))
    assert "if executions scatter by 3%" in expected_widths(unknown, 0.01)
    told = plan_round(
        2, [NET], known(TIMES, executions=1), Precision(models=0.5), scatter=Scatter(0.02, 6)
    )
    assert "scatter" not in expected_widths(told, 0.01)


def test_cheap_measurements_come_first_where_they_help_as_much():
    found = known({LARGE_ID: 1.0, MIDDLE_ID: 1.0, SMALL_ID: 1e-5})
    found[OPERATORS, LARGE_ID] = Known(found[OPERATORS, LARGE_ID].executions, 50.0)
    planned = plan_round(3, [NET], found, Precision(models=1e-6), left_s=2.0)
    assert (OPERATORS, LARGE_ID) not in planned.new


def test_a_whole_is_as_precise_as_the_speed_that_is_usual_beside_it_is_known():
    """The times follow the speed exactly, but which one is usual is known to a few per cent."""

    def expected(speeds):
        times_s = [1000 / speed for speed in speeds]
        found = {
            (OPERATORS, str(n)): Known(Executions(times_s, [1e-3] * 4, speeds), 1.0)
            for n in range(20)
        }
        found[WHOLE] = Known(Executions(times_s, [1e-3] * 4, speeds), 1.0)
        return plan_round(3, [NET], found, Precision(models=0.5)).half_widths[NET.model]

    assert expected([1000.0, 1000.0, 1000.0, 1000.0]) < 0.02
    assert 0.04 < expected([1000.0, 900.0, 1000.0, 900.0]) < 0.1
