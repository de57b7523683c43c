"""Charts of sweeps in the report."""

import pytest
from opcost.models.axes import Sweep
from opcost.report.results import Results
from opcost.report.sweeps import sweeps

from tests.test_sweeps import LIMITS, compared, sweep_rows

BATCHES, SIZES = (1, 2, 4), (32, 64)
POINTS = {f"net[batch={b},size={s}]": {"batch": b, "size": s} for b in BATCHES for s in SIZES}


def results(watts=None, target_sweep=None, points=POINTS):
    comparison = [
        compared(
            name,
            POINTS[name]["batch"],
            (1 + POINTS[name]["batch"]) * POINTS[name]["size"] ** 2 * 1e-6,
            watts=watts,
            target=target,
        )
        for name in points
        for target in (target_sweep.points if target_sweep else ["local"])
    ]
    sweep = Sweep("net", {name: POINTS[name] for name in points})
    found = sweep_rows([sweep], [target_sweep] if target_sweep else [], comparison, [])
    return Results(None, comparison, [], [], [], sweeps=found)


def titles(found):
    return [figure.title for sweep in sweeps(found) for figure in sweep.figures]


def data(found, title):
    [figure] = [each for sweep in sweeps(found) for each in sweep.figures if each.title == title]
    return figure.spec["datasets"]["points"]


def test_each_axis_of_numbers_has_a_chart_of_each_known_cost():
    assert titles(results()) == ["Time of a sample by batch", "Time of a sample by size"]
    assert titles(results(watts=100))[1] == "Energy of a sample by batch"


def test_the_other_axes_make_the_series():
    points = data(results(), "Time of a sample by batch")
    assert list(dict.fromkeys(point["series"] for point in points)) == ["size=32", "size=64"]
    first = points[0]
    assert first["y"] == pytest.approx(2 * 32**2 * 1e-6)
    assert first["low"] < first["y"] < first["high"]


def test_axes_of_targets_are_axes():
    points = data(results(target_sweep=LIMITS), "Time of a sample by limit")
    assert {point["x"] for point in points} == {200, 300, 400}
    assert len({point["series"] for point in points}) == len(POINTS)


def test_a_sweep_without_two_points_along_an_axis_has_no_chart():
    [alone] = sweeps(results(points=["net[batch=1,size=32]"]))
    assert alone.figures == []
    assert [each["size"] for each in alone.cells] == ["32"]


def test_the_points_and_what_they_say_stand_below_the_charts():
    [sweep] = sweeps(results(watts=100))
    assert [each["batch"] for each in sweep.cells] == ["1", "1", "2", "2", "4", "4"]
    assert sweep.notes[0].startswith("*: best of the points that differ in batch alone")


def test_a_value_that_no_chart_can_have_is_left_out():
    found = results()
    found.sweeps[0]["point"] = '{"batch": 1' + 400 * "0" + ', "size": 32}'
    points = data(found, "Time of a sample by batch")
    assert len(points) == len(POINTS) - 1
