"""The sum over operators is the sum, or it is null and says why."""

import dataclasses
import json
import math
import re
from datetime import UTC, datetime

import pytest
from opcost.costs.call_overhead import cold_calls
from opcost.costs.comparison import compare_study
from opcost.costs.estimate import ModelEstimate
from opcost.costs.estimate_columns import estimate_columns
from opcost.costs.headline import headline
from opcost.costs.terms import terms_of
from opcost.costs.trust import trust
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.report.picture import draw
from opcost.rows.quantities import TIME
from opcost.rows.runs import ModelRatio
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.manifest import collect
from opcost.tuples.parsing import parse

from tests.comparisons import FAILED, OVERHEAD, compared, noise, other_models, row, summary


def test_each_tuple_counts_as_often_as_it_is_called(compare):
    comparison, _ = compare()
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["end_to_end_time_s"] == 5e-3
    assert comparison["time_relative_error"] == pytest.approx(-0.2)
    assert (comparison["calls"], comparison["view_calls"], comparison["tuples"]) == (4, 1, 3)
    assert comparison["time_reason"] is None


@pytest.mark.parametrize("core_cache_bytes", [2**30, 3000])
def test_the_overhead_of_calls_is_in_the_estimate_and_stated_apart(
    compare, tiny_tuples, core_cache_bytes
):
    comparison, _ = compare(**OVERHEAD, core_cache_bytes=core_cache_bytes)
    cold = sum(cold_calls(tiny_tuples[1], core_cache_bytes))
    assert (cold > 0) == (core_cache_bytes == 3000)
    overhead_s = (5 - cold) * 1e-5 + cold * 1e-4 + 1e-6
    assert comparison["cold_calls"] == cold
    assert comparison["view_calls"] == 1
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert comparison["overhead_time_s"] == pytest.approx(overhead_s)
    assert comparison["estimate_time_s"] == pytest.approx(4e-3 + overhead_s)
    assert "Call overhead: Python, dispatch" in summary([comparison], [])


@pytest.mark.parametrize("core_cache_bytes", [2**30, 3000])
def test_functions_and_views_are_no_module_calls_of_their_own(tiny_tuples, core_cache_bytes):
    cnn = tiny_tuples[1]
    code_s = sum(cold_calls(cnn, core_cache_bytes)) * (1e-4 - 1e-5)
    overheads_s = []
    for paths in (["a", "b", "c", "d", "e"], ["a"] * 5):
        calls = tuple(
            call._replace(module_path=path) for call, path in zip(cnn.calls, paths, strict=True)
        )
        comparison, _ = compared(
            dataclasses.replace(cnn, calls=calls), **OVERHEAD, core_cache_bytes=core_cache_bytes
        )
        overheads_s.append(comparison["overhead_time_s"])
    view_s = 1e-6
    assert overheads_s == pytest.approx([5e-5 + code_s + view_s, 1e-5 + code_s + view_s])


def test_an_overhead_that_was_measured_under_disturbances_is_said_to_be(compare):
    comparison, _ = compare(**OVERHEAD, core_cache_bytes=0)
    disturbed, _ = compare(**OVERHEAD | {"overhead_disturbed": True}, core_cache_bytes=0)
    said = "There was interference throughout the measurement of call overhead"
    assert said not in summary([comparison], [])
    assert said in summary([disturbed], [])


def test_where_the_device_sets_the_pace_there_is_no_overhead(compare):
    comparison, _ = compare()
    assert (comparison["overhead_time_s"], comparison["cold_calls"]) == (0, None)
    assert "overhead" not in summary([comparison], [])


def test_the_interval_of_runs_of_a_whole_that_disagree_holds_all_of_them(compare):
    twice = {"time_s": 7e-3, "time_ci_low_s": 7e-3 * 0.99, "time_ci_high_s": 7e-3 * 1.01}
    once, _ = compare()
    comparison, _ = compare(again=[twice | {"flags": ["drifting"], "converged": False}])
    assert comparison["end_to_end_time_s"] == pytest.approx(35e-6**0.5)
    assert (once["end_to_end_measurements"], comparison["end_to_end_measurements"]) == (1, 2)
    limits_s = (comparison["end_to_end_time_ci_low_s"], comparison["end_to_end_time_ci_high_s"])
    assert limits_s[0] <= 5e-3 < 7e-3 <= limits_s[1]
    assert comparison["end_to_end_flags"] == ["drifting", "runs_disagree"]


def test_a_copied_run_of_a_whole_counts_once(compare):
    began = {"started_at": datetime(2026, 1, 1, tzinfo=UTC)}
    once, _ = compare(reference=began)
    copied, _ = compare(reference=began, again=[{}, {}])
    assert copied == once


def test_a_disturbed_run_of_a_whole_counts_only_where_there_is_no_other(compare):
    once, _ = compare()
    comparison, _ = compare(again=[{"time_s": 7e-3, "flags": ["disturbed"], "converged": False}])
    assert comparison["end_to_end_disturbed_s"] == [7e-3]
    for name in (
        "end_to_end_time_s",
        "end_to_end_flags",
        "time_relative_error",
    ):
        assert comparison[name] == once[name]


def test_the_energy_of_a_disturbed_run_counts_only_where_there_is_no_other(compare):
    once, _ = compare(power_w=100.0)
    twice, _ = compare(
        power_w=100.0, again=[{"time_s": 7e-3, "energy_j": 2.0, "flags": ["disturbed"]}]
    )
    assert twice["end_to_end_energy_j"] == once["end_to_end_energy_j"]


def test_disturbed_runs_of_tuples_that_are_left_out_are_counted(compare):
    operators = {"conv2d": {"disturbed_runs": 2}, "linear": {"disturbed_runs": 1}}
    comparison, _ = compare(operators=operators)
    assert comparison["disturbed_runs"] == 3
    text = summary([comparison], [])
    assert "and others not: runs of operator tuples: 3 of tiny_cnn (opcost retry" in text


def test_a_whole_without_energy_in_one_measurement_has_that_of_the_other(compare):
    without = {"energy_j": None, "energy_reason": "simulated: no reading"}
    comparison, _ = compare(power_w=100.0, again=[without])
    assert comparison["end_to_end_energy_j"] == pytest.approx(5e-3 * 100.0)
    assert comparison["energy_reason"] is None


def test_a_whole_that_failed_once_is_known_by_the_other_measurement(compare):
    comparison, _ = compare(again=[FAILED])
    assert comparison["end_to_end_time_s"] == pytest.approx(5e-3)
    assert comparison["end_to_end_measurements"] == 1
    assert comparison["time_reason"] is None


def test_kernels_that_differ_on_the_device_leave_no_sum_and_are_named(compare):
    differing = {"flags": ["calls_differ"], "differing_calls": ["-1 relu(4)", "+2 reshape(4x4)"]}
    comparison, _ = compare(reference=differing, again=[{"differing_calls": []}])
    assert comparison["estimate_time_s"] is None
    assert comparison["differing_calls"] == differing["differing_calls"]
    assert comparison["end_to_end_time_s"] == pytest.approx(5e-3)
    text = summary([comparison], [])
    assert "No sum of time: on this device, the model launched other kernels than were" in text
    assert "(+), or the reverse (-): -1 relu(4), +2 reshape(4x4)." in text
    assert "Flagged calls_differ: whole model of tiny_cnn" in text


def test_calls_that_were_compared_and_are_equal_leave_a_sum_and_no_caveat(compare):
    comparison, _ = compare(reference={"differing_calls": []})
    assert comparison["estimate_time_s"] is not None
    assert "on the device" not in summary([comparison], [])


def test_where_sizes_depend_on_values_the_sum_is_for_the_extractions(tiny_tuples):
    _, cnn = tiny_tuples
    dependent = [dataclasses.replace(record, value_dependent=True) for record in cnn.tuples]
    cnn = dataclasses.replace(cnn, tuples=tuple(dependent))
    rows = [row(tuple_id=tuple_id) for tuple_id in cnn.by_id]
    whole = row(5e-3) | {"model": "tiny_cnn", "differing_calls": ["+1 topk(8)"]}
    [comparison], *_ = compare_study(
        {"local": [cnn]}, rows, [whole], collect([cnn], None), {"local": noise()}
    )
    assert comparison["estimate_time_s"] is not None
    assert "+1 topk(8)" in summary([comparison], [])


def test_a_whole_that_was_measured_under_two_conditions_is_not_compared(compare):
    comparison, _ = compare(again=[{"torch_version": "2.16.0"}])
    assert comparison["time_relative_error"] is None
    assert "torch_version 2.15.0 (4 rows) and 2.16.0 (1 row)" in comparison["time_reason"]


class Counted(dict):
    """A row that counts how often one is read."""

    reads = 0

    def __getitem__(self, name):
        Counted.reads += 1
        return super().__getitem__(name)


def test_the_work_of_a_sum_goes_with_its_operators(tiny_tuples):
    _, cnn = tiny_tuples
    rows = {
        record.operator_tuple.tuple_id: Counted(row(power_w=100.0, **OVERHEAD, core_cache_bytes=0))
        for record in cnn.tuples
    }
    terms = terms_of(cnn, rows, set())

    def reads(copies):
        before = Counted.reads
        estimate_columns(ModelEstimate(cnn, terms * copies))
        return Counted.reads - before

    assert reads(200) <= 2.1 * reads(100)


def test_errors_of_one_tuple_add_up_and_errors_of_two_in_quadrature(compare):
    comparison, _ = compare(of_target=noise())
    half_width = comparison["estimate_time_ci_high_s"] - comparison["estimate_time_s"]
    assert half_width == pytest.approx(1e-5 * (2**2 + 1 + 1) ** 0.5, rel=1e-2)


def test_run_to_run_variation_widens_the_intervals(compare):
    exact, _ = compare(of_target=noise())
    varying, _ = compare(of_target=noise(time=0.1))
    assert varying["time_run_sd"] == 0.1
    half_width = math.log(varying["end_to_end_time_ci_high_s"] / 5e-3)
    assert half_width == pytest.approx(math.hypot(0.01, 1.96 * 0.1), rel=1e-2)
    assert varying["estimate_time_s"] == exact["estimate_time_s"]
    assert varying["time_relative_error_ci_high"] > exact["time_relative_error_ci_high"] + 0.1
    assert "Runs of an operator are taken to vary by 10.0%" in summary([varying], [])


@pytest.mark.parametrize(("variation", "advised"), [(0.05, False), (0.3, True)])
def test_a_summary_of_what_hardly_reproduces_says_what_to_do(compare, variation, advised):
    comparison, _ = compare(of_target=noise(time=variation))
    assert ("run again when it is idle" in summary([comparison], [])) == advised


@pytest.mark.parametrize("any_of_kind", [False, True])
def test_cards_of_a_kind_add_up_only_where_any_of_them_may_measure(compare, any_of_kind):
    text = json.dumps({"target": {"any_of_kind": any_of_kind}})
    conditions = {"conditions_json": text, "device_uuid_hash": "one"}
    operators = dict.fromkeys(("conv2d", "relu", "linear"), conditions)
    operators["relu"] = {**conditions, "device_uuid_hash": "another"}
    comparison, _ = compare(operators=operators, reference=conditions)
    assert (comparison["estimate_time_s"] is not None) == any_of_kind
    reason = (
        "measured under different conditions: device_uuid_hash another (1 row) and one (3 rows)"
    )
    assert any_of_kind or comparison["time_reason"].startswith(reason)
    assert not any_of_kind or comparison["time_reason"] is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"operators": {"relu": FAILED}}, "1 of 3 operator tuples failed (relu(1x3x8x8): out_of"),
        ({"whitelist": ["conv2d", "linear"]}, "1 of 3 operator tuples are filtered out"),
        (
            {"operators": {"relu": {"torch_version": "2.11.0"}}},
            "measured under different conditions: torch_version 2.11.0 (1 row) and 2.15.0 (3 rows)",
        ),
        (
            {"reference": {"device_name": "Other"}},
            "measured under different conditions: device_name Other (1 row) and Simulated (3 rows)",
        ),
        (
            {"operators": {"relu": {"flags": ["point_changed"]}}},
            "another program changed the power limit or a clock during 1 of 3 measurements",
        ),
    ],
    ids=["failed", "filtered", "another torch", "another device", "another point"],
)
def test_a_sum_that_is_not_the_answer_is_null_with_the_reason(compare, arguments, reason):
    comparison, shares = compare(**arguments)
    assert comparison["estimate_time_s"] is None
    assert comparison["time_relative_error"] is None
    assert summary([comparison], shares)
    assert comparison["time_reason"].startswith(reason)
    mixed = "different conditions" in reason
    assert (comparison["partial_time_s"] is None) == mixed
    assert ("out of the folder of local" in comparison["time_reason"]) == mixed


@pytest.mark.parametrize("factory", ["torch.nn:Identity", "torch.nn:Flatten"])
def test_a_model_without_kernels_has_no_sum_and_keeps_no_other_model_from_theirs(
    tiny_tuples, tmp_path, factory
):
    definition = ModelDefinition("views", (InputSpec((2, 3, 4)),), factory=factory)
    models = [extract_model_tuples(definition), tiny_tuples[1]]
    manifest = collect(models, None)
    rows = [
        row(**OVERHEAD, core_cache_bytes=0, tuple_id=tuple_id)
        for tuple_id, entry in manifest.items()
        if entry["excluded"] is None
    ]
    wholes = [row(5e-3, 100.0) | {"model": model.model} for model in models]
    [views, cnn], shares, *_ = compare_study(
        {"local": models}, rows, wholes, manifest, {"local": noise()}
    )
    nothing = ("estimate_time_s", "estimate_energy_j", "time_relative_error", "overhead_time_s")
    assert [views[name] for name in nothing] == [None] * 4
    assert views["time_reason"].startswith("the model launches no kernel")
    assert views["energy_reason"] == views["time_reason"]
    assert views["end_to_end_time_s"] == 5e-3
    assert cnn["time_relative_error"] is not None
    text = summary([views, cnn], shares)
    assert "No sum of time for views: the model launches no kernel" in text
    assert "Runs of an operator are taken to vary by 0.0%" in text
    assert "tiny_cnn: conv2d" in text
    draw(tmp_path / "cost.svg", [views, cnn], shares)


def test_what_is_missing_is_stated(compare):
    comparison, shares = compare(operators={"conv2d": FAILED})
    assert comparison["failed_tuples"] == 1
    assert comparison["coverage_flops"] == pytest.approx(1536 / (2 * 64 * 3 * 27 + 1536))
    assert comparison["partial_time_s"] == pytest.approx(2e-3)
    [conv] = [share for share in shares if share["operator"] == "aten.conv2d.default"]
    assert (conv["time_s"], conv["measured_tuples"], conv["tuples"]) == (None, 0, 1)


def other_rows(expression, sizes):
    """The rows of an operator at other sizes, 1 ms each."""
    tuples = [parse(expression.format(size)) for size in sizes]
    return [
        row(**OVERHEAD, tuple_id=each.tuple_id, core_cache_bytes=0)
        | {"canonical_json": each.canonical_json, "description": str(each)}
        | {"flops": 16 * size, "bytes": 36 * size}
        for size, each in zip(sizes, tuples, strict=True)
    ]


def test_what_is_missing_is_predicted_and_labelled(compare):
    linears = other_rows("linear(1x{0}, 8x{0}, 8)", range(96, 416, 20))
    arguments = dict(**OVERHEAD, core_cache_bytes=0, without=["linear"], power_w=None)
    comparison, shares = compare(**arguments, predict_from=lambda: {"local": linears})
    assert comparison["predicted_tuples"] == 1
    assert comparison["measured_tuples"] == comparison["tuples"] - 1
    assert comparison["predicted_share"] == pytest.approx(0.25, rel=0.1)
    assert comparison["time_relative_error"] is not None
    [linear] = [share for share in shares if share["operator"] == "aten.linear.default"]
    assert (linear["measured_tuples"], linear["predicted_tuples"]) == (0, 1)
    assert linear["time_s"] == pytest.approx(1e-3, rel=0.1)
    text = summary([comparison], shares)
    assert "Predicted from other operators, not measured: 25% of tiny_cnn" in text
    assert "25% predicted" in str(trust(comparison))


def test_where_one_operator_cannot_be_predicted_nothing_is_and_the_reason_is_said(compare):
    linears = other_rows("linear(1x{0}, 8x{0}, 8)", range(96, 416, 20))
    arguments = dict(**OVERHEAD, core_cache_bytes=0, without=["linear", "conv2d"])
    comparison, _ = compare(**arguments, predict_from=lambda: {"local": linears})
    assert comparison["estimate_time_s"] is None
    assert comparison["predicted_tuples"] == 0
    assert comparison["partial_time_s"] == pytest.approx(1e-3)
    assert comparison["time_reason"] == (
        "2 of 3 operator tuples are not measured, nor predicted (conv2d: none of the 16 tuples "
        "measured there is of its operator)"
    )


def test_what_a_study_leaves_out_on_purpose_is_not_predicted(compare):
    linears = other_rows("linear(1x{0}, 8x{0}, 8)", range(96, 416, 20))
    comparison, _ = compare(whitelist=["conv2d", "relu"], predict_from=lambda: {"local": linears})
    assert comparison["predicted_tuples"] == 0
    assert comparison["time_reason"] == "1 of 3 operator tuples are filtered out"


def test_operators_that_alone_take_longer_than_the_whole_are_said_to_be_disturbed(compare):
    comparison, shares = compare(operators={"conv2d": FAILED})
    assert "more than the measured model" not in summary([comparison], shares)
    short = {"end_to_end_time_s": 1e-3, "end_to_end_time_ci_high_s": 1.1e-3}
    assert (
        "more than the measured model, 1.00 ms: the operators or the model were disturbed"
        in summary([comparison | short], shares)
    )


@pytest.mark.parametrize("told", ["2.0 ms", "too noisy to say"])
def test_what_is_too_noisy_in_a_sweep_is_explained_once(compare, told):
    comparison, shares = compare()
    text = summary([comparison], shares, further=[[told], [], [told]])
    assert text.count("It narrows with runs on a quiet machine") == (told == "too noisy to say")


def test_a_failed_whole_model_leaves_the_estimate(compare):
    comparison, _ = compare(reference=FAILED)
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["end_to_end_time_s"] is None
    assert comparison["time_relative_error"] is None
    assert "it was not measured end to end: out_of_memory" in comparison["time_reason"]


def test_energy_is_that_of_the_operators_where_calls_cost_nothing_beyond_them(compare):
    comparison, _ = compare(power_w=100.0)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100)
    assert comparison["end_to_end_energy_j"] == pytest.approx(0.5)
    assert comparison["energy_reason"] is None


def test_in_the_overhead_of_calls_a_processor_takes_the_power_of_its_operators(compare):
    comparison, _ = compare(power_w=100.0, **OVERHEAD, core_cache_bytes=0)
    assert comparison["estimate_energy_j"] == pytest.approx(comparison["estimate_time_s"] * 100)


def test_energy_that_was_not_measured_is_null_with_the_reason(compare):
    comparison, _ = compare()
    assert comparison["estimate_energy_j"] is None
    assert comparison["energy_reason"] == "simulated: no meter"


def test_one_operator_without_energy_leaves_no_smaller_sum(compare):
    without = {"linear": {"energy_j": None, "power_w": None}}
    comparison, _ = compare(operators=without, power_w=100.0)
    assert comparison["estimate_energy_j"] is None
    assert comparison["energy_reason"] == "1 of 3 operator tuples have no energy"


def test_shares_are_of_the_whole_model_and_views_are_listed_apart(compare):
    _, shares = compare()
    by_operator = {share["operator"]: share for share in shares}
    conv = by_operator["aten.conv2d.default"]
    assert shares[0] == conv
    assert (conv["calls"], conv["tuples"]) == (2, 1)
    view = by_operator["aten.flatten.using_ints"]
    assert shares[-1] == view
    assert (view["launches_kernel"], view["calls"], view["time_s"]) == (False, 1, None)


def test_people_read_a_table_with_every_caveat(compare):
    comparison, shares = compare(
        operators={"relu": {"flags": ["drifting"], "converged": False}},
        reference={"flags": ["disturbed"]},
        of_target=noise(),
    )
    text = summary([comparison], shares)
    assert "4.000 ms ±0.6% - 5.00 ms ± 1.0%" in text
    assert "5.00 ms ± 1.0%" in text
    assert "-20.0% ±" in text
    assert "No energy: simulated: no meter." in text
    assert "Flagged disturbed: whole model of tiny_cnn (interference slowed the core" in text
    assert "Flagged drifting: tuples: 1 of tiny_cnn (" in text
    assert "The interval of an estimate lacks the model error" in text
    assert "tiny_cnn: conv2d 50%, relu 25%, linear 25%" in text


def test_an_estimate_is_as_uncertain_as_measurement_and_model_error(compare):
    alone, _ = compare(of_target=noise())
    both, _ = compare(of_target=noise(*other_models(1.02, 1.02, 1.02)))
    assert both["estimate_time_s"] == alone["estimate_time_s"]
    assert both["time_measurement_half_width"] == alone["time_measurement_half_width"]
    assert alone["time_model_error_half_width"] is alone["model_error_models"] is None
    assert (both["energy_model_error_half_width"], both["model_error_models"]) == (None, 3)
    half = both["estimate_time_ci_high_s"] / both["estimate_time_s"] - 1
    parts = (both["time_measurement_half_width"], both["time_model_error_half_width"])
    assert max(parts) < half == pytest.approx(math.hypot(*parts), rel=0.05)
    widths = [each["time_relative_error_ci_high"] + 0.2 for each in (alone, both)]
    assert 0 < 3 * widths[0] < widths[1] < 0.1


def test_a_model_that_is_off_by_more_than_others_does_not_excuse_itself(compare):
    own = ModelRatio("tiny_cnn", False, math.log(0.8), None)
    comparison, shares = compare(of_target=noise(own, *other_models(1.02, 1.02, 1.02)))
    assert comparison["time_relative_error_ci_high"] < -0.1
    text = summary([comparison], shares)
    assert "measurement, model error: " in text
    assert "lacks the model error" not in text


def test_a_time_of_which_every_run_was_disturbed_is_marked(compare):
    quiet, _ = compare()
    disturbed, _ = compare(reference={"flags": ["disturbed"]})
    assert "(disturbed)" not in summary([quiet], [])
    assert "% (disturbed)" in summary([disturbed], [])
    assert not headline(disturbed).is_estimate(TIME)


def test_models_that_are_less_precise_than_requested_are_named(compare):
    comparison, _ = compare(of_target=noise())  # the sum is within 0.6 %, the whole within 1 %
    rows = [comparison | {"requested_half_width": half} for half in (None, 0.01, 0.008)]
    assert all("Precision" not in summary([row], []) for row in rows[:2])
    assert "Precision: ±0.8% requested, ±1.0% reached by 1 model" in summary(rows[2:], [])


def test_of_many_models_caveats_name_those_they_matter_to_most(compare):
    comparison, _ = compare(reference={"flags": ["disturbed"]})
    rows = [
        comparison | {"model": f"m{n}", "flag_counts": {"drifting": n} if n else {}}
        for n in range(10)
    ]
    text = summary(rows, [])
    assert (
        "drifting: tuples: 4 of m4, 5 of m5, 6 of m6, 7 of m7, 8 of m8, 9 of m9, less of 3 others "
        "(" in text
    )
    assert "No energy for any model: simulated: no meter." in text
    assert "Flagged disturbed: whole model of m0, m1, m2, m3, m4, m5, 4 others (" in text


def test_the_targets_of_a_model_are_side_by_side(compare):
    comparison, shares = compare()
    other = comparison | {"target": "other", "end_to_end_time_s": 4e-3}
    text = summary([comparison, other], shares)
    local = r"tiny_cnn local 1x3x8x8 5.0\S+ ms \S+ \S+% 200\S*"
    assert re.search(rf"{local} tiny_cnn other 1x3x8x8 4.0", text)
    assert text.index("Target other") < text.index("tiny_cnn other") < text.index("Details of")


def test_energy_has_its_own_table(compare):
    text = summary(*[[part] if isinstance(part, dict) else part for part in compare(power_w=100)])
    assert "400 mJ" in text
    assert "No energy" not in text
    assert "may be too high, or too low, by the same 5%" in text


def test_without_energy_nothing_is_said_of_its_gain(compare):
    text = summary(*[[part] if isinstance(part, dict) else part for part in compare()])
    assert "gain" not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights_read_again": 0.917}, True),
        ({"weights_read_again": 0.02}, False),
        ({"weights_read_again": None}, False),
        ({"weights_read_again": 0.917, "cache_state": "warm"}, False),
    ],
)
def test_weights_that_later_calls_may_find_in_a_cache_are_a_caveat(compare, changes, said):
    comparison, shares = compare()
    text = " ".join(summary([comparison | changes], shares).split())
    assert ("too high. Read again, of all bytes of weights: 92%" in text) == said


def test_the_figure_shows_operators_and_the_whole(compare, tmp_path):
    comparison, shares = compare(power_w=100.0)
    draw(tmp_path / "a.svg", [comparison], shares)
    draw(tmp_path / "b.svg", [comparison], shares)
    text = (tmp_path / "a.svg").read_text()
    for label in ("conv2d", "linear", "end-to-end", "tiny_cnn", "energy of an iteration"):
        assert label in text
    assert "overhead" not in text
    assert text == (tmp_path / "b.svg").read_text()


def test_the_figure_shows_the_overhead_of_calls_where_there_is_one(compare, tmp_path):
    comparison, shares = compare(**OVERHEAD, core_cache_bytes=2**20)
    draw(tmp_path / "figure.svg", [comparison], shares)
    assert "call overhead" in (tmp_path / "figure.svg").read_text()
