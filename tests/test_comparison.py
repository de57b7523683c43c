"""The sum over operators is the sum, or it is null and says why."""

import dataclasses
import json
import math

import pytest
from opcost.costs.comparison import check_definitions, compare_study
from opcost.costs.estimate import ModelEstimate
from opcost.costs.figure import draw
from opcost.costs.summary import summarise
from opcost.costs.terms import terms_of
from opcost.errors import OpcostError
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows import comparability
from opcost.rows.quantities import HOST_TIME, OVERHEADS
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.manifest import collect

CONDITIONS = dict.fromkeys(comparability.COLUMNS) | {
    "device_name": "Simulated",
    "device_uuid_hash": None,
    "driver_version": None,
    "torch_version": "2.15.0",
    "protocol_version": 1,
    "conditions_json": "{}",
    "cache_state": "cold",
    "launch_mode": "eager",
}


def row(time_s=1e-3, power_w=None, **changes):
    """A measured row: 1 % either side in time, 2 % in power, and 20 W when idle."""
    energy_j = None if power_w is None else time_s * power_w
    return {
        **CONDITIONS,
        "target": "local",
        "status": "ok",
        "error": None,
        "time_s": time_s,
        "time_ci_low_s": time_s and time_s * 0.99,
        "time_ci_high_s": time_s and time_s * 1.01,
        "energy_j": energy_j,
        "energy_ci_low_j": None if energy_j is None else energy_j * 0.98,
        "energy_ci_high_j": None if energy_j is None else energy_j * 1.02,
        "energy_reason": "simulated: no meter" if power_w is None else None,
        "idle_power_w": None if power_w is None else 20.0,
        "converged": True,
        "flags": [],
        "sentinel_time_s": 1e-4,
        "call_overhead_s": None,
        "displaced_call_overhead_s": None,
        "spread": None,
        "differing_calls": None,
        **dict.fromkeys([*HOST_TIME.names, "host_spread"]),
        **changes,
    }


FAILED = {"status": "out_of_memory", "error": "too large", "time_s": None, "energy_j": None}


@pytest.fixture
def compare(tiny_tuples):
    """Compare tiny_cnn: two calls of conv2d, one of relu, one of linear, each 1 ms."""
    _, cnn = tiny_tuples

    def compare(
        operators=None, reference=None, whitelist=None, power_w=None, again=(), **every_operator
    ):
        manifest = collect([cnn], whitelist)
        rows = [
            row(power_w=power_w, tuple_id=record.operator_tuple.tuple_id, **every_operator)
            | (operators or {}).get(record.operator_tuple.name, {})
            for record in cnn.tuples
            if manifest[record.operator_tuple.tuple_id]["excluded"] is None
        ]
        whole = row(5e-3, power_w) | {"model": "tiny_cnn"} | (reference or {})
        wholes = [whole, *(whole | changes for changes in again)]
        [comparison], shares, *_ = compare_study([cnn], rows, wholes, manifest)
        return comparison, shares

    return compare


def test_each_tuple_counts_as_often_as_it_is_called(compare):
    comparison, _ = compare()
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["reference_time_s"] == 5e-3
    assert comparison["time_relative_error"] == pytest.approx(-0.2)
    assert comparison["coverage_time"] == pytest.approx(0.8)
    assert (comparison["calls"], comparison["view_calls"], comparison["tuples"]) == (4, 1, 3)
    assert comparison["time_reason"] is None


OVERHEAD = {
    f"{name}_overhead{limit}_s": seconds * factor
    for name, seconds in {"call": 1e-5, "displaced_call": 1e-4, "view_call": 1e-6}.items()
    for limit, factor in {"": 1.0, "_ci_low": 0.9, "_ci_high": 1.1}.items()
} | {"overhead_disturbed": False}


@pytest.mark.parametrize(
    ("core_cache_bytes", "displaced", "overhead_s"),
    [(2**30, 0, 5e-5 + 1e-6), (0, 4, 4e-4 + 1e-5 + 1e-6)],
)
def test_the_overhead_of_calls_is_in_the_estimate_and_stated_apart(
    compare, core_cache_bytes, displaced, overhead_s
):
    comparison, _ = compare(**OVERHEAD, core_cache_bytes=core_cache_bytes)
    assert (comparison["displaced_calls"], comparison["view_calls"]) == (displaced, 1)
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert comparison["overhead_time_s"] == pytest.approx(overhead_s)
    assert comparison["estimate_time_s"] == pytest.approx(4e-3 + overhead_s)
    assert "The sum contains call overhead" in summarise([comparison], [])


def test_an_overhead_that_was_measured_under_disturbances_is_said_to_be(compare):
    comparison, _ = compare(**OVERHEAD, core_cache_bytes=0)
    disturbed, _ = compare(**OVERHEAD | {"overhead_disturbed": True}, core_cache_bytes=0)
    said = "There was interference throughout the measurement of call overhead"
    assert said not in summarise([comparison], [])
    assert said in summarise([disturbed], [])


def test_where_the_device_sets_the_pace_there_is_no_overhead(compare):
    comparison, _ = compare()
    assert (comparison["overhead_time_s"], comparison["displaced_calls"]) == (0, None)
    assert "overhead" not in summarise([comparison], [])


def test_a_whole_that_was_measured_twice_counts_in_the_mean(compare):
    twice = {"time_s": 7e-3, "time_ci_low_s": 7e-3 * 0.99, "time_ci_high_s": 7e-3 * 1.01}
    once, _ = compare()
    comparison, _ = compare(again=[twice | {"flags": ["disturbed"], "converged": False}])
    assert comparison["reference_time_s"] == pytest.approx(6e-3)
    assert (once["reference_measurements"], comparison["reference_measurements"]) == (1, 2)
    half_width_s = math.hypot(5e-5, 7e-5) / 2
    assert comparison["reference_time_ci_high_s"] == pytest.approx(6e-3 + half_width_s)
    assert comparison["reference_flags"] == ["disturbed"]
    assert comparison["reference_converged"] is False


def test_a_whole_without_energy_in_one_measurement_has_that_of_the_other(compare):
    without = {"energy_j": None, "energy_reason": "simulated: no reading"}
    comparison, _ = compare(power_w=100.0, again=[without])
    assert comparison["reference_energy_j"] == pytest.approx(5e-3 * 100.0)
    assert comparison["energy_reason"] is None


def test_a_whole_that_failed_once_is_known_by_the_other_measurement(compare):
    comparison, _ = compare(again=[FAILED])
    assert comparison["reference_time_s"] == pytest.approx(5e-3)
    assert comparison["reference_measurements"] == 1
    assert comparison["time_reason"] is None


def test_kernels_that_differ_on_the_device_leave_no_sum_and_are_named(compare):
    differing = {"flags": ["calls_differ"], "differing_calls": ["-1 relu(4)", "+2 reshape(4x4)"]}
    comparison, _ = compare(reference=differing, again=[{"differing_calls": []}])
    assert comparison["estimate_time_s"] is None
    assert comparison["differing_calls"] == differing["differing_calls"]
    assert comparison["reference_time_s"] == pytest.approx(5e-3)
    text = summarise([comparison], [])
    assert "No time: on this device, the model launches other kernels than were extracted" in text
    assert "(+), or the reverse (-): -1 relu(4), +2 reshape(4x4)." in text
    assert "Whole models flagged calls_differ: tiny_cnn" in text


def test_calls_that_were_compared_and_are_equal_leave_a_sum_and_no_caveat(compare):
    comparison, _ = compare(reference={"differing_calls": []})
    assert comparison["estimate_time_s"] is not None
    assert "on the device" not in summarise([comparison], [])


def test_where_sizes_depend_on_values_the_sum_is_for_the_extractions(tiny_tuples):
    _, cnn = tiny_tuples
    dependent = [dataclasses.replace(record, value_dependent=True) for record in cnn.tuples]
    cnn = dataclasses.replace(cnn, tuples=tuple(dependent))
    rows = [row(tuple_id=tuple_id) for tuple_id in cnn.by_id]
    whole = row(5e-3) | {"model": "tiny_cnn", "differing_calls": ["+1 topk(8)"]}
    [comparison], *_ = compare_study([cnn], rows, [whole], collect([cnn], None))
    assert comparison["estimate_time_s"] is not None
    assert "+1 topk(8)" in summarise([comparison], [])


def test_a_whole_of_another_definition_than_the_operators_is_refused(tiny_tuples):
    _, cnn = tiny_tuples
    whole = row() | {"model": "tiny_cnn", "definition_json": cnn.definition.to_json()}
    check_definitions([cnn], [whole])
    edited = dataclasses.replace(cnn.definition, source_digest="0" * 16).to_json()
    with pytest.raises(OpcostError, match="model tiny_cnn was measured with another definition"):
        check_definitions([cnn], [whole, whole | {"definition_json": edited}])


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
        ModelEstimate(cnn, terms * copies).columns()
        return Counted.reads - before

    assert reads(200) <= 2.1 * reads(100)


def test_errors_of_one_tuple_add_up_and_errors_of_two_in_quadrature(compare):
    comparison, _ = compare()
    half_width = comparison["estimate_time_ci_high_s"] - comparison["estimate_time_s"]
    assert half_width == pytest.approx(1e-5 * (2**2 + 1 + 1) ** 0.5)


def test_what_does_not_reproduce_widens_the_intervals(compare):
    exact, _ = compare()
    noisy, _ = compare(spread=0.1)
    assert (exact["spread"], noisy["spread"]) == (None, 0.1)
    half_width = noisy["reference_time_ci_high_s"] - 5e-3
    assert half_width == pytest.approx(5e-3 * (0.01**2 + (1.96 * 0.1) ** 2) ** 0.5, 1e-3)
    assert noisy["estimate_time_s"] == exact["estimate_time_s"]
    assert noisy["time_relative_error_ci_high"] > exact["time_relative_error_ci_high"] + 0.1
    assert "with a spread of 10.0% between replicates" in summarise([noisy], [])


@pytest.mark.parametrize(("spread", "advised"), [(0.05, False), (0.3, True)])
def test_a_summary_of_what_hardly_reproduces_says_what_to_do(compare, spread, advised):
    comparison, _ = compare(spread=spread)
    assert ("run again when it is idle" in summarise([comparison], [])) == advised


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
    ],
    ids=["failed", "filtered", "another torch", "another device"],
)
def test_a_sum_that_is_not_the_answer_is_null_with_the_reason(compare, arguments, reason):
    comparison, _ = compare(**arguments)
    assert comparison["estimate_time_s"] is None
    assert comparison["time_relative_error"] is None
    assert comparison["time_reason"].startswith(reason)
    mixed = "different conditions" in reason
    assert (comparison["partial_time_s"] is None) == mixed
    assert ("opcost set-aside local" in comparison["time_reason"]) == mixed


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
    [views, cnn], shares, *_ = compare_study(models, rows, wholes, manifest)
    nothing = ("estimate_time_s", "estimate_energy_j", "time_relative_error", "overhead_time_s")
    assert [views[name] for name in nothing] == [None] * 4
    assert views["time_reason"].startswith("the model launches no kernel")
    assert views["energy_reason"] == views["time_reason"]
    assert views["reference_time_s"] == 5e-3
    assert cnn["time_relative_error"] is not None
    summary = summarise([views, cnn], shares)
    assert "No time for views: the model launches no kernel" in summary
    assert "views: no kernels" in summary
    draw(tmp_path / "cost.svg", [views, cnn], shares)


def test_what_is_missing_is_stated(compare):
    comparison, shares = compare(operators={"conv2d": FAILED})
    assert comparison["failed_tuples"] == 1
    assert comparison["coverage_calls"] == 0.5
    assert comparison["coverage_flops"] == pytest.approx(1536 / (2 * 64 * 3 * 27 + 1536))
    assert comparison["partial_time_s"] == pytest.approx(2e-3)
    [conv] = [share for share in shares if share["operator"] == "aten.conv2d.default"]
    assert (conv["time_s"], conv["measured_tuples"], conv["tuples"]) == (None, 0, 1)


def test_a_failed_whole_model_leaves_the_estimate(compare):
    comparison, _ = compare(reference=FAILED)
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["reference_time_s"] is None
    assert comparison["time_relative_error"] is None
    assert "the whole model was not measured: out_of_memory" in comparison["time_reason"]


def test_energy_is_that_of_the_operators_where_calls_cost_nothing_beyond_them(compare):
    comparison, _ = compare(power_w=100.0)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100)
    assert comparison["reference_energy_j"] == pytest.approx(0.5)
    assert comparison["energy_reason"] is None


def test_in_the_overhead_of_calls_a_processor_takes_the_power_of_its_operators(compare):
    comparison, _ = compare(power_w=100.0, **OVERHEAD, core_cache_bytes=0)
    assert comparison["estimate_energy_j"] == pytest.approx(comparison["estimate_time_s"] * 100)


def test_energy_that_was_not_measured_is_null_with_the_reason(compare):
    comparison, _ = compare()
    assert comparison["estimate_energy_j"] is None
    assert comparison["energy_reason"] == "simulated: no meter"


def test_shares_are_of_the_whole_model_and_views_are_listed_apart(compare):
    _, shares = compare()
    by_operator = {share["operator"]: share for share in shares}
    conv = by_operator["aten.conv2d.default"]
    assert shares[0] == conv
    assert (conv["calls"], conv["tuples"]) == (2, 1)
    assert conv["share_of_reference_time"] == pytest.approx(0.4)
    view = by_operator["aten.flatten.using_ints"]
    assert shares[-1] == view
    assert (view["launches_kernel"], view["calls"], view["time_s"]) == (False, 1, None)


def test_people_read_a_table_with_every_caveat(compare):
    comparison, shares = compare(
        operators={"relu": {"flags": ["drifting"], "converged": False}},
        reference={"flags": ["disturbed"]},
    )
    text = summarise([comparison], shares)
    assert "4 ms ± 0.6%" in text
    assert "5 ms ± 1.0%" in text
    assert "-20.0% ±" in text
    assert "No energy: simulated: no meter." in text
    assert "Whole models flagged disturbed: tiny_cnn (interference slowed the core" in text
    assert "Tuples flagged drifting: 1 of tiny_cnn" in text
    assert "wider interval than requested: 1 of tiny_cnn" in text
    assert "conv2d 40% (2 calls)" in text


def test_of_many_models_caveats_name_those_they_matter_to_most(compare):
    comparison, _ = compare(reference={"flags": ["disturbed"]})
    rows = [comparison | {"model": f"m{n}", "unconverged_tuples": n} for n in range(10)]
    text = summarise(rows, [])
    assert (
        "wider interval than requested: 4 of m4, 5 of m5, 6 of m6, 7 of m7, 8 of m8, 9 of m9, "
        "less of 3 others." in text
    )
    assert "No energy for all models: simulated: no meter." in text
    assert "Whole models flagged disturbed: m0, m1, m2, m3, m4, m5, 4 others (" in text


def test_energy_has_its_own_table(compare):
    text = summarise(*[[part] if isinstance(part, dict) else part for part in compare(power_w=100)])
    assert "400 mJ" in text
    assert "No energy" not in text


def test_the_figure_shows_operators_and_the_whole(compare, tmp_path):
    comparison, shares = compare(power_w=100.0)
    draw(tmp_path / "a.svg", [comparison], shares)
    draw(tmp_path / "b.svg", [comparison], shares)
    text = (tmp_path / "a.svg").read_text()
    for label in ("conv2d", "linear", "whole model", "tiny_cnn", "energy per iteration (mJ)"):
        assert label in text
    assert "overhead" not in text
    assert text == (tmp_path / "b.svg").read_text()


def test_the_figure_shows_the_overhead_of_calls_where_there_is_one(compare, tmp_path):
    comparison, shares = compare(**OVERHEAD, core_cache_bytes=2**20)
    draw(tmp_path / "figure.svg", [comparison], shares)
    assert "call overhead" in (tmp_path / "figure.svg").read_text()


OF_A_GPU = {"conditions_json": '{"target": {"device": "cuda"}}'}
ON_A_GPU = {
    **OF_A_GPU,
    **{name: value for name, value in OVERHEAD.items() if not name.startswith("displaced")},
    "core_cache_bytes": 0,
}
"""A call takes the host 10 us more than its operator, a view 1 us."""


def launched_in(seconds, **changes):
    """A GPU's row, 2 % either side in the host's time."""
    host = {"host_time_s": seconds}
    if seconds is not None:
        host |= {"host_time_ci_low_s": 0.98 * seconds, "host_time_ci_high_s": 1.02 * seconds}
    return ON_A_GPU | host | changes


@pytest.fixture
def on_a_gpu(compare):
    """Compare tiny_cnn on a GPU, without its costs by operator."""
    return lambda **given: compare(reference=OF_A_GPU, **given)[0]


def test_a_gpu_that_is_slower_than_its_host_takes_what_its_operators_take(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, **launched_in(1e-4))
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert (comparison["idle_time_s"], comparison["host_bound_share"]) == (0, 0)
    assert comparison["host_time_s"] == pytest.approx(4 * 1.1e-4 + 1e-6)
    assert (comparison["overhead_time_s"], comparison["displaced_calls"]) == (None, None)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100)
    half_width = comparison["estimate_time_ci_high_s"] - comparison["estimate_time_s"]
    assert half_width == pytest.approx(1e-5 * (2**2 + 1 + 1) ** 0.5, rel=0.15)


def test_a_gpu_that_is_faster_than_its_host_waits_for_it_at_the_power_of_an_idle_one(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, **launched_in(2e-3))
    host_s = 4 * 2.01e-3 + 1e-6
    idle_s = host_s - 4e-3
    assert comparison["estimate_time_s"] == pytest.approx(host_s)
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert comparison["idle_time_s"] == pytest.approx(idle_s)
    assert comparison["host_bound_share"] == pytest.approx(idle_s / host_s)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100 + idle_s * 20)
    half_width = comparison["estimate_time_ci_high_s"] - host_s
    of_operators, of_overhead = 4e-5 * (2**2 + 1 + 1) ** 0.5, 4 * 1.9e-5
    assert half_width == pytest.approx(math.hypot(of_operators, of_overhead), rel=0.15)


def test_the_host_is_as_fast_as_it_was_in_the_whole_model(compare):
    whole = OF_A_GPU | launched_in(6e-3)
    comparison, _ = compare(reference=whole, again=[launched_in(7e-3)], **launched_in(2e-3))
    assert comparison["estimate_time_s"] == pytest.approx(6.5e-3)
    assert comparison["reference_host_time_s"] == pytest.approx(6.5e-3)
    assert comparison["host_time_s"] == pytest.approx(4 * 2.01e-3 + 1e-6)
    assert comparison["idle_time_s"] == pytest.approx(6.5e-3 - 4e-3)
    half_width = comparison["estimate_time_ci_high_s"] - comparison["estimate_time_s"]
    assert half_width == pytest.approx(0.02 * 6.5e-3 / 2**0.5, rel=0.15)
    text = summarise([comparison], [])
    told = "the host needs 6.5 ms to launch its calls (estimated from its operators: 8.041 ms)"
    assert told in text


def test_without_a_whole_model_the_interval_reaches_over_models(tiny_tuples):
    _, cnn = tiny_tuples
    overhead = dict.fromkeys(OVERHEADS["call"].names, 1e-3)
    rows = {key: row(**launched_in(2e-3, **overhead)) for key in cnn.by_id}
    columns = ModelEstimate(cnn, terms_of(cnn, rows, set())).columns()
    limits_s = columns["estimate_time_ci_low_s"], columns["estimate_time_ci_high_s"]
    # Calls of other models have 0.7 to 2.9 times the overhead.
    assert limits_s == pytest.approx((4 * 2.7e-3, 4 * 4.9e-3), rel=0.03)


def test_a_hosts_time_has_a_spread_of_its_own(on_a_gpu):
    exact = on_a_gpu(**launched_in(2e-3))
    noisy = on_a_gpu(**launched_in(2e-3, host_spread=0.1))
    other = on_a_gpu(**launched_in(2e-3, spread=0.1))
    wider = noisy["estimate_time_ci_high_s"] - exact["estimate_time_ci_high_s"]
    assert wider > 5e-4
    assert other["estimate_time_ci_high_s"] == pytest.approx(exact["estimate_time_ci_high_s"])


def test_a_model_that_waits_for_its_host_varies_like_its_host(compare):
    def half_width(**spreads):
        comparison, _ = compare(reference=OF_A_GPU, **launched_in(40e-3, **spreads))
        return comparison["reference_time_ci_high_s"] / comparison["reference_time_s"] - 1

    exact = half_width(spread=0.0, host_spread=0.0)
    assert half_width(spread=0.0, host_spread=0.1) > exact + 0.15
    assert half_width(spread=0.1, host_spread=0.0) < exact + 0.05


def test_a_host_that_waits_for_its_device_does_nothing_meanwhile(on_a_gpu):
    waiting = {"flags": ["waits_for_device"], **launched_in(None)}
    comparison = on_a_gpu(operators={"linear": waiting}, **launched_in(2e-4))
    assert comparison["time_reason"] is None
    assert comparison["estimate_time_s"] == pytest.approx(4e-3 + 2.1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (launched_in(None), "3 of 3 rows do not say what the host needs to launch the operator"),
        (launched_in(1e-4, call_overhead_s=None), "the database has no call overhead of target"),
    ],
)
def test_without_its_host_there_is_no_estimate_for_a_gpu(on_a_gpu, changes, reason):
    comparison = on_a_gpu(**changes)
    assert comparison["time_reason"].startswith(reason)
    nothing = ("estimate_time_s", "operators_time_s", "host_time_s", "idle_time_s")
    assert [comparison[name] for name in nothing] == [None] * 4
    assert comparison["partial_time_s"] == pytest.approx(4e-3)


def test_waiting_without_the_power_of_an_idle_gpu_has_no_energy(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, idle_power_w=None, **launched_in(2e-3))
    assert comparison["estimate_time_s"] is not None
    assert comparison["estimate_energy_j"] is None
    assert comparison["energy_reason"].startswith("the device waits for its host, and no row has")


def test_each_module_has_the_time_that_the_gpu_waits_for_its_calls(tiny_tuples):
    _, cnn = tiny_tuples
    rows = {key: row(**launched_in(2e-3)) for key in cnn.by_id}
    estimate = ModelEstimate(cnn, terms_of(cnn, rows, set()))
    waits_s = [module["idle_time_s"] for module in estimate.modules()]
    assert sum(waits_s) == pytest.approx(estimate.columns()["idle_time_s"])
    assert min(waits_s) > 0


def test_a_summary_says_how_long_a_gpu_waits_for_its_host_and_where(on_a_gpu, compare):
    waiting, busy = on_a_gpu(**launched_in(2e-3)), on_a_gpu(**launched_in(1e-4))
    modules = [
        {"model": "tiny_cnn", "target": "local", "module_path": path, "idle_time_s": idle_s}
        for path, idle_s in (("layer1.0", 1e-3), ("layer1.1", 2e-3), ("", 1.041e-3))
    ]
    text = summarise([waiting], [], modules=modules)
    assert (
        "tiny_cnn waits for its host 50% of the time: the host needs 8.041 ms to launch its calls "
        "(estimated; not measured in this model), the device 4 ms to run them. It waits in layer1 "
        "37%, the model itself 13%."
    ) in text
    assert "tiny_cnn does not wait for its host: the host needs 441 us" in summarise([busy], [])
    assert "waits for its host" not in summarise([compare()[0]], [])


def test_the_figure_shows_how_long_a_gpu_waits_for_its_host(compare, tmp_path):
    comparison, shares = compare(reference=OF_A_GPU, **launched_in(2e-3))
    draw(tmp_path / "figure.svg", [comparison], shares)
    assert "wait for the host" in (tmp_path / "figure.svg").read_text()
