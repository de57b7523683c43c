"""What a sweep found: a row for each point, and the points at which a sample costs least."""

import json
import re

import pytest
from opcost.costs.sweep_text import operator_lines, sweep_lines
from opcost.costs.sweeps import sweep_rows
from opcost.models.axes import Sweep
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows import schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

SECONDS = {(1, 32): 1.0, (2, 32): 1.6, (4, 32): 3.1, (1, 64): 2.0, (2, 64): 6.0}
NAMES = {point: f"net[batch={point[0]},size={point[1]}]" for point in SECONDS}
SWEEP = Sweep("net", {name: {"batch": b, "size": s} for (b, s), name in NAMES.items()})
THREADS = Sweep("cpu", {f"cpu[threads={n}]": {"threads": n} for n in (1, 2)})
LIMITS = Sweep("gpu", {f"gpu[limit={w}]": {"limit": w} for w in (200, 300, 400)})


def compared(model, batch, seconds, *, watts=None, half=0.02, whole=True, target="local"):
    """A row of the comparison."""

    def columns(quantity, value):
        found = value and Estimate(value, value * (1 - half), value * (1 + half))
        whose = quantity.of("end_to_end").columns(found if whole else None)
        return whose | quantity.of("estimate").columns(found or None)

    return {
        "model": model,
        "target": target,
        "batch_size": batch,
        "flops": None,
        "end_to_end_flags": ["drifting"] if whole else None,
        "end_to_end_measurements": 2 if whole else 0,
        "time_reason": None if seconds else "not measured",
        "energy_reason": None if watts else "no meter",
        **columns(TIME, seconds),
        **columns(ENERGY, watts and watts * seconds),
    }


def rows(points=SECONDS, **options):
    comparison = [compared(NAMES[p], p[0], SECONDS[p], **options) for p in points]
    return sweep_rows([SWEEP], [], comparison, [])


def along(axis, costs_s, batch=1, **options):
    """The text of a sweep over an axis of these costs."""
    sweep = Sweep("net", {f"net[{axis}={place}]": {axis: place} for place in costs_s})
    comparison = [
        compared(name, place if axis == "batch" else batch, costs_s[place], **options)
        for name, place in zip(sweep.points, costs_s, strict=True)
    ]
    return unwrapped(sweep_rows([sweep], [], comparison, []))


def unwrapped(found):
    return " ".join(" ".join(sweep_lines(found)).split())


def test_a_row_has_the_cost_of_an_iteration_and_of_a_sample():
    first, second, *_ = rows(watts=50)
    assert first.keys() == set(schemas.SWEEPS.names)
    assert len(first) <= 25
    assert json.loads(second["point"]) == {"batch": 2, "size": 32}
    assert (second["time_s"], second["samples_per_s"]) == (1.6, 1.25)
    assert second["sample_energy_j"] == pytest.approx(40)
    assert second["sample_edp_js"] == pytest.approx(40 * 0.8)
    assert second["sample_ed2p_js2"] == pytest.approx(40 * 0.8**2)
    assert rows()[1]["sample_edp_js"] is None
    assert rows()[1]["energy_reason"] == "no meter"


def test_the_least_and_what_is_within_noise_are_marked_among_equal_sizes():
    found = rows(half=0.04)
    assert [row["least"] for row in found] == [[], [], ["time"], ["time"], []]
    assert [row["within_noise"] for row in found] == [[], ["time"], [], [], []]
    assert [row["least"] for row in rows([(1, 32), (1, 64)])] == [[], []]


def test_the_table_marks_the_best_points():
    lines = sweep_lines(rows(watts=50, half=0.04))
    assert lines[0] == "Sweep net on local:"
    assert lines[2].split() == [
        *("batch", "size", "time", "samples/s", "energy/sample", "power", "flags")
    ]
    cells = [re.split(r"  +", line) for line in lines[3:8]]
    assert [each[3] for each in cells] == ["1.00", "1.25 ~", "1.29 *", "0.500 *", "0.333"]
    assert [each[4] for each in cells] == [
        *("50.0 J ± 4.0%", "40.0 J ± 4.0% ~", "38.8 J ± 4.0% *", "100 J ± 4.0% *", "150 J ± 4.0%")
    ]
    assert [each[5] for each in cells] == ["50 W"] * 5
    assert " ".join(lines[9:]).startswith("*: best of the points that differ in batch alone; ~:")


def test_an_estimate_is_said_to_be_one():
    found = rows([(1, 32)], whole=False)
    assert found[0]["estimated"] == ["time"]
    assert "1.00 s ± 2.0% (estimate)" in "\n".join(sweep_lines(found))
    assert rows([(1, 32)])[0]["estimated"] == []


def test_without_sweeps_there_is_no_text():
    assert sweep_lines([]) == []


def test_each_target_has_its_own_table():
    comparison = [
        compared(NAMES[p], p[0], SECONDS[p], target=target)
        for target in ("cpu", "gpu", *THREADS.points)
        for p in SECONDS
    ]
    lines = sweep_lines(sweep_rows([SWEEP], [THREADS], comparison, []))
    assert [line for line in lines if line.startswith("Sweep")] == [
        *("Sweep net on cpu:", "Sweep net on gpu:", "Sweep net on cpu[threads]:")
    ]


def on_threads(points=((1, 32), (2, 32)), sweeps=(SWEEP,)):
    """Two threads take two thirds of the time of one."""
    comparison = [
        compared(NAMES[p], p[0], SECONDS[p] / (1.5 if "2" in target else 1), target=target)
        for target in THREADS.points
        for p in points
    ]
    return sweep_rows(sweeps, [THREADS], comparison, [])


def test_points_of_targets_are_compared_with_one_another_as_batch_sizes_are():
    found = on_threads()
    assert [(row["model"], row["target"]) for row in found if row["least"]] == [
        (NAMES[2, 32], "cpu[threads=2]")
    ]
    assert "differ in batch and threads alone" in unwrapped(found)


def test_a_model_without_axes_has_the_points_of_its_targets():
    found = on_threads([(1, 32)], sweeps=())
    assert [(row["sweep"], row["target"]) for row in found] == [
        (NAMES[1, 32], target) for target in THREADS.points
    ]
    plain = [compared(NAMES[1, 32], 1, 1.0)]
    assert sweep_rows([], [THREADS], plain, []) == []


def test_a_model_of_unknown_batch_size_is_compared_by_iterations():
    comparison = [compared("net", None, 1 / n, target=f"cpu[threads={n}]") for n in (1, 2)]
    found = sweep_rows([], [THREADS], comparison, [])
    assert [row["samples_per_s"] for row in found] == [None, None]
    assert [row["least"] for row in found] == [[], ["time"]]
    assert sweep_lines(found)[4].split() == ["2", "500", "ms", "±", "2.0%", "*", "drifting"]


def test_the_most_efficient_power_limit_is_marked():
    """A lower limit is slower: least energy, least time and their products differ."""
    seconds, watts = {200: 1.6, 300: 1.1, 400: 1.0}, {200: 150, 300: 250, 400: 390}
    comparison = [
        compared("net", 1, seconds[w], watts=watts[w], target=f"gpu[limit={w}]") for w in seconds
    ]
    found = sweep_rows([], [LIMITS], comparison, [])
    assert [row["least"] for row in found] == [["energy"], ["edp", "ed2p"], ["time"]]
    lines = sweep_lines(found)
    assert "ED2P" in lines[2].split()
    assert "333 J s² *" in lines[4]
    assert "ED2P" not in "\n".join(sweep_lines(rows(watts=50)))


def test_models_that_differ_in_the_batch_size_alone_are_a_sweep():
    def model(name, *shape):
        definition = ModelDefinition(name, (InputSpec(shape),), model="resnet50")
        return ModelTuples(name, (), (), None, "2.15", definition=definition)

    models = [
        *(model("resnet50_b8", 8, 3, 224, 224), model("resnet50_b1", 1, 3, 224, 224)),
        model("resnet50_small", 1, 3, 56, 56),
    ]
    comparison = [compared(each.model, each.definition.batch_size, 1.0) for each in models]
    found = sweep_rows([], [], comparison, models)
    assert [(row["sweep"], row["model"], row["point"]) for row in found] == [
        ("resnet50[batch]", "resnet50_b1", '{"batch": 1}'),
        ("resnet50[batch]", "resnet50_b8", '{"batch": 8}'),
    ]


def test_a_straight_line_says_what_an_iteration_and_each_sample_cost():
    text = along("batch", {1: 1.1, 2: 1.2, 4: 1.4, 8: 1.8, 32: 4.2})
    found = r"Time of an iteration = 1\.0+ s ± [\d.]+% \+ \(100 ms ± [\d.]+%\) x batch\."
    assert re.search(found, text)
    assert "x prompt" in along("prompt", {128: 2.0, 256: 3.0, 512: 5.0})


@pytest.mark.parametrize(
    "costs_s",
    [
        {1: 1.0, 2: 1.0, 4: 5.0, 8: 5.1},
        {1: 1.02, 2: 1.0, 4: 1.01, 8: 1.0},
        {1: 4.0, 2: 3.5, 4: 2.5},
        {1: 1.0, 2: 2.0},
        {1: 1.0, 2: 2.0, 4: None},
    ],
    ids=["a step", "flat", "falling", "two points", "two known points"],
)
def test_a_sweep_without_a_line_that_grows_has_no_sentence_about_it(costs_s):
    assert "of an iteration =" not in along("batch", costs_s)


def test_each_size_and_target_has_its_own_line():
    comparison = [
        compared(f"net[n={n}]", n, 1 + (0.5 + threads) * n, target=f"cpu[threads={threads}]")
        for n in (1, 2, 4)
        for threads in (1, 2)
    ]
    sweep = Sweep("net", {f"net[n={n}]": {"n": n} for n in (1, 2, 4)})
    text = unwrapped(sweep_rows([sweep], [THREADS], comparison, []))
    for threads, slope in ((1, r"1\.5"), (2, r"2\.5")):
        assert re.search(
            rf"at threads={threads} = [^.]*\.?[^(]*\({slope}\d* s ± .{{4,5}}\) x n", text
        )


FLAGS = (["disturbed"], [])


def of_operator(second=None):
    """A sweep of an operator without a model over the number of its channels."""
    sweep = Sweep("relu", {f"relu[c={c}]": {"c": c} for c in (1, 2)})
    isolated = [
        {
            **compared(name, None, seconds, whole=False),
            **{"tuple_id": name, "bytes": 10**6, "flags": flags, "end_to_end_measurements": None},
            "time_reason": None if seconds else "error: not for 2",
        }
        for name, seconds, flags in zip(
            sweep.points, (1.0, second), (["disturbed"], []), strict=True
        )
    ]
    return sweep_rows([sweep], [], isolated, [])


def test_flags_of_operators_stand_beside_the_cost_and_are_explained():
    lines = sweep_lines(of_operator(2.0))
    assert lines[2].split() == ["c", "time", "bandwidth", "flags"]
    assert [line.split()[-1] for line in lines[3:5]] == ["disturbed", "-"]
    assert "±: half of the 95 % interval." in lines
    assert "disturbed: interference slowed the core" in " ".join(lines)
    assert "drifting:" not in unwrapped(rows())


def test_a_point_without_a_cost_says_why():
    found = of_operator()
    assert [row["time_reason"] for row in found] == [None, "error: not for 2"]
    assert "No time of c=2: error: not for 2." in sweep_lines(found)


def share(target, operator, seconds, watts=None, model="net"):
    return {
        **{"model": model, "target": target, "operator": operator, "phase": "forward"},
        **{"time_s": seconds, "energy_j": watts and seconds and watts * seconds},
    }


def shares(watts=100, missing=None):
    """A lower limit slows convolutions, and leaves additions as they are."""
    return [
        share(target, operator, None if (target, operator) == missing else seconds, watts)
        for target, point in LIMITS.points.items()
        for operator, seconds in (
            ("aten.add.Tensor", 2e-3),
            ("aten.conv2d.default", 1.6 / point["limit"]),
        )
    ]


def test_one_sees_which_operators_lose_nothing_under_a_limit():
    lines = operator_lines([LIMITS], shares())
    assert lines[0].startswith("Time of all calls of each operator on gpu")
    assert [line.split() for line in lines[2:5]] == [
        ["operator", "limit=400", "limit=200", "limit=300"],
        ["conv2d", "4.00", "ms", "+100%", "+33%"],
        ["add", "2.00", "ms", "+0%", "+0%"],
    ]
    assert len([line for line in lines if line.startswith("Energy")]) == 1
    assert not any("Energy" in line for line in operator_lines([LIMITS], shares(watts=None)))


def test_an_operator_that_one_point_lacks_is_left_out_at_all_of_them():
    lines = operator_lines([LIMITS], shares(missing=("gpu[limit=200]", "aten.conv2d.default")))
    assert "conv2d" not in "\n".join(lines)
    assert "add" in "\n".join(lines)
    here = [row for row in shares() if row["target"] == "gpu[limit=400]"]
    assert operator_lines([LIMITS], here) == []
    assert operator_lines([], shares()) == []
