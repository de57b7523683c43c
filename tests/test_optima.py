"""The least cost along an axis: curves through measured points, and what is on the Pareto front."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opcost.costs.sweeps import OBJECTIVES, objective, on_front, optima
from opcost.optimum import optimum
from opcost.rows.quantities import ED2P, EDP, ENERGY, TIME
from opcost.statistics import NORMAL_97_5, Estimate


def known(value, relative_sd=0.01):
    margin = NORMAL_97_5 * relative_sd * value
    return Estimate(value, value - margin, value + margin)


def valley(x, at=250.0):
    return 2.0 + math.log(x / at) ** 2


def points(cost=valley, places=(160, 200, 240, 280, 320, 360, 400), sd=0.01):
    return [(x, known(cost(x), sd)) for x in places]


def test_the_least_lies_between_measured_points():
    found = optimum(points(sd=0.001))
    assert found.low < 250 < found.high
    assert found.at == pytest.approx(250, rel=0.02)
    assert found.cost.value == pytest.approx(2, rel=0.002)
    assert not found.beyond


def test_the_order_of_the_points_does_not_matter():
    assert optimum(points()[::-1]) == optimum(points())


@pytest.mark.parametrize(("cost", "at"), [(lambda x: x, 160), (lambda x: 1 / x, 400)])
def test_a_least_at_an_end_is_never_beyond_it_and_is_said_to_be_there(cost, at):
    found = optimum(points(cost))
    assert found.at == at
    end = "smallest" if at == 160 else "largest"
    assert found.beyond == f" (the {end} that was measured)"


@pytest.mark.parametrize("number", [8, 16])
def test_a_least_behind_a_step_is_in_the_interval(number):
    """As where another kernel is chosen: the smooth curve rounds the step off."""
    places, generator, held = np.linspace(100, 700, number), np.random.default_rng(3), 0
    for _ in range(40):
        true = [1.3 - 1e-4 * (x - 100) if x < 450 else 1 + 3e-4 * (x - 450) for x in places]
        drawn = [cost * (1 + generator.normal(0, 0.02)) for cost in true]
        found = optimum([(x, known(cost, 0.02)) for x, cost in zip(places, drawn, strict=True)])
        held += found.low <= 450 <= found.high
    assert held >= 36


def test_costs_beyond_a_cliff_do_not_move_the_least():
    costs = (1.0, 0.8, 0.7, 0.65, 0.64, 30.0)
    found = optimum([(2.0**n, known(cost, 0.01)) for n, cost in enumerate(costs)])
    assert found.cost.value == pytest.approx(0.64, rel=0.08)
    assert found.low <= 16 <= found.high


def test_where_all_costs_are_alike_any_place_may_be_the_best():
    found = optimum(points(lambda x: 3.0))
    assert (found.low, found.high) == (pytest.approx(160), pytest.approx(400))


@pytest.mark.parametrize(
    "unknown",
    [
        points(places=(100, 200, 300)),
        points(places=(100, 200, 300, 300)),
        points(lambda x: -1.0),
        [(-x, cost) for x, cost in points()],
        [(x, Estimate(cost.value, None, None)) for x, cost in points()],
    ],
    ids=["three", "twice the same", "negative costs", "negative places", "no intervals"],
)
def test_there_is_no_curve_without_four_positive_points_with_intervals(unknown):
    assert optimum(unknown) is None


def test_intervals_hold_the_place_and_the_cost_of_the_least():
    """Of 100 drawn devices whose power follows the frequency, and whose time has a fixed part."""
    generator = np.random.default_rng(0)
    places = costs = 0
    for _ in range(100):
        idle_w, full_w = generator.uniform(30, 90), generator.uniform(250, 420)
        bound, exponent = generator.uniform(0.2, 0.9), generator.uniform(2, 3)
        frequency = np.linspace(0.2, 1, 2001)
        power_w = idle_w + (full_w - idle_w) * (0.3 * frequency + 0.7 * frequency**exponent)

        def edp(limit_w, frequency=frequency, power_w=power_w, bound=bound):
            reached = np.interp(limit_w, power_w, frequency)
            time_s = 1 - bound + bound / reached
            return np.interp(reached, frequency, power_w) * time_s**2

        limits_w = np.linspace(160, 400, 9)
        measured = edp(limits_w) * np.exp(generator.normal(0, 0.01, 9))
        found = optimum([(x, known(y)) for x, y in zip(limits_w, measured, strict=True)])
        fine_w = np.linspace(160, 400, 2001)
        truth = edp(fine_w)
        best_w = fine_w[truth <= 1.0005 * truth.min()]
        places += found.low <= best_w.max() + 1 and found.high >= best_w.min() - 1
        costs += found.cost.low <= truth.min() <= found.cost.high
    assert places >= 90
    assert costs >= 85


def kink(x):
    """A cost that falls ten times as fast as it rises, and turns at 230."""
    return 1 + (230 - x) / 100 if x < 230 else 1 + (x - 230) / 1000


@pytest.mark.parametrize("count", [7, 8, 13])
def test_an_interval_holds_a_kink_between_points(count):
    places, generator = np.linspace(100, 700, count), np.random.default_rng(0)
    step = places[1] - places[0]
    holds = costs = 0
    for sd in [0.0, *[0.01] * 15]:
        noise = np.exp(generator.normal(0, sd, count))
        found = optimum([(x, known(kink(x) * e)) for x, e in zip(places, noise, strict=True)])
        holds += found.low <= 230 <= found.high
        costs += found.cost.low <= 1 <= found.cost.high
        assert found.high - found.low < 3.1 * step
    assert holds == 16
    assert costs >= 14


def test_an_interval_holds_the_end_of_a_line_that_hardly_rises():
    places, generator = np.linspace(100, 700, 13), np.random.default_rng(0)
    drawn = [
        optimum(
            [
                (x, known((1 + x / 70000) * math.exp(e), 0.03))
                for x, e in zip(places, noise, strict=True)
            ]
        )
        for noise in generator.normal(0, 0.03, (40, 13))
    ]
    assert sum(found.low <= 100.1 for found in drawn) >= 37


def test_the_least_of_a_valley_lies_between_the_neighbours_of_its_least_point():
    found = optimum(points(sd=0.001))
    assert (found.low, found.high) == (pytest.approx(200), pytest.approx(280))


@pytest.mark.parametrize("half", [0.1, 0.3, 0.6])
def test_where_all_costs_are_alike_so_is_the_least_one(half):
    alike = Estimate(5.0, 5 * (1 - half), 5 * (1 + half))
    cost = optimum([(x, alike) for x in (100, 200, 300, 400, 500)]).cost
    assert cost.value == pytest.approx(5)
    assert alike.low - 1 < cost.low < 5 < cost.high < alike.high + 0.1


def test_the_cost_of_a_flat_curve_is_hardly_biased_and_its_interval_holds_it():
    generator = np.random.default_rng(0)
    costs = [
        optimum([(x, known(math.exp(e), 0.1)) for x, e in enumerate(noise, 1)]).cost
        for noise in generator.normal(0, 0.1, (40, 8))
    ]
    assert abs(np.median([cost.value for cost in costs]) - 1) < 0.1
    assert sum(cost.low <= 1 <= cost.high for cost in costs) >= 37


def test_the_error_of_a_time_counts_for_each_power_of_it():
    time, energy = known(2.0, 0.01), known(10.0, math.hypot(0.01, 0.02))
    assert objective(TIME, time, energy) is time
    assert objective(ENERGY, time, energy) is energy
    found = objective(ED2P, time, energy)
    assert found.value == 40
    assert found.sd / found.value == pytest.approx(math.hypot(0.02, 3 * 0.01))
    assert objective(EDP, time, None) is None
    assert objective(EDP, Estimate(2.0, None, None), energy) == Estimate(20.0, None, None)


drawn_points = st.lists(
    st.tuples(st.floats(1e-3, 1e6), st.floats(1e-9, 1e9), st.floats(1e-6, 3)),
    min_size=4,
    max_size=14,
)


@settings(max_examples=30)
@example([(1.0, 0.0625, 1.0), (15502.0, 1.0, 1.0), (38855.0, 1.0, 1.0), (41755.0, 202.0, 1.0)])
@given(drawn_points)
def test_of_any_points_the_interval_holds_the_optimum_and_its_cost(drawn):
    found = optimum([(x, Estimate(c, c * (1 - half), c * (1 + half))) for x, c, half in drawn])
    if found is not None:
        assert found.low <= found.at <= found.high
        assert 0 <= found.cost.low <= found.cost.value <= found.cost.high < math.inf


def test_what_is_no_finite_number_is_on_no_curve():
    assert optimum([(x, Estimate(c.value, -math.inf, math.inf)) for x, c in points()]) is None
    assert optimum([(x, Estimate(math.inf, 1.0, 2.0)) for x, _ in points()]) is None
    assert optimum([*points(), (math.inf, known(2.0))]) is None
    where = [{"n": x} for x in (1, 2, 4, 8, 10**400)]
    [found] = optima(where, {ENERGY: [known(valley(n, 3)) for n in (1, 2, 4, 8, 16)]})
    assert found.optimum.high <= 8


pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@given(pairs)
def test_the_front_has_the_pairs_that_no_other_beats(pairs):
    front = on_front([(known(float(time)), known(float(energy))) for time, energy in pairs])
    least = min(pairs)
    assert front[pairs.index(least)]
    for (time, energy), is_on_it in zip(pairs, front, strict=True):
        beaten = any(t <= time and e <= energy and (t, e) != (time, energy) for t, e in pairs)
        assert is_on_it is not beaten


def test_a_point_without_energy_is_on_no_front():
    assert on_front([(known(1.0), None), (known(2.0), known(1.0))]) == [None, True]


def test_each_axis_of_numbers_has_its_least_for_each_value_of_the_others():
    limits = (160, 200, 240, 280, 320, 360, 400)
    where = [{"limit": x, "tf32": tf32} for tf32 in (False, True) for x in limits]
    costs = [known(valley(each["limit"], 300 if each["tf32"] else 220), 0.001) for each in where]
    found = optima(where, {ENERGY: costs, TIME: [None] * len(costs)})
    assert [(each.quantity, each.axis, each.at) for each in found] == [
        (ENERGY, "limit", {"tf32": False}),
        (ENERGY, "limit", {"tf32": True}),
    ]
    assert [each.optimum.at for each in found] == [
        pytest.approx(220, rel=0.03),
        pytest.approx(300, rel=0.03),
    ]
    assert {TIME, ENERGY, EDP, ED2P} == set(OBJECTIVES)
