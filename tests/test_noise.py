"""The model of noise: values, intervals, and what they hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost import noise
from opcost.noise import Runs, Variation, combined, disagree, model_error, pooled
from opcost.rows.quantities import ENERGY, TIME
from opcost.rows.runs import ModelRatio, noise_of
from opcost.statistics import student_97_5

from tests.benchmarks.drawn_noise import LAWS, shares_that_hold

RUNS = Runs([1.0, 1.1, 1.05], [0.01, 0.02, None])


def test_the_value_is_the_geometric_mean_and_of_one_run_its_own():
    assert RUNS.value == pytest.approx((1.0 * 1.1 * 1.05) ** (1 / 3))
    assert Runs([0.1 + 0.2], [None]).value == 0.1 + 0.2


def test_the_pooled_variation_is_the_formula_of_the_page():
    logs = [math.log(value) for value in RUNS.values]
    middle = sum(logs) / 3
    blocks = (0.01**2 + 0.02**2) / 3
    squares = sum((log - middle) ** 2 for log in logs) - 2 * blocks
    found = pooled([RUNS, Runs([5.0], [0.01])], usual_sd=0.02)
    assert found.degrees_of_freedom == 4 + 2
    assert found.sd**2 == pytest.approx((4 * 0.02**2 + squares) / 6)


def test_without_several_runs_the_variation_is_the_usual_one():
    assert pooled([Runs([5.0], [0.01])], 0.02) == Variation(0.02, 4)
    assert pooled([], 0.02) == Variation(0.02, 4)


def test_runs_that_are_alike_by_chance_do_not_make_a_negative_variance():
    alike = [Runs([1.0, 1.0], [0.5, 0.5])] * 9
    assert pooled(alike, 0.02).sd == pytest.approx(0.02 * math.sqrt(4 / 13))


def test_a_subject_with_noisy_blocks_hides_the_variation_of_no_other():
    varying = [Runs([1.0, 1.05], [0.001, 0.001])] * 9
    noisy = Runs([1.0, 1.01], [0.15, 0.15])
    assert pooled([*varying, noisy], 0.02).sd == pytest.approx(pooled(varying, 0.02).sd, rel=0.05)


def test_an_interval_is_students_over_logarithms():
    variation = Variation(0.03, 9)
    found = combined(RUNS, variation)
    error = math.sqrt((0.03**2 + (0.01**2 + 0.02**2) / 3) / 3)
    assert math.log(found.high / found.value) == pytest.approx(student_97_5(9) * error)
    assert found.value / found.low == pytest.approx(found.high / found.value)


def test_runs_that_disagree_lie_in_the_interval():
    apart = Runs([1.0, 1.4], [0.01, 0.01])
    assert disagree(apart, Variation(0.02, 50))
    assert not disagree(RUNS, Variation(0.02, 50))
    found = combined(apart, Variation(0.02, 50))
    assert (found.low, found.high) == (1.0, 1.4)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=6), st.floats(1e-4, 1))
def test_any_runs_have_an_interval_around_their_value(values, sd):
    found = combined(Runs(values, [None] * len(values)), Variation(sd))
    assert found.low <= found.value * (1 + 1e-12) <= found.high * (1 + 1e-11)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("runs", [1, 2, 4])
def test_pooled_intervals_hold_the_truth_of_drawn_runs(law, runs):
    share, _ = shares_that_hold(LAWS[law], runs)
    assert share >= 0.92
    assert share <= (1.0 if law == "two modes" else 0.99)


def test_the_model_error_is_the_root_mean_square_of_log_ratios_shrunk_to_a_usual_one():
    found = model_error([0.02, -0.06], 0.04)
    assert found.sd == pytest.approx(math.sqrt((4 * 0.04**2 + 0.02**2 + 0.06**2) / 6))
    assert found.models == 2
    reach = student_97_5(6) * found.sd
    assert found.half_width == pytest.approx(reach)


def test_the_model_error_of_a_model_is_from_the_others_of_its_mode():
    ratios = [
        ModelRatio("a", False, 0.5, None),
        ModelRatio("b", False, 0.01, 0.02),
        ModelRatio("b", True, 0.03, None),
    ]
    target = noise_of([], ratios)
    assert target.model_error("a", False, TIME) == model_error([0.01], noise.USUAL_MODEL_ERROR)
    assert target.model_error("c", False, TIME).models == 2
    assert target.model_error("a", False, ENERGY).models == 1
    trained = model_error([0.03], noise.USUAL_TRAINING_ERROR)
    assert target.model_error("a", True, TIME) == trained


def test_a_target_with_one_model_has_no_model_error():
    assert noise_of([], [ModelRatio("a", False, 0.1, None)]).model_error("a", False, TIME) is None
