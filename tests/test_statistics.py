"""Estimates hold the truth as often as they say."""

import math
import statistics as reference

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.statistics import (
    NORMAL_97_5,
    Estimate,
    correlated_sum,
    drifts,
    energy_delay,
    least,
    mean,
    median,
    ratio,
    straight_line,
    student_97_5,
    weighted_sum,
)

positive = st.floats(1e-9, 1e9)
data = st.lists(positive, min_size=1, max_size=60)


@st.composite
def estimates(draw):
    value = draw(st.floats(1e-6, 1e6))
    below, above = draw(st.floats(0, 0.3)), draw(st.floats(0, 0.3))
    return Estimate(value, value * (1 - below), value * (1 + above))


@given(data)
def test_the_median_is_the_median_within_its_interval(values):
    estimate = median(values)
    assert estimate.value == reference.median(values)
    if len(values) < 6:
        assert estimate.low is estimate.high is None
    else:
        assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15)])
def test_the_interval_of_the_median_has_the_ranks_of_the_sign_test(count, low, high):
    # Conover, Practical Nonparametric Statistics, table A3
    estimate = median(range(1, count + 1))
    assert (estimate.low, estimate.high) == (low, high)


@pytest.mark.parametrize("draw", ["exponential", "normal", "lognormal"])
@pytest.mark.parametrize("count", [6, 15, 50])
def test_intervals_of_the_median_hold_the_truth(draw, count):
    generator = np.random.default_rng(1)
    truth = {"exponential": math.log(2), "normal": 0.0, "lognormal": 1.0}[draw]
    samples = getattr(generator, draw)(size=(2000, count))
    held = [
        estimate.low <= truth <= estimate.high
        for estimate in (median(sample.tolist()) for sample in samples)
    ]
    assert np.mean(held) > 0.94


def test_intervals_of_the_mean_hold_the_truth():
    samples = np.random.default_rng(1).normal(5, 2, size=(4000, 8))
    estimates = [mean(sample.tolist()) for sample in samples]
    held = np.mean([estimate.low <= 5 <= estimate.high for estimate in estimates])
    assert 0.94 < held < 0.96


def test_one_value_carries_no_interval():
    assert mean([3.0]) == Estimate(3.0, None, None)
    assert mean([3.0]).relative_half_width is None


@given(st.lists(st.tuples(st.integers(1, 50), estimates()), min_size=1, max_size=20))
def test_a_sum_is_no_surer_than_its_surest_and_no_vaguer_than_all_together(terms):
    total = weighted_sum(terms)
    assert total.value == pytest.approx(sum(weight * term.value for weight, term in terms))
    widths = [weight * (term.high - term.value) for weight, term in terms]
    assert total.high - total.value <= sum(widths) * (1 + 1e-9) + 1e-9 * total.value
    assert total.high - total.value >= max(widths) * (1 - 1e-9) - 1e-9 * total.value


def test_independent_errors_add_up_in_quadrature_and_common_ones_in_full():
    terms = [(2, Estimate(1.0, 0.7, 1.4)), (1, Estimate(3.0, 2.2, 3.6))]
    assert weighted_sum(terms) == Estimate(5.0, 4.0, 6.0)
    assert correlated_sum(terms) == Estimate(5.0, pytest.approx(3.6), pytest.approx(6.4))


def test_what_is_subtracted_has_its_limits_exchanged():
    found = weighted_sum([(1, Estimate(5.0, 4.0, 5.0)), (-1, Estimate(2.0, 2.0, 3.0))])
    assert found == Estimate(3.0, pytest.approx(3 - 2**0.5), 3.0)


def test_a_sum_with_an_unsure_term_has_no_interval():
    total = weighted_sum([(2, Estimate(1.0, 0.9, 1.1)), (1, Estimate(3.0, None, None))])
    assert total == Estimate(5.0, None, None)
    assert correlated_sum([(1, total)]) == total


def test_intervals_of_a_ratio_hold_the_truth():
    generator = np.random.default_rng(2)
    held = []
    for _ in range(2000):
        above, below = generator.normal(8, 0.2), generator.normal(4, 0.15)
        quotient = ratio(
            Estimate(above, above - 0.392, above + 0.392),
            Estimate(below, below - 0.294, below + 0.294),
        )
        held.append(quotient.low <= 2 <= quotient.high)
    assert 0.93 < np.mean(held) < 0.97


def test_a_wide_interval_of_a_ratio_reaches_no_further_than_those_of_both():
    """Times of a machine that others used: the sum over operators, and the whole model."""
    total, whole = Estimate(48.8, 38.0, 66.3), Estimate(49.2, 27.7, 87.3)
    found = ratio(total, whole)
    assert found.low == pytest.approx(0.53, abs=0.01)
    assert found.high == pytest.approx(1.90, abs=0.01)
    turned = ratio(whole, total)
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))


@given(estimates(), estimates())
def test_limits_of_a_ratio_lie_between_those_of_the_extremes(first, second):
    if first.low > 0 and second.low > 0:
        found = ratio(first, second)
        assert first.low / second.high <= found.low * (1 + 1e-9)
        assert found.low <= found.value <= found.high
        assert found.high <= first.high / second.low * (1 + 1e-9)


def test_a_ratio_of_what_may_be_zero_has_limits_below_it():
    assert ratio(Estimate(1.0, -1.0, 3.0), Estimate(2.0, 1.9, 2.1)).low < 0
    assert ratio(Estimate(1.0, None, None), Estimate(2.0, 1.9, 2.1)) == Estimate(0.5, None, None)
    assert ratio(Estimate(0.0, None, None), Estimate(2.0, 1.9, 2.1)) == Estimate(0.0, None, None)


@pytest.mark.parametrize(
    ("degrees", "reach"), [(1, 12.7062), (4, 2.7764), (10, 2.2281), (None, 1.9600)]
)
def test_the_reach_of_an_interval_is_students(degrees, reach):
    assert student_97_5(degrees) == pytest.approx(reach, abs=5e-5)


def test_drift_is_seen_and_noise_is_not():
    noise = np.random.default_rng(4).normal(0, 0.01, size=(500, 60))
    steady = [drifts((1 + row).tolist()) for row in noise]
    drifting = [drifts((1 + row + np.linspace(0, 0.05, 60)).tolist()) for row in noise]
    assert np.mean(steady) < 0.05
    assert np.mean(drifting) > 0.99
    assert not drifts([1.0, 2.0])


def known(value, relative_sd=0.01):
    margin = NORMAL_97_5 * relative_sd * value
    return Estimate(value, value - margin, value + margin)


def test_the_error_of_a_time_counts_for_each_power_of_it():
    time, energy = known(2.0, 0.01), known(10.0, math.hypot(0.01, 0.02))
    found = energy_delay(time, energy, 2)
    assert found.value == 40
    assert found.sd / found.value == pytest.approx(math.hypot(0.02, 3 * 0.01))
    assert energy_delay(time, None, 1) is None
    assert energy_delay(Estimate(2.0, None, None), energy, 1) == Estimate(20.0, None, None)


def test_the_least_is_found_with_what_noise_does_not_separate_from_it():
    costs = [known(1.01), None, known(1.0), known(1.2), Estimate(9.0, None, None)]
    assert least(costs) == (2, [0, 4])
    assert least([None, Estimate(0.0, 0.0, 0.0)]) == (None, [])


def test_intervals_of_a_straight_line_hold_the_truth_and_few_lines_are_missed():
    generator = np.random.default_rng(1)
    found = []
    for _ in range(400):
        true = [(x, 10 + 2 * x) for x in (1, 2, 4, 8, 16)]
        drawn = [(x, value * generator.normal(1, 0.02), 0.02 * value) for x, value in true]
        points = [
            (x, Estimate(value, value - NORMAL_97_5 * sd, value + NORMAL_97_5 * sd))
            for x, value, sd in drawn
        ]
        found.append(straight_line(points))
    lines = [each for each in found if each]
    assert len(lines) >= 390
    for part, truth in ((0, 10), (1, 2)):
        assert np.mean([line[part].low <= truth <= line[part].high for line in lines]) > 0.92


def test_what_is_no_line_or_has_too_few_known_points_has_none():
    assert straight_line([(x, known(float(x**2))) for x in (1, 2, 4, 8)]) is None
    assert straight_line([(x, known(float(x))) for x in (1, 1, 2)]) is None
    assert straight_line([(x, Estimate(float(x), None, None)) for x in (1, 2, 4)]) is None
