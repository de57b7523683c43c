"""What a plan chooses, and what it expects."""

import itertools
import json
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.addresses import Addresses
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.plain_yaml import read_yaml
from opcost.planning.plan import explained_shares, memory_bytes, plan, predicted_times_s
from opcost.planning.rounds import Round, write_round
from opcost.planning.target_plan import beyond_budget, describe_plans
from opcost.results_folder import round_plan
from opcost.rows import records, schemas
from opcost.runs.prediction_study import sizes, write_study
from opcost.study import load_study
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import ModelCall, ModelTuples, write_model_tuples
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.parsing import parse
from opcost.tuples.tuple_record import TupleRecord

from tests.checkout import REPOSITORY, STUDY

GIGA = 10**9


def record(size, operator="aten.relu.default", flops=0):
    spec = TensorSpec((size,), "float32")
    return TupleRecord(OperatorTuple(operator, (("input", spec),)), (spec,), True, flops, 8 * size)


def row(found, time_s, device_time_s=1.0):
    tuple_id = found.operator_tuple.tuple_id
    return {"tuple_id": tuple_id, "time_s": time_s, "device_time_s": device_time_s}


def by_id(*records):
    return {found.operator_tuple.tuple_id: found for found in records}


def model(records, counts, name="model"):
    calls = [ModelCall(i, "", "") for i, count in enumerate(counts) for _ in range(count)]
    return ModelTuples(name, tuple(records), tuple(calls), 0, "2.15.0")


@pytest.fixture
def settings(conditions):
    return conditions.measurement


SMALL, MIDDLE, LARGE = record(10**3), record(10**6), record(10**8)
ALL = by_id(SMALL, MIDDLE, LARGE)
MODEL = model([SMALL, MIDDLE, LARGE], [1, 1, 1])


def ids(*records):
    return tuple(by_id(*records))


def test_without_a_budget_all_that_is_new_is_chosen(settings):
    planned = plan([MODEL], ALL, [row(MIDDLE, 1e-3)], settings, None)
    assert planned.known == ids(MIDDLE)
    assert planned.chosen == ids(LARGE, SMALL)
    assert planned.beyond == ()
    assert planned.expected_coverage() == pytest.approx(1)


@pytest.mark.parametrize("budget_s", range(10))
def test_a_budget_holds(settings, budget_s):
    rows = [row(MIDDLE, 1e-3, device_time_s=1)]
    planned = plan([MODEL], ALL, rows, settings, budget_s)
    assert planned.needed_s == len(planned.chosen)
    assert planned.needed_s <= budget_s


@given(
    number=st.integers(2, 40),
    measured=st.integers(1, 40),
    budget_s=st.integers(0, 60),
)
def test_round_1_uses_all_of_a_budget_rather_than_leave_a_sum_incomplete(
    conditions, number, measured, budget_s
):
    records = [record(size) for size in range(1, number + 1)]
    known = [row(each, 1e-3, device_time_s=1) for each in records[:measured]]
    planned = plan([], by_id(*records), known, conditions.measurement, budget_s)
    assert len(planned.chosen) == min(number - len(planned.known), budget_s)
    assert planned.beyond_s() == number - len(planned.known) - len(planned.chosen)


def test_a_budget_is_spent_on_what_explains_most(settings):
    planned = plan([MODEL], ALL, [row(MIDDLE, 1e-3, device_time_s=2)], settings, 3.5)
    assert (planned.chosen, planned.beyond) == (ids(LARGE), ids(SMALL))
    assert (planned.needed_s, planned.job_s) == (2, 2)


def test_calls_count():
    often = model([SMALL, MIDDLE], [1000, 1])
    times = predicted_times_s(ALL, [row(SMALL, 1e-3), row(MIDDLE, 1e-2)])
    shares = explained_shares([often], ALL, times)
    assert shares[ids(SMALL)[0]] == pytest.approx(1000 / 1010)


def test_each_model_counts_the_same_however_large():
    large, small = model([LARGE], [100]), model([SMALL], [1])
    times = predicted_times_s(ALL, [])
    shares = explained_shares([large, small], ALL, times)
    assert shares[ids(LARGE)[0]] == shares[ids(SMALL)[0]] == 0.5


def test_what_was_measured_before_costs_nothing(settings):
    rows = [row(MIDDLE, 1e-3, device_time_s=10)]
    assert len(plan([MODEL], ALL, rows, settings, 20).chosen) == 2
    assert len(plan([MODEL], ALL, rows, settings, 5).chosen) == 0, "no budget is overdrawn"


def test_what_other_studies_measured_is_learned_from_and_not_paid_for(settings):
    other = row(record(10**7), 1e-2, device_time_s=100)
    planned = plan([MODEL], ALL, [other], settings, 300)
    assert (planned.job_s, planned.job_s_is_measured) == (100, True)
    assert len(planned.chosen) == 3


@pytest.mark.parametrize(
    ("wholes", "each_s"),
    [((), 1 + 0.5 + 0.1), ((3, 5), 4), ((None,), 1 + 0.5 + 0.1), ((None, 6), 6)],
)
def test_a_whole_model_takes_what_others_took(settings, wholes, each_s):
    settings = replace(settings, model_time_s=0.1, max_time_s=0.5)
    measured = [{"device_time_s": each} for each in wholes]
    rows = [row(MIDDLE, 1e-3, device_time_s=1)]
    planned = plan([MODEL], ALL, rows, settings, None, 2, "cpu", measured)
    assert planned.model_s == each_s
    assert planned.needed_s == 2 * each_s + len(planned.chosen)


def test_whole_models_are_paid_from_the_budget(settings):
    rows = [row(MIDDLE, 1e-3)]
    # One model and two tuples.
    budget = 1 + settings.of_end_to_end().max_time_s + settings.model_time_s + 2 + 0.01
    assert len(plan([MODEL], ALL, rows, settings, budget, 1).chosen) == 2
    assert len(plan([MODEL], ALL, rows, settings, budget - 1, 1).chosen) == 1
    assert len(plan([MODEL], ALL, rows, settings, budget, 2).chosen) == 0


def test_a_first_budget_holds_what_a_busy_machine_took(conditions):
    records = [record(size) for size in range(1, 18)]
    usual = replace(
        conditions.measurement, warm_up_s=0.1, min_time_s=0.1, max_time_s=0.5, model_time_s=1.0
    )
    planned = plan([], by_id(*records), [], usual, 20, 1, "cpu")
    assert len(planned.chosen) * 1.63 + 6.1 < 1.1 * 20, "seconds of a tuple and of a whole model"


@given(
    call_s=st.floats(1e-6, 1e-4),
    flop_s=st.floats(1e-12, 1e-10),
    sizes=st.lists(st.integers(1, 10**7), min_size=12, max_size=20, unique=True),
)
def test_a_predicted_time_is_positive_and_finite_whatever_was_measured(call_s, flop_s, sizes):
    records = [record(size, flops=size**2 % GIGA + size) for size in sizes]
    *known, unknown = records
    rows = [row(found, call_s + flop_s * found.flops) for found in known]
    predicted = predicted_times_s(by_id(*records), rows)[ids(unknown)[0]]
    assert math.isfinite(predicted)
    assert predicted > 0


@pytest.mark.parametrize("size", [3e3, 3e5, 3e7])
def test_a_time_that_is_linear_in_work_is_learned(size):
    known = [record(4**n, flops=100 * 4**n) for n in range(2, 15)]
    unknown = record(round(size), flops=100 * round(size))
    rows = [row(found, 5e-6 + 1e-10 * found.flops) for found in known]
    predicted = predicted_times_s(by_id(*known, unknown), rows)[ids(unknown)[0]]
    assert predicted == pytest.approx(5e-6 + 1e-10 * unknown.flops, rel=0.2)


def test_a_fit_of_one_operator_leaves_the_others_alone():
    linear = [record(10 * n, "aten.linear.default", flops=n * GIGA) for n in range(1, 10)]
    other = record(7, "aten.relu.default")
    before = predicted_times_s(by_id(other), [])
    rows = [row(found, 5.0) for found in linear[:7]]  # too few to learn from
    assert predicted_times_s(by_id(*linear, other), rows)[ids(other)[0]] == before[ids(other)[0]]


def test_memory_of_the_host_is_not_the_devices():
    to = TensorSpec((1000,), "float32")
    copy = OperatorTuple(
        "aten.copy_.default", (("self", to), ("src", replace(to, memory="pinned")))
    )
    assert memory_bytes(TupleRecord(copy, (to,), True, 0, 4000)) == 8000


def test_a_gpus_job_is_expected_to_measure_power(settings):
    processor = plan([MODEL], ALL, [], settings, None, device="cpu")
    gpu = plan([MODEL], ALL, [], settings, None, device="cuda:1")
    longer_s = gpu.job_s - processor.job_s
    assert longer_s > settings.power_min_s + 2 * settings.idle_s - settings.max_time_s / 2


def extracted_study(results, device, **changes):
    """A study of which the models are extracted and nothing is measured."""
    document = read_yaml(REPOSITORY / "config/config.yaml") | read_yaml(STUDY / "config.yaml")
    document["model_directory"] = str(STUDY / "models")
    document["targets"] = {"local": {"device": device}}
    addresses = Addresses(replace(load_study(document), **changes), results)
    for name, definition in addresses.study.models.items():
        path = addresses.extraction(name)
        path.parent.mkdir(exist_ok=True)
        write_model_tuples(path, extract_model_tuples(definition, STUDY / "models"))
    return addresses


def test_what_a_budget_left_out_is_known_after_the_run(tmp_path):
    addresses = extracted_study(tmp_path, "cpu", rounds=3, max_device_time_s=1.0)
    [tuples] = beyond_budget(addresses, "local")
    missing = "which are predicted for models where that is possible"
    assert tuples == f"6 of 6 operator tuples, {missing}"
    for number, is_cut in ((2, False), (3, True)):
        plan = round_plan(addresses.folders["local"], addresses.name, number)
        write_round(plan, Round(is_cut=is_cut))
    assert beyond_budget(addresses, "local") == [
        tuples,
        "further runs, which would narrow the intervals",
    ]


@pytest.mark.parametrize(("device", "said"), [("cuda", True), ("cpu", False), ("auto", False)])
def test_a_plan_says_which_calls_a_gpu_has_not_been_asked_for(tmp_path, device, said):
    addresses = extracted_study(tmp_path, device)

    def not_here(target):
        raise OpcostError("simulated: no such device")

    plan = describe_plans(addresses, not_here)
    assert ("calls: 2 models to trace on the device" in plan) == said


LINEARS = [
    parse(f"linear({rows}x{inputs}, {outputs}x{inputs})")
    for rows, inputs, outputs in itertools.product([16, 128, 1024], repeat=3)
]
CONDITIONS = {
    "target": {"device": "cuda", "threads": 1, "tf32": True},
    "measurement": {"cache_state": "cold"},
    "protocol_version": 5,
}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A database of 27 layers on h100, the larger the slower, and of the first of them on a100."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            **records.operator_columns(TupleRecord(call, (), True, None, 0)),
            "parameters": ["weight"],
            "target": target,
            "status": "ok",
            "time_s": sum(spec.elements for _, spec in call.tensors) / 1e9,
            "conditions_json": json.dumps(CONDITIONS),
            "device": "cuda:0",
        }
        for target, calls in (("h100", LINEARS), ("a100", LINEARS[:1]))
        for call in calls
    ]
    records.write(tmp_path / "measured.parquet", schemas.DATABASE, rows)
    return tmp_path / "measured.parquet"


def planned(*arguments):
    """The result of `opcost plan`, and the study that it writes."""
    result = CliRunner().invoke(main, ["plan", *map(str, arguments), "-o", "planned.yaml"])
    assert result.exit_code == 0, result.output
    return result.output, load_study(read_yaml("planned.yaml"))


def operators_in(study):
    return [extract_model_tuples(model).tuples[0] for model in study.models.values()]


def test_a_calibration_measures_what_others_have_and_the_target_lacks(measured):
    text, study = planned("--calibrate", "a100", "-d", measured)
    found = [each.operator_tuple for each in operators_in(study)]
    assert len({*found} & {*LINEARS[1:]}) == len(found) >= 19
    lines = [line for line in text.splitlines() if "linear(" in line]
    assert [line.partition("  ")[2].strip() for line in lines] == [*map(str, found)]
    shares = [float(line.strip(" <").partition("%")[0]) for line in lines]
    assert shares == sorted(shares, reverse=True)
    assert f"{len(found)} operators in planned.yaml" in text


@pytest.mark.parametrize(
    ("target", "tf32", "cache_state"), [("a100", True, "cold"), ("new", False, "model")]
)
def test_a_calibration_has_the_conditions_of_the_target(measured, target, tf32, cache_state):
    _, study = planned("--calibrate", target, "-d", measured)
    [(name, conditions)] = study.conditions.items()
    assert (name, conditions.target.device) == (target, "cuda")
    assert (conditions.target.tf32, conditions.measurement.cache_state) == (tf32, cache_state)


def test_a_calibration_for_a_model_begins_with_what_it_calls(measured):
    (measured.parent / "layer.yaml").write_text('operator: "linear(128x128, 128x128)"')
    text, _ = planned("--calibrate", "a100", "layer.yaml", "-d", measured)
    first, *others = (line for line in text.splitlines() if "linear(" in line)
    assert first.endswith("linear(128x128, 128x128)")
    assert float(first.partition("%")[0]) > 80
    assert len(others) == 18, "as many as two targets must share"


@pytest.mark.parametrize("is_processor", [True, False])
def test_sizes_for_prediction_are_those_of_usual_operators_within_bounds(is_processor):
    found = sizes([], is_processor)
    assert len(found) == 400
    assert {each.operator_tuple.name for each in found} >= {
        *("conv2d", "linear", "matmul", "scaled_dot_product_attention", "softmax"),
        *("layer_norm", "batch_norm", "relu_", "add", "max_pool2d"),
    }
    assert max(each.flops for each in found) <= (1e10 if is_processor else 1e12)
    dtypes = {spec.dtype for each in found for _, spec in each.operator_tuple.tensors}
    assert dtypes == ({"float32"} if is_processor else {"float32", "bfloat16"})
    batches = {
        dict(each.operator_tuple.tensors)["self"].shape[0]
        for each in found
        if each.operator_tuple.name == "add"
    }
    assert {2, 8, 32} <= batches


def test_a_study_of_sizes_is_of_the_models_operators_octaves_around_theirs(measured):
    (measured.parent / "layer.yaml").write_text('operator: "linear(8x256, 512x256, 512)"')
    _, study = planned("--for-prediction", "layer.yaml", "--device", "cpu")
    assert study.conditions["cpu_time"].target.device == "cpu"
    assert not study.conditions["cpu_time"].measurement.energy
    assert study.rounds == 1
    found = operators_in(study)
    assert {each.operator_tuple.name for each in found} == {"linear"}
    assert all({*each.parameters} == {"bias", "weight"} for each in found)
    shapes = [dict(each.operator_tuple.tensors) for each in found]
    assert {each["input"].shape[0] for each in shapes} == {2, 4, 8, 16, 32}
    assert {each["weight"].shape[0] for each in shapes} == {128, 256, 512, 1024, 2048}
    assert {each["weight"].shape[1] for each in shapes} == {64, 128, 256, 512, 1024}


def test_a_study_of_operators_measures_these_tuples_with_their_weights(tmp_path):
    call = parse("add(32x197x768, 1x197x768)")
    write_study(
        tmp_path / "s.yaml",
        [TupleRecord(call, (), True, 0, 0, ("other",))],
        {"targets": {"new": {"device": "cpu"}}},
    )
    [found] = operators_in(load_study(read_yaml(tmp_path / "s.yaml")))
    assert (found.operator_tuple, found.parameters) == (call, ("other",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--calibrate", "a100", "--for-prediction"], "takes neither --calibrate nor"),
        (["--database", "h100"], "need --calibrate or --for-prediction"),
        (["--output", "s.yaml"], "need --calibrate or --for-prediction"),
        (["--for-prediction"], "needs -o STUDY.yaml"),
        (["--calibrate", "a100", "--threads", "2"], "only for the plan of a run"),
        (["--calibrate", "a100", "--max-device-time", "9"], "only for the plan of a run"),
        (["--calibrate", "a100", "--device", "cpu"], "with --calibrate, --device"),
        (["--calibrate", "a100", "--batch", "2"], "need a MODEL"),
        (["--calibrate", "h100", "-d", "measured.parquet"], "nothing is left to measure"),
        (["--calibrate", "a-100", "-d", "measured.parquet", "-o", "s.yaml"], "'a-100' does not"),
        (["--calibrate", "a", "-d", "measured.parquet", "-o", "m.parquet"], "ends in .yaml"),
        (["--for-prediction", "layer.yaml", "-o", "layer.yaml"], "also an input"),
    ],
)
def test_plans_that_cannot_be_are_refused(measured, arguments, said):
    (measured.parent / "layer.yaml").write_text('operator: "linear(128x128, 128x128)"')
    result = CliRunner().invoke(main, ["plan", *arguments])
    assert result.exit_code in (1, 2)
    assert said in " ".join(result.output.split())
