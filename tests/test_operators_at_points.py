"""What each operator costs at the points of a target's axes."""

import pytest
from opcost.costs.operators_at_points import costs, lines
from opcost.models.axes import Sweep
from opcost.rows.quantities import ENERGY, TIME

from tests import comparisons
from tests.synthetic_study import models_of, record

LIMITS_W = (400, 300, 200)
SWEEP = Sweep("gpu", {f"gpu[limit={w}]": {"limit": w} for w in LIMITS_W})
TUPLES = [record(number) for number in (0, 1, 3, 5)]
MODELS = models_of(["first", "second"], TUPLES)
"""conv2d and linear, relu_ and conv2d; each tuple is called twice."""


def measured(target, number, **changes):
    """A row of a tuple: a lower limit slows conv2d and linear, and leaves relu_ as it is."""
    limit_w = SWEEP.points[target]["limit"]
    slower = 1.0 if number == 3 else 400 / limit_w
    identity = {"target": target, "tuple_id": record(number).operator_tuple.tuple_id}
    power_w = 150.0 if number == 3 else float(limit_w)
    return comparisons.row(1e-3 * slower, power_w, **identity, **changes)


def measured_everywhere(**changes):
    return [measured(target, n, **changes) for target in SWEEP.points for n in (0, 1, 3, 5)]


def found(rows):
    models = dict.fromkeys(SWEEP.points, MODELS)
    return {each.operator: each for each in costs(SWEEP, models, rows)}


def test_an_operator_costs_all_of_its_calls_in_all_models():
    operators = found(measured_everywhere())
    conv = operators["conv2d"].on["gpu[limit=400]"]
    assert conv[TIME].value == pytest.approx(4e-3)
    assert conv[ENERGY].value == pytest.approx(1.6)
    assert list(operators) == ["conv2d", "linear", "relu_"]


def test_one_sees_which_operators_lose_nothing_under_a_limit():
    operators = found(measured_everywhere())
    capped = {
        name: each.above("gpu[limit=400]", "gpu[limit=200]", TIME)
        for name, each in operators.items()
    }
    assert capped["conv2d"].value == pytest.approx(1.0)
    assert capped["relu_"].value == 0
    assert capped["relu_"].low < 0 < capped["relu_"].high


def test_a_tuple_that_failed_at_one_point_is_left_out_at_all_of_them():
    rows = measured_everywhere()
    rows[0] |= comparisons.FAILED
    found_on = found(rows)["conv2d"].on
    assert {round(on[TIME].value, 6) for on in found_on.values()} == {0.002, 0.002667, 0.004}


def test_an_operator_without_energy_has_none():
    operators = found([row | dict.fromkeys(ENERGY.names) for row in measured_everywhere()])
    assert operators["conv2d"].above("gpu[limit=400]", "gpu[limit=200]", ENERGY) is None
    assert not any("Energy" in line for line in lines(SWEEP, list(operators.values())))


def test_the_tables_compare_with_the_fastest_point():
    text = lines(SWEEP, costs(SWEEP, dict.fromkeys(SWEEP.points, MODELS), measured_everywhere()))
    assert text[0].startswith("Time of all calls of each operator on gpu")
    assert text[2].split() == ["operator", "limit=400", "limit=300", "limit=200"]
    assert text[3].split()[0] == "conv2d"
    assert "+100.0% ± 2.0%" in text[3]
    assert "+0.0% ± 1.4%" in text[5]
    assert len([line for line in text if line.startswith("Energy")]) == 1


def test_one_point_is_compared_with_nothing():
    alone = Sweep("gpu", {"gpu[limit=400]": {"limit": 400}})
    operators = costs(alone, {"gpu[limit=400]": MODELS}, measured_everywhere())
    assert lines(alone, operators) == []
    assert lines(SWEEP, costs(SWEEP, {}, [])) == []


def test_a_model_that_is_missing_at_one_point_is_left_out_at_all_of_them():
    models = dict.fromkeys(SWEEP.points, MODELS) | {"gpu[limit=200]": MODELS[:1]}
    operators = {each.operator: each for each in costs(SWEEP, models, measured_everywhere())}
    assert operators["conv2d"].on["gpu[limit=400]"][TIME].value == pytest.approx(2e-3)
    assert operators["conv2d"].above("gpu[limit=400]", "gpu[limit=200]", TIME).value == 1.0
