"""Charts of sweeps in the report."""

import pytest
from opcost.costs.sweeps import sweep_rows
from opcost.models.axes import Sweep
from opcost.report.results import Results
from opcost.report.sweeps import sweeps
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

BATCHES, SIZES = (1, 2, 4), (32, 64)
POINTS = {f"net[batch={b},size={s}]": {"batch": b, "size": s} for b in BATCHES for s in SIZES}
LIMITS = Sweep("gpu", {f"gpu[limit={w}]": {"limit": w} for w in (200, 400)})


def tuples(name):
    found = ModelTuples(name, (), (), None, "2.15")
    found.__dict__["kernel_ids"] = frozenset()
    return found


def compared(name, target, watts):
    def columns(quantity, value):
        found = value and Estimate(value, value * 0.98, value * 1.02)
        return quantity.of("end_to_end").columns(found) | quantity.of("estimate").columns(found)

    point = POINTS[name]
    seconds = (1 + point["batch"]) * point["size"] ** 2 * 1e-6 * (1.5 if "200" in target else 1)
    row = {"model": name, "target": target, "batch_size": point["batch"], TIME.run_sd: 0.01}
    row |= dict.fromkeys(("end_to_end_flags", "end_to_end_measurements", "time_reason"))
    row["energy_reason"] = None if watts else "no meter"
    return row | columns(TIME, seconds) | columns(ENERGY, watts and watts * seconds)


def results(watts=None, targets=("local",), points=POINTS):
    comparison = [compared(name, target, watts) for name in points for target in targets]
    swept = sweep_rows(
        [Sweep("net", {name: POINTS[name] for name in points})],
        [] if targets == ("local",) else [LIMITS],
        comparison,
        map(tuples, points),
    )
    models = [{"model": name, "flops": 10**9, "definition_json": None} for name in points]
    return Results(None, comparison, [], [], models, sweeps=swept)


def titles(found):
    return [figure.title for sweep in sweeps(found) for figure in sweep.figures]


def data(found, title):
    [figure] = [each for sweep in sweeps(found) for each in sweep.figures if each.title == title]
    return figure.spec["datasets"]["points"]


def test_each_axis_of_numbers_has_a_chart_of_each_known_cost():
    assert titles(results()) == [
        "Time of a sample by batch",
        "FLOPs per second by batch",
        "Time of a sample by size",
        "FLOPs per second by size",
    ]
    assert "Mean power by size" in titles(results(watts=100))


def test_the_other_axes_make_the_series():
    points = data(results(), "Time of a sample by batch")
    assert list(dict.fromkeys(point["series"] for point in points)) == ["size=32", "size=64"]
    first = points[0]
    assert first["y"] == pytest.approx(2 * 32**2 * 1e-6)
    assert first["low"] < first["y"] < first["high"]


def test_power_is_energy_over_time():
    points = data(results(watts=100), "Mean power by batch")
    assert {round(point["y"], 6) for point in points} == {100.0}


def test_axes_of_targets_are_axes():
    found = results(watts=100, targets=tuple(LIMITS.points))
    points = data(found, "Time of a sample by limit")
    assert {point["x"] for point in points} == {200, 400}
    assert len({point["series"] for point in points}) == len(POINTS)


def test_energy_is_shown_against_time():
    found = results(watts=100)
    [title] = [each for each in titles(found) if each.startswith("Energy against time")]
    assert title == "Energy against time of a sample"
    assert {point["front"] for point in data(found, title)} == {True, False}
    assert not [each for each in titles(results()) if "against" in each]


def test_a_sweep_without_two_points_along_an_axis_has_no_chart():
    [alone] = sweeps(results(points=["net[batch=1,size=32]"]))
    assert alone.figures == []
    assert [each["size"] for each in alone.cells] == ["32"]


def test_the_points_and_what_they_say_stand_below_the_charts():
    [sweep] = sweeps(results(watts=100))
    assert [each["batch"] for each in sweep.cells] == ["1", "1", "2", "2", "4", "4"]
    assert any(each.startswith("Least energy per sample at size=32") for each in sweep.findings)


def test_a_value_that_no_chart_can_have_is_left_out():
    found = results()
    point = '{"batch": 1' + 400 * "0" + ', "size": 32}'
    found.sweeps[0]["point"] = point
    points = data(found, "Time of a sample by batch")
    assert len(points) == len(POINTS) - 1
