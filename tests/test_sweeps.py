"""What a sweep found: a row for each point, and the batch size at which a sample costs least."""

import json
import re

import pytest
from opcost.costs.sweep_text import sweep_lines
from opcost.costs.sweeps import above_least, fixed, marginal, sample, sweep_rows
from opcost.models.axes import Sweep
from opcost.rows import schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.tuples.model_tuples import ModelTuples

SECONDS = {(1, 32): 1.0, (2, 32): 1.6, (4, 32): 3.1, (1, 64): 2.0, (2, 64): 6.0}
NAMES = {point: f"net[batch={point[0]},size={point[1]}]" for point in SECONDS}
SWEEP = Sweep("net", {name: {"batch": b, "size": s} for (b, s), name in NAMES.items()})


def tuples(point):
    """A model of which only the tuples' ids are known."""
    found = ModelTuples(NAMES[point], (), (), None, "2.15")
    found.__dict__["kernel_ids"] = frozenset(["shared", f"batch {point[0]}", str(point)])
    return found


def compared(point, half=0.02, watts=None, whole=True, target="local"):
    def columns(quantity, value):
        found = value and Estimate(value, value * (1 - half), value * (1 + half))
        whose = quantity.of("end_to_end").columns(found if whole else None)
        return whose | quantity.of("estimate").columns(found or None)

    seconds = SECONDS[point]
    row = {"model": NAMES[point], "target": target, "batch_size": point[0]}
    row |= {"end_to_end_flags": ["drifting"] if whole else None, TIME.run_sd: 0.01}
    row |= {"end_to_end_measurements": 2 if whole else 0}
    row |= {"time_reason": None, "energy_reason": None if watts else "no meter"}
    return row | columns(TIME, seconds) | columns(ENERGY, watts and watts * seconds)


def rows(points=SECONDS, **options):
    comparison = [compared(point, **options) for point in points]
    return sweep_rows([SWEEP], [], comparison, map(tuples, SECONDS))


def test_a_row_has_the_cost_of_an_iteration_and_of_a_sample():
    first, second, *_ = rows(watts=50)
    assert first.keys() == set(schemas.SWEEPS.names)
    assert json.loads(second["point"]) == {"batch": 2, "size": 32}
    assert (second["time_s"], second["sample_time_s"]) == (1.6, 0.8)
    assert second["sample_energy_j"] == pytest.approx(40)
    assert sample(TIME).read(second).relative_half_width == pytest.approx(0.02)


def test_a_tuple_is_new_at_the_first_point_that_has_it():
    assert [row["tuples"] for row in rows()] == [3] * 5
    assert [row["new_tuples"] for row in rows()] == [3, 2, 2, 1, 1]


def test_the_least_is_found_among_points_that_differ_in_the_batch_size_alone():
    more = [above_least(TIME).read(row).value for row in rows()]
    assert more == pytest.approx([1 / 0.775 - 1, 0.8 / 0.775 - 1, 0, 0, 0.5])


def test_a_point_without_others_of_its_series_is_not_the_least_of_anything():
    alone = rows([(1, 32), (1, 64)])
    assert [above_least(TIME).read(row) for row in alone] == [None, None]
    assert not [line for line in sweep_lines(alone) if line.startswith("Least")]


def test_what_was_not_measured_has_no_row_and_an_estimate_is_said_to_be_one():
    found = rows([(1, 32)], whole=False)
    assert [(row["model"], row["time_is_estimate"]) for row in found] == [(NAMES[1, 32], True)]
    assert "1.00 s ± 2.0% (estimate)" in "\n".join(sweep_lines(found))
    assert found[0]["energy_is_estimate"] is None


def test_the_text_names_the_most_frugal_batch_sizes_and_those_as_good():
    lines = sweep_lines(rows(watts=50, half=0.05))
    assert lines[0] == "Sweep net: 5 models of 15 operator tuples, 9 of them distinct"
    unwrapped = "\n".join(lines).replace("\n  ", " ").splitlines()
    found = [line for line in unwrapped if line.startswith("Least")]
    as_good = "; within noise: batch size 2."
    assert found == [
        f"Least time per sample at size=32: batch size 4, 775 ms ± 5.0%{as_good}",
        f"Least energy per sample at size=32: batch size 4, 38.8 J ± 5.0%{as_good}",
        "Least time per sample at size=64: batch size 1, 2.00 s ± 5.0%.",
        "Least energy per sample at size=64: batch size 1, 100 J ± 5.0%.",
    ]


def test_each_target_has_its_own_table():
    comparison = [compared(p, target=target) for target in ("cpu", "gpu") for p in SECONDS]
    lines = sweep_lines(sweep_rows([SWEEP], [], comparison, map(tuples, SECONDS)))
    assert [line for line in lines if line.startswith("Sweep")] == [
        f"Sweep net on {target}: 5 models of 15 operator tuples, 9 of them distinct"
        for target in ("cpu", "gpu")
    ]


def test_a_sample_has_products_of_energy_and_time():
    row = rows(watts=50)[1]
    time_s, energy_j = row["sample_time_s"], row["sample_energy_j"]
    assert row["sample_edp_js"] == pytest.approx(energy_j * time_s)
    assert row["sample_ed2p_js2"] == pytest.approx(energy_j * time_s**2)
    assert rows()[1]["sample_edp_js"] is None


def test_without_sweeps_there_is_no_text():
    assert sweep_lines([]) == []


THREADS = Sweep("cpu", {f"cpu[threads={n}]": {"threads": n} for n in (1, 2)})


def on_threads(*sweeps, points=((1, 32), (2, 32))):
    """Two threads take two thirds of the time of one."""
    comparison = []
    for target, point in THREADS.points.items():
        for row in (compared(each, target=target) for each in points):
            for name, value in row.items():
                if name.endswith("_s") and value and point["threads"] == 2:
                    row[name] = value / 1.5
            comparison.append(row)
    return sweep_rows(sweeps, [THREADS], comparison, map(tuples, points))


def test_points_of_targets_are_compared_with_one_another_as_batch_sizes_are():
    found = on_threads(SWEEP)
    assert [json.loads(row["target_point"]) for row in found] == [
        {"threads": 1},
        {"threads": 2},
    ] * 2
    assert [above_least(TIME).read(row).value for row in found] == pytest.approx(
        [1.5 / 0.8 - 1, 1 / 0.8 - 1, 0.5, 0]
    )
    lines = sweep_lines(found)
    assert lines[0] == "Sweep net: 2 models of 6 operator tuples, 5 of them distinct, on 2 targets"
    assert lines[2].split()[:3] == ["batch", "size", "threads"]
    assert lines[-1] == (
        "Least time per sample at size=32: batch size 2 with threads=2, 533 ms ± 2.0%."
    )


def test_each_target_measures_a_tuple_that_is_new_to_it():
    assert [row["new_tuples"] for row in on_threads(SWEEP)] == [3, 3, 2, 2]


def test_a_model_without_axes_has_the_points_of_its_targets():
    found = on_threads(points=[(1, 32)])
    assert [(row["sweep"], row["target"]) for row in found] == [
        (NAMES[1, 32], target) for target in THREADS.points
    ]
    assert sweep_lines(found)[-1] == "Least time per sample: threads=2, 667 ms ± 2.0%."
    plain = [compared((1, 32), target="local")]
    assert sweep_rows([], [THREADS], plain, map(tuples, [(1, 32)])) == []


def test_a_target_beside_points_of_its_name_has_its_own_table():
    comparison = [compared((1, 32), target=target) for target in ("cpu", *THREADS.points)]
    lines = sweep_lines(sweep_rows([SWEEP], [THREADS], comparison, map(tuples, SECONDS)))
    assert [line for line in lines if line.startswith("Sweep")] == [
        "Sweep net on cpu: 1 model of 3 operator tuples, 3 of them distinct",
        "Sweep net on cpu[threads]: 1 model of 3 operator tuples, 3 of them distinct, on 2 targets",
    ]


def of_batches(costs_s, half=0.02):
    """Lines of a sweep over batch sizes of these costs."""
    sweep = Sweep("net", {f"net[batch={size}]": {"batch": size} for size in costs_s})
    comparison, models = [], []
    for size, seconds in costs_s.items():
        found = seconds and Estimate(seconds, seconds * (1 - half), seconds * (1 + half))
        row = {**compared((1, 32)), "model": f"net[batch={size}]", "batch_size": size}
        row |= TIME.of("estimate").columns(found)
        comparison.append(row | TIME.of("end_to_end").columns(found))
        model = ModelTuples(row["model"], (), (), None, "2.15")
        model.__dict__["kernel_ids"] = frozenset(["shared"])
        models.append(model)
    return sweep_rows([sweep], [], comparison, models)


def test_a_sweep_says_where_the_batch_size_leaves_its_floor():
    found = of_batches({1: 1.1, 2: 1.2, 4: 1.4, 8: 1.8, 32: 4.2})
    assert fixed(TIME).read(found[0]).value == pytest.approx(1)
    assert marginal(TIME).read(found[0]).value == pytest.approx(0.1)
    text = " ".join(" ".join(sweep_lines(found)).split())
    assert re.search(r"Time: 1\.0+ s ± [\d.]+% for an iteration, and 100 ms ± ", text)
    assert "for each sample; equal at batch size 10 [" in text


def test_the_line_of_a_target_is_through_its_own_points_whatever_its_axes_are_called():
    sizes, targets = (1, 2, 4), {"cpu[n=1]": 1.0, "cpu[n=2]": 1.03}
    sweep = Sweep("net", {f"net[n={size}]": {"n": size} for size in sizes})
    target_sweep = Sweep("cpu", {name: {"n": n} for n, name in enumerate(targets, 1)})
    comparison, models = [], []
    for size in sizes:
        for target, each in targets.items():
            seconds = 1 + each * size
            found = Estimate(seconds, seconds * 0.98, seconds * 1.02)
            row = {
                **compared((1, 32), target=target),
                "batch_size": size,
                "model": f"net[n={size}]",
            }
            comparison.append(row | TIME.of("end_to_end").columns(found))
        model = ModelTuples(f"net[n={size}]", (), (), None, "2.15")
        model.__dict__["kernel_ids"] = frozenset(["shared"])
        models.append(model)
    for row in sweep_rows([sweep], [target_sweep], comparison, models):
        assert marginal(TIME).read(row).value == pytest.approx(targets[row["target"]])


def test_a_sweep_without_a_line_has_no_sentence_about_it():
    assert "Time: 0 ± " in " ".join(sweep_lines(of_batches({1: 1, 2: 2, 4: 4})))
    curved = of_batches({1: 1.0, 2: 1.0, 4: 5.0, 8: 5.1})
    assert fixed(TIME).read(curved[0]) is None
    assert "for each sample" not in " ".join(sweep_lines(curved))


def operator_rows(**columns):
    """A sweep of an operator without a model over the number of its channels: one of two failed."""
    sweep = Sweep("relu", {f"relu[c={c}]": {"c": c} for c in (1, 2)})
    second = {"time_reason": "error: not for 2", "flags": None, TIME.run_sd: None}
    rows_ = []
    for number, name in enumerate(sweep.points, 1):
        row = {"model": name, "target": "local", "batch_size": None, "tuple_id": name}
        row |= {"flops": None, "bytes": number, "device_name": "CPU", "energy_reason": "no meter"}
        row |= {
            "time_reason": None,
            "flags": ["disturbed"],
            "runs": 1,
            TIME.run_sd: 0.03,
            **columns,
        }
        cost = Estimate(1.0, 0.9, 1.1) if number == 1 else None
        row |= TIME.of("estimate").columns(cost) | ENERGY.of("estimate").columns(None)
        row |= TIME.of("end_to_end").columns(None) | ENERGY.of("end_to_end").columns(None)
        row |= {"end_to_end_measurements": None}
        rows_.append(row | (second if number == 2 else {}))
    models = [ModelTuples(name, (), (), None, "2.15") for name in sweep.points]
    for model in models:
        model.__dict__["kernel_ids"] = frozenset([model.model])
    return sweep_rows([sweep], [], rows_, models)


def test_flags_stand_beside_the_cost_and_are_explained_without_a_model():
    lines = sweep_lines(operator_rows())
    assert [line.split()[-1] for line in lines if line.startswith(("1 ", "2 "))] == [
        "disturbed",
        "-",
    ]
    text = " ".join(lines)
    assert "disturbed: interference slowed the core" in text
    assert "±: half of the 95 % interval. Runs of an operator are taken to vary by 3.0%" in text
    assert "That is much" not in text
    varied = " ".join(" ".join(sweep_lines(operator_rows(**{TIME.run_sd: 0.2}))).split())
    assert (
        "Runs of an operator are taken to vary by 20.0% (standard deviation). That is much"
        in varied
    )
    of_model = sweep_lines(rows())
    assert [line.split()[-1] for line in of_model if line.startswith("1 ")] == ["drifting"] * 2
    assert "drifting:" not in " ".join(of_model)


def test_a_point_without_a_cost_says_why():
    found = operator_rows()
    assert [(row["time_reason"], row["energy_reason"]) for row in found] == [
        (None, "no meter"),
        ("error: not for 2", "no meter"),
    ]
    assert "No time of c=2: error: not for 2." in sweep_lines(found)
    assert rows()[0]["energy_reason"] == "no meter"


def test_the_least_along_whole_numbers_is_a_whole_number():
    lines = " ".join(sweep_lines(of_batches({1: 2.0, 2: 2.4, 4: 4.4, 8: 15.2})))
    found = re.search(
        r"Time per sample, on a curve along batch: least at batch=(\d+) \[(.*?)\]", lines
    )
    assert 2 <= int(found[1]) <= 4
    assert found[2] == "2, 8"


def test_a_batch_size_that_was_not_measured_is_not_on_the_line():
    sizes = {1: 1.1, 2: 1.2, 4: 1.4, 8: 1.8}
    assert "100 ms ± " in " ".join(sweep_lines(of_batches(sizes | {1: None})))
    two = " ".join(sweep_lines(of_batches(sizes | {1: None, 2: None})))
    assert "for each sample" not in two


def test_costs_that_hardly_grow_with_the_batch_size_have_no_batch_size_of_a_floor():
    flat = " ".join(" ".join(sweep_lines(of_batches({1: 1.02, 2: 1.0, 4: 1.01, 8: 1.0}))).split())
    assert re.search(r"Time: 1\.0\d+ s ± [\d.]+% for an iteration, and -\d ms ± ", flat)
    assert "equal at" not in flat


def along_sizes(costs_s):
    """Lines of a sweep over the size of an image, whose costs are known to 2 %."""
    sweep = Sweep("net", {f"net[size={size}]": {"size": size} for size in costs_s})
    rows_ = []
    for size, seconds in costs_s.items():
        found = Estimate(seconds, seconds * 0.98, seconds * 1.02)
        row = {**compared((1, 32)), "model": f"net[size={size}]", "batch_size": 1}
        rows_.append(row | TIME.of("end_to_end").columns(found))
    models = [ModelTuples(row["model"], (), (), None, "2.15") for row in rows_]
    for model in models:
        model.__dict__["kernel_ids"] = frozenset()
    return " ".join(" ".join(sweep_lines(sweep_rows([sweep], [], rows_, models))).split())


def test_a_sweep_says_from_which_size_on_a_cost_leaves_its_floor():
    assert re.search(
        r"Time: 10\.\d+ s ± [\d.]+%, and a part in proportion to the square of size; equal at "
        r"size=100 \[9\d, 10\d\]\.",
        along_sizes({size: 10 + (size / 100) ** 2 * 10 for size in (50, 100, 200, 400)}),
    )
    assert "a part in proportion to size." in along_sizes({1: 1, 2: 2, 4: 4})
    for costs_s in (
        {1: 4, 2: 3.5, 4: 2.5},
        {1: 1, 2: 1.01, 4: 1},
        {1: 1, 2: 32, 4: 1024, 8: 32768},
    ):
        assert "in proportion" not in along_sizes(costs_s)
