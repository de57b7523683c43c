"""A call finds as much of its code evicted as others have moved data since its last call."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.evicted_code import evicted_code, time_of_code
from opcost.statistics import Estimate
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


def evicted(*calls, cache=100 * KIB):
    """What the benchmark of each call does not contain, as a share of all of its code."""
    return [each.more for each in evicted_code(model(*calls), cache)]


def test_small_operators_leave_the_code_where_it_is():
    assert evicted(("conv", KIB), ("relu", KIB)) == [0, 0]


def test_an_operator_that_moves_much_evicts_the_code_of_others_and_its_benchmark_contains_its_own():
    assert evicted(("conv", 400 * KIB), ("relu", KIB), ("add", KIB)) == [0, 1, 1]


def test_the_more_is_moved_the_more_code_is_evicted():
    shares = [evicted(("conv", moved * KIB), ("relu", KIB))[1] for moved in (24, 99, 199, 399)]
    assert shares == pytest.approx([0, 0.4, 0.7, 1], abs=0.01)


def test_many_small_operators_evict_the_code_of_one_that_is_seldom_called():
    seldom = evicted(("softmax", KIB), *[("conv", 20 * KIB), ("relu", KIB)] * 24)
    assert seldom[0] == 1
    assert max(seldom[1:]) < 0.01


def test_a_model_runs_in_a_loop_so_its_first_call_follows_its_last():
    twice = evicted(("relu", KIB), ("relu", KIB), ("conv", 400 * KIB))
    assert twice == [1, 0, 0]


def test_of_the_code_that_a_benchmark_finds_a_call_may_lose_all():
    lost = evicted_code(model(("conv", 99 * KIB), ("relu", 400 * KIB)), 100 * KIB)
    assert lost[0].alone == pytest.approx(0.4, abs=0.01)
    assert lost[0].more == pytest.approx(0.6, abs=0.01)
    assert lost[0].more_of_found == 1
    assert lost[1].more_of_found == 0


def test_views_move_nothing_and_have_no_code_worth_counting():
    assert evicted(("view", 0), ("relu", KIB), ("view", 0), ("conv", 9 * KIB), cache=1) == [0] * 4


@pytest.mark.parametrize(
    ("samples_s", "expected"),
    [
        ([5e-6, 6e-6, 7e-6, 5e-6, 7e-6, 6e-6], Estimate(6e-6, 5e-6, 7e-6)),
        ([-5e-6] * 3 + [None] + [-1e-6] * 2 + [2e-6], Estimate(0, 0, 2e-6)),
        ([], Estimate(0, 0, 0)),
        ([5e-6] * 5, None),
        ([None], None),
        (None, None),
    ],
    ids=["median", "noise", "of a long call", "too few", "nulls", "unknown"],
)
def test_the_time_of_evicted_code_is_the_median_of_its_samples_and_not_below_zero(
    samples_s, expected
):
    assert time_of_code(samples_s) == expected


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10 * KIB)), min_size=1, max_size=8),
    st.integers(0, 20 * KIB),
)
def test_a_share_is_between_nothing_and_all(calls, cache):
    found = evicted_code(model(*calls), cache)
    assert all(0 <= each.more <= each.more_of_found <= 1 for each in found)


@pytest.mark.parametrize("size", [0, KIB, 10**9])
def test_a_huge_cache_loses_no_code(size):
    assert not any(evicted(("conv", size + 1), ("relu", KIB), ("add", 3 * KIB), cache=10**12))
