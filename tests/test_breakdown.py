"""Where a model's cost goes: parts that add up to all of it, by operator and by module."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opcost.costs.breakdown import (
    NOT_MEASURED,
    NOT_TOLD_APART,
    OTHERS,
    Part,
    breakdown,
    costliest,
    with_rest_of,
)
from opcost.costs.caveats import CALL_OVERHEAD
from opcost.costs.estimate import ModelEstimate
from opcost.costs.estimate_columns import estimate_columns
from opcost.costs.module_tree import module_tree
from opcost.costs.terms import terms_of
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.text import percent

from tests.comparisons import FAILED, OF_A_GPU, OVERHEAD, launched_in, row

CASES = {
    "on a processor": {**OVERHEAD, "core_cache_bytes": 2**30},
    "on a GPU that waits for its host": launched_in(2e-3),
    "on a GPU that does not": launched_in(1e-5),
}


@pytest.fixture
def cnn(tiny_tuples):
    return tiny_tuples[1]


def parts(compare, quantity=TIME, **arguments):
    comparison, shares = compare(**arguments)
    return {part.name: part for part in breakdown(comparison, shares, quantity)}


@pytest.mark.parametrize("quantity", COMPARED, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_parts_of_an_estimate_are_the_estimate(compare, case, quantity):
    changes = CASES[case]
    comparison, shares = compare(power_w=100.0, reference=changes, **changes)
    found = breakdown(comparison, shares, quantity)
    total = math.fsum(part.amount for part in found)
    assert total == pytest.approx(comparison[quantity.of("estimate").value])
    assert math.fsum(part.share for part in found) == pytest.approx(1.0)


def test_the_wait_for_the_host_is_a_part_of_its_own(compare):
    changes = launched_in(2e-3)
    found = parts(compare, reference=OF_A_GPU, **changes)
    assert found["wait for the host"].amount == pytest.approx(4.041e-3, rel=0.01)


def test_call_overhead_is_a_part_of_its_own(compare):
    found = parts(compare, **OVERHEAD, core_cache_bytes=2**30)
    assert found[CALL_OVERHEAD].amount == pytest.approx(5e-5 + 1e-6)
    assert found[CALL_OVERHEAD].calls is None


def test_what_is_not_measured_is_the_rest_of_the_whole_model(compare):
    changes = {**OVERHEAD, "core_cache_bytes": 2**30}
    found = parts(compare, operators={"conv2d": FAILED}, **changes)
    assert set(found) == {"relu", "linear", CALL_OVERHEAD, NOT_MEASURED}
    overhead_s = 5e-5 + 1e-6
    assert found[CALL_OVERHEAD].amount == pytest.approx(overhead_s)
    assert found[NOT_MEASURED].amount == pytest.approx(3e-3 - overhead_s)
    assert found[NOT_MEASURED].share == pytest.approx((3e-3 - overhead_s) / 5e-3)
    assert list(found)[-1] == NOT_MEASURED


def test_an_unknown_overhead_and_what_is_not_measured_are_one_rest(compare):
    found = parts(compare, operators={"conv2d": FAILED})
    assert set(found) == {"relu", "linear", NOT_TOLD_APART}
    assert found[NOT_TOLD_APART].amount == pytest.approx(3e-3)
    assert list(found)[-1] == NOT_TOLD_APART


def test_without_a_sum_the_energy_of_the_overhead_is_unknown(compare):
    changes = {**OVERHEAD, "core_cache_bytes": 2**30}
    comparison, shares = compare(power_w=100.0, operators={"conv2d": FAILED}, **changes)
    of_time, of_energy = (breakdown(comparison, shares, quantity) for quantity in (TIME, ENERGY))
    assert of_energy[-1].name == NOT_TOLD_APART
    assert of_energy[-1].amount == pytest.approx(0.3)
    *same, rest = with_rest_of(of_energy, of_time)
    assert same == of_time
    assert rest == Part(NOT_TOLD_APART, None, None)


def test_without_a_sum_modules_have_their_overhead(cnn):
    rows = {key: row(**OVERHEAD, core_cache_bytes=2**30) for key in cnn.by_id}
    terms = terms_of(cnn, rows, set())
    complete = ModelEstimate(cnn, terms)
    partial = ModelEstimate(cnn, [replace(terms[0], row=None), *terms[1:]])
    assert (partial.time, partial.overhead_time_s) == (None, complete.overhead_time_s)
    assert math.fsum(each["overhead_time_s"] for each in partial.modules()) == pytest.approx(
        complete.overhead_time_s
    )


def test_without_a_whole_model_the_share_of_what_is_not_measured_is_unknown(compare):
    found = parts(compare, operators={"conv2d": FAILED}, reference=FAILED)
    assert (found[NOT_TOLD_APART].amount, found[NOT_TOLD_APART].share) == (None, None)
    assert found["relu"].share == pytest.approx(0.5)


def test_if_what_is_known_takes_longer_than_the_whole_the_rest_is_unknown(compare):
    found = parts(compare, operators={"conv2d": FAILED}, reference=row(1e-3))
    assert (found[NOT_TOLD_APART].amount, found[NOT_TOLD_APART].share) == (None, None)
    assert found["relu"].share == pytest.approx(0.5)


def test_an_operator_counts_with_those_of_its_tuples_that_are_measured(compare):
    comparison, shares = compare()
    [conv] = [share for share in shares if share["operator"] == "aten.conv2d.default"]
    partial = conv | {"time_s": None, "partial_time_s": 0.5e-3}
    rows = [partial if share is conv else share for share in shares]
    found = breakdown(comparison | {"estimate_time_s": None}, rows)
    [part] = [part for part in found if part.name == "conv2d"]
    assert part.amount == pytest.approx(0.5e-3)


def test_where_nothing_is_known_there_are_no_parts(compare):
    failed = dict.fromkeys(("conv2d", "relu", "linear"), FAILED)
    assert parts(compare, operators=failed, reference=FAILED) == {}


def test_small_operators_are_one_part_and_nothing_else_is():
    many = [Part(f"o{n}", 1.0 / 2**n, 1.0 / 2**n, 1) for n in range(1, 12)]
    found = costliest([*many, Part(CALL_OVERHEAD, 2**-11, 2**-11)], most=3)
    assert [part.name for part in found] == ["o1", "o2", "o3", CALL_OVERHEAD, OTHERS]
    assert found[-1].calls == 8
    assert math.fsum(part.share for part in found) == pytest.approx(1.0)


@given(st.floats(-1, 1), st.integers(0, 1))
@example(0.005, 0)
def test_a_percentage_is_the_share_rounded_and_never_0_for_more_than_nothing(share, decimals):
    text, step = percent(share, decimals), 0.1**decimals
    if text.startswith("<"):
        assert 0 < 100 * share <= step / 2 * (1 + 1e-9)
        assert float(text.strip("<%")) == pytest.approx(step)
    else:
        assert float(text.rstrip("%")) == pytest.approx(100 * share, abs=step / 2 * (1 + 1e-9))
        assert not text.startswith("-0%")
        assert share <= 0 or float(text.rstrip("%")) > 0


def estimate(cnn, **changes):
    rows = {key: row(power_w=100.0, **changes) for key in cnn.by_id}
    return ModelEstimate(cnn, terms_of(cnn, rows, set()))


def compared(estimate):
    return {"model": "tiny_cnn", **estimate_columns(estimate)}


@pytest.mark.parametrize("case", CASES)
def test_modules_add_up_to_the_model(cnn, case):
    found = estimate(cnn, **CASES[case])
    root, *below = module_tree(compared(found), found.modules(), most=None)
    assert (root.path, root.calls, root.share) == ((), found.calls, pytest.approx(1.0))
    assert root.time_s == pytest.approx(found.time.value)
    assert root.energy_j == pytest.approx(found.energy.value)
    idle_s = found.iteration.idle.value if found.iteration else 0.0
    waits = [branch for branch in below if branch.path == ("wait for the host",)]
    assert sum(branch.time_s for branch in waits) == pytest.approx(idle_s)
    assert sum(branch.energy_j for branch in waits) == pytest.approx(20.0 * idle_s)
    children = [branch for branch in below if branch.depth == 1]
    assert math.fsum(branch.time_s for branch in children) == pytest.approx(root.time_s)
    assert sum(branch.calls for branch in children) == root.calls


ESTIMATED = dict.fromkeys(("estimate_time_s", "estimate_energy_j"), 0.9) | {"idle_time_s": None}


def module(path, time_s, **changes):
    return {
        "module_path": path,
        "module_class": "Linear",
        "phase": "forward",
        "calls": 1,
        "tuple_ids": ["linear"],
        "tuple_calls": [1],
        "flops": 2,
        "tuples": 1,
        "measured_tuples": 1,
        "predicted_tuples": 0,
        "partial_time_s": time_s,
        "partial_energy_j": None,
        "overhead_time_s": None,
        **changes,
    }


def test_the_costliest_module_is_opened_first():
    rows = [module(f"b.{n}", 0.2) for n in "xyz"] + [module(f"a.{n}", 0.1) for n in "xyz"]
    lines = module_tree(ESTIMATED, rows, most=3)
    assert [".".join(line.path) for line in lines] == ["", "b", "b.x", "b.y", "b.z", "a"]
    assert [".".join(line.path) for line in module_tree(ESTIMATED, rows, most=1)] == [""]


def test_equal_siblings_are_one_branch():
    rows = [module(f"layer.{n}.{part}", 0.1) for n in (0, 1, 2, 5) for part in ("a", "b")]
    rows += [module("layer.3.a", 0.1), module("layer.4.a", 0.1, tuple_ids=["other"])]
    tree = module_tree(ESTIMATED, rows, most=9)
    found = {".".join(branch.path): (branch.calls, branch.time_s) for branch in tree}
    assert found["layer.[0-2,5]"] == (8, pytest.approx(0.8))
    assert found["layer.[0-2,5].b"] == (4, pytest.approx(0.4))
    assert {"layer.3", "layer.4"} < found.keys(), "other calls than those of the others"
    assert len(module_tree(ESTIMATED, rows, most=None)) == 18, "all, as they are"
