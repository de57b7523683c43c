"""A call finds its code displaced if more than the core's cache was moved since its last call."""

from types import SimpleNamespace

import pytest
from opcost.costs.evicted_code import evicted_calls
from opcost.tuples.model_tuples import ModelCall, ModelTuples
from opcost.tuples.tuple_record import TupleRecord

KIB = 1024


def model(*calls):
    """A model that makes the calls, each (operator, bytes moved); no bytes make a view."""
    records = [
        TupleRecord(SimpleNamespace(operator=operator), (), size > 0, 0, size)
        for operator, size in calls
    ]
    made = tuple(ModelCall(position, "", "") for position in range(len(records)))
    return ModelTuples("m", tuple(records), made, 0, "2.15.0")


def test_small_operators_leave_the_code_where_it_is():
    assert sum(evicted_calls(model(("conv", KIB), ("relu", KIB)), 100 * KIB)) == 0


def test_an_operator_that_moves_more_than_the_cache_displaces_all_code_its_own_too():
    calls = model(("conv", 200 * KIB), ("relu", KIB), ("add", KIB))
    assert sum(evicted_calls(calls, 100 * KIB)) == 3


def test_many_small_operators_displace_the_code_of_one_that_is_seldom_called():
    seldom = model(("softmax", KIB), *[("conv", 10 * KIB), ("relu", KIB)] * 12)
    assert sum(evicted_calls(seldom, 100 * KIB)) == 1


def test_a_model_runs_in_a_loop_so_its_first_call_follows_its_last():
    twice = [("relu", KIB), ("relu", KIB), ("conv", 200 * KIB)]
    assert sum(evicted_calls(model(*twice), 100 * KIB)) == 2  # the second relu follows the first


def test_views_move_nothing_and_have_no_code_worth_counting():
    assert evicted_calls(model(("view", 0), ("relu", KIB), ("view", 0)), 1) == [False, True, False]


@pytest.mark.parametrize("size", [0, KIB, 10**9])
def test_a_larger_cache_displaces_no_more_calls(size):
    calls = model(("conv", size + 1), ("relu", KIB), ("conv", KIB), ("add", 3 * KIB))
    counts = [sum(evicted_calls(calls, cache)) for cache in (0, KIB, 10 * KIB, 10**12)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
