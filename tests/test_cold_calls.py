"""A call finds its code cold if others have moved much data since the last call of its operator."""

from types import SimpleNamespace

from opcost.costs.call_overhead import cold_calls
from opcost.tuples.model_tuples import ModelCall, ModelTuples
from opcost.tuples.tuple_record import TupleRecord

KIB = 1024


def cold(*calls, cache=100 * KIB):
    """Whether each call is cold; calls are (operator, bytes moved), and no bytes make a view."""
    records = [
        TupleRecord(SimpleNamespace(operator=operator), (), size > 0, 0, size)
        for operator, size in calls
    ]
    made = tuple(ModelCall(position, "", "") for position in range(len(records)))
    return cold_calls(ModelTuples("m", tuple(records), made, 0, "2.15.0"), cache)


def test_small_operators_leave_the_code_where_it_is():
    assert cold(("conv", KIB), ("relu", KIB)) == [False, False]


def test_an_operator_that_moves_much_evicts_the_code_of_others_and_its_benchmark_has_its_own():
    assert cold(("conv", 400 * KIB), ("relu", KIB), ("add", KIB)) == [False, True, True]


def test_many_small_operators_evict_the_code_of_one_that_is_seldom_called():
    seldom = cold(("softmax", KIB), *[("conv", 20 * KIB), ("relu", KIB)] * 24)
    assert seldom == [True] + [False] * 48


def test_a_model_runs_in_a_loop_so_its_first_call_follows_its_last():
    assert cold(("relu", KIB), ("relu", KIB), ("conv", 400 * KIB)) == [True, False, False]


def test_views_move_nothing_and_have_no_code_worth_counting():
    calls = ("view", 0), ("relu", KIB), ("view", 0), ("conv", 9 * KIB)
    assert cold(*calls, cache=1) == [False] * 4
