"""What an iteration and each of its samples cost, as a line through several batch sizes."""

import numpy as np
import pytest
from opcost.costs.growth import growth, growth_with_power
from opcost.statistics import NORMAL_97_5, Estimate

SIZES = (1, 2, 4, 8, 16)


def costs(fixed, each, sizes=SIZES, sd=0.02, off=0.0, generator=None):
    """Costs of a line, with errors of which the intervals know the part `sd`."""
    found = []
    for size in sizes:
        true = fixed + each * size
        error = generator.normal(0, np.hypot(sd, off)) if generator else 0.0
        half = NORMAL_97_5 * sd * true
        value = true * (1 + error)
        found.append((size, Estimate(value, value - half, value + half)))
    return found


def test_a_line_is_told_apart_into_its_parts():
    found = growth(costs(10.0, 2.0))
    assert found.fixed.value == pytest.approx(10)
    assert found.each.value == pytest.approx(2)
    assert found.even.value == pytest.approx(5)
    assert found.is_straight


@pytest.mark.parametrize("off", [0.0, 0.02])
def test_intervals_hold_the_truth_also_where_costs_scatter_more_than_theirs_tell(off):
    generator = np.random.default_rng(1)
    held = np.zeros(3)
    for _ in range(400):
        found = growth(costs(10.0, 2.0, off=off, generator=generator))
        parts = [(found.fixed, 10.0), (found.each, 2.0), (found.even, 5.0)]
        held += [each.low <= truth <= each.high for each, truth in parts]
    assert (held / 400 > 0.92).all()


def test_what_is_no_line_is_told():
    assert not growth(
        [(n, Estimate(float(n**2), n**2 * 0.98, n**2 * 1.02)) for n in SIZES]
    ).is_straight


def test_two_sizes_and_costs_without_intervals_tell_nothing():
    assert growth(costs(10.0, 2.0, sizes=(1, 2))) is None
    assert growth(costs(10.0, 2.0, sizes=(1, 1, 2))) is None
    assert growth([(n, Estimate(float(n), None, None)) for n in SIZES]) is None


@pytest.mark.parametrize("each", [0.0, 0.05, 0.2, 1.0])
def test_a_batch_size_at_which_both_parts_are_equal_is_told_only_where_both_are(each):
    generator = np.random.default_rng(2)
    told = held = 0
    for _ in range(300):
        found = growth(costs(10.0, each, sizes=(1, 2, 4, 8), generator=generator))
        assert (found.even is None) == (found.fixed.low <= 0 or found.each.low <= 0)
        if found.even is not None:
            told += 1
            held += each > 0 and found.even.low <= 10 / each <= found.even.high
    assert told < 12 if each == 0 else True
    assert held / told > 0.9 if each >= 0.2 else True


@pytest.mark.parametrize("power", [1, 2])
def test_the_power_of_a_size_with_which_a_cost_grows_is_found(power):
    sizes = (64, 112, 224, 448)
    generator, fits = np.random.default_rng(5), 0
    for _ in range(50):
        drawn = costs(10.0, 40.0 / 112**power, [s**power for s in sizes], generator=generator)
        found = growth_with_power([(s, cost) for s, (_, cost) in zip(sizes, drawn, strict=True)])
        if found is not None:
            exponent, line = found
            fits += exponent == power
            assert 0.5 < line.even.value ** (1 / power) / (112 * 0.25 ** (1 / power)) < 2
    assert fits >= 45


def test_a_cost_that_grows_with_no_such_power_has_no_line():
    cubes = [
        (size, cost)
        for size, (_, cost) in zip(SIZES, costs(0.0, 1.0, [s**5 for s in SIZES]), strict=True)
    ]
    assert growth_with_power(cubes) is None
