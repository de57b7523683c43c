"""An operator without a model: its config, its tuple, its place in a study, and what it costs."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from opcost.addresses import Addresses
from opcost.commands import main
from opcost.costs.comparison import compare_study
from opcost.costs.sweep_text import sweep_lines
from opcost.costs.sweeps import single_operators, sweep_rows
from opcost.devices.device import open_device
from opcost.errors import OpcostError
from opcost.models.axes import Sweep
from opcost.models.configs import define_models
from opcost.models.definition import ModelDefinition
from opcost.plain_yaml import read_yaml
from opcost.planning.target_plan import describe_plans, plan_target
from opcost.rows import schemas
from opcost.runs.operators import operator_variant
from opcost.study import load_study
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.host_memory import copy_of
from opcost.tuples.manifest import collect
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples

from tests.checkout import configure
from tests.comparisons import FAILED, noise, row

SWEEP = {
    "operator": "conv2d(1x{c}x8x8, {c}x{c}x{k}x{k}, stride=$s)",
    "axes": {"c": [2, 4], "k": [1, 3], "s": [1, 2], "zeros": [0, 0.9]},
}
LIKE_TINY_CNN = "conv2d(1x3x8x8, 3x3x3x3, 3, padding=[1,1])"


def defined(**config):
    return define_models("conv", config, Path(), "conv.yaml")


def extracted(**config):
    return [extract_model_tuples(each) for each in defined(**config).models.values()]


def only_tuple(**config):
    [subject] = extracted(**config)
    return subject.tuples[0]


def test_each_combination_is_an_operator_with_one_call():
    found = extracted(**SWEEP)
    assert len(found) == 16
    assert all(len(each.calls) == len(each.tuples) == 1 for each in found)
    last = found[-1]
    assert last.model == "conv[c=4,k=3,s=2,zeros=0.9]"
    assert str(last.tuples[0].operator_tuple) == (
        "conv2d(1x4x8x8[zeros=0.9], 4x4x3x3[zeros=0.9], stride=[2,2])"
    )


def test_the_work_of_an_operator_is_known_and_is_not_that_of_its_zeros():
    dense, sparse = extracted(operator="conv2d(1x2x8x8, 2x2x3x3)", axes={"zeros": [0, 0.5]})
    assert dense.tuples[0].flops == sparse.tuples[0].flops == 2 * 2 * 2 * 9 * 36
    assert dense.tuples[0].bytes == sparse.tuples[0].bytes
    assert dense.tuples[0].outputs[0].shape == (1, 2, 6, 6)


def test_it_is_the_tuple_of_a_model_that_makes_the_same_call(tiny_tuples):
    """Therefore it is measured once for both."""
    of_model = next(r for r in tiny_tuples[1].tuples if r.operator_tuple.name == "conv2d")
    assert only_tuple(operator=LIKE_TINY_CNN) == of_model
    # Also if it states what is so by default.
    assert only_tuple(operator=f"{LIKE_TINY_CNN[:-1]}, stride=[1,1], groups=1)") == of_model


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({"operator": "linear(2x3, 4x3, 4)"}, ("weight", "bias")),
        ({"operator": "mm(2x3, 3x4)"}, ()),
        ({"operator": "mm(2x3, 3x4)", "parameters": ["mat2"]}, ("mat2",)),
        ({"operator": "linear(2x3, 4x3, 4)", "parameters": []}, ()),
        (
            {
                "operator": "batch_norm(2x3x4, 3, 3, 3, 3, training=False, momentum=0.1, "
                "eps=1e-05, cudnn_enabled=True)"
            },
            ("weight", "bias", "running_mean", "running_var"),
        ),
    ],
)
def test_weights_are_known_by_name_or_named(config, parameters):
    """They come from memory in each call, as inside a model."""
    assert only_tuple(**config).parameters == parameters


def test_dtype_layout_and_zeros_are_those_of_tensors_that_state_none():
    config = {
        "operator": "conv2d(1x2x8x8[zeros=0.1], 2x2x3x3)",
        "dtype": "bfloat16",
        "memory_format": "channels_last",
        "zeros": 0.5,
    }
    assert str(only_tuple(**config).operator_tuple) == (
        "conv2d(1x2x8x8:bfloat16@channels_last[zeros=0.1], "
        "2x2x3x3:bfloat16@channels_last[zeros=0.5])"
    )


@pytest.mark.parametrize(
    ("call", "described"),
    [
        ("add(2x3, 2x3, alpha=1)", "add(2x3, 2x3)"),
        ("relu_(2x3)", "relu_(2x3)"),
        ("avg_pool2d(1x2x8x8, kernel_size={k})", "avg_pool2d(1x2x8x8, kernel_size=[2,2])"),
        ("softmax(2x3, dim=1, dtype=None)", "softmax(2x3, dim=1)"),
        ("cat([2x3,2x3[zeros=0.5]], dim=1)", "cat([2x3,2x3[zeros=0.5]], dim=1)"),
        ("ones(size=[{k}])", "ones(size=[2])"),
        ("copy_({k}, {k}[pinned])", "copy_(2, 2[pinned])"),
        ("copy_(2[zeros=0.5,pageable], 2)", "copy_(2[zeros=0.5,pageable], 2)"),
    ],
)
def test_any_operator_that_computes_can_be_a_subject(call, described):
    axes = {"axes": {"k": [2]}} if "{k}" in call else {}
    assert str(only_tuple(operator=call, **axes).operator_tuple) == described


def test_the_memory_of_a_tensor_may_be_an_axis():
    axes = {"n": [2, 8], "memory": ["pinned", "pageable"]}
    found = extracted(operator="copy_({n}, {n}[{memory}], non_blocking=True)", axes=axes)
    assert found[-1].model == "conv[n=8,memory=pageable]"
    assert [str(each.tuples[0].operator_tuple) for each in found] == [
        f"copy_({n}, {n}[{memory}], non_blocking=True)"
        for n in axes["n"]
        for memory in axes["memory"]
    ]


@pytest.mark.parametrize("name", ["copies_to_device", "copies_to_host"])
def test_copies_between_host_and_device_are_configs_that_come_with_opcost(name):
    path = Path("config/models") / f"{name}.yaml"
    models = define_models(name, read_yaml(path), path.parent, str(path)).models
    tuples = [extract_model_tuples(each).tuples[0].operator_tuple for each in models.values()]
    copies = [copy_of(each) for each in tuples]
    assert {copy.is_to_device for copy in copies} == {name == "copies_to_device"}
    for memory in ("pinned", "pageable"):
        sizes = [copy.to.bytes for copy in copies if copy.memory == memory]
        assert sizes == [4**exponent * 2**10 for exponent in range(1, 10)]


@pytest.mark.parametrize(
    "command", [["operator", "copy_(8, 8[pinned])"], ["run", "copies"]], ids=["operator", "run"]
)
def test_copies_of_a_gpu_are_refused_on_a_processor_before_anything_is_measured(
    tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/models").mkdir(parents=True)
    config = {"operator": "copy_(8, 8[{memory}])", "axes": {"memory": ["pinned"]}}
    (tmp_path / "config/models/copies.yaml").write_text(yaml.safe_dump(config))
    ended = CliRunner().invoke(main, [*command, "--device", "cpu"])
    assert ended.exit_code == 1
    assert "target cpu is a processor (device cpu), which has one memory" in ended.output
    assert not (tmp_path / "results").exists()


def test_a_definition_and_its_tuple_are_read_back(tmp_path):
    for subject in extracted(**SWEEP, parameters=["weight"]):
        assert ModelDefinition.from_json(subject.definition.to_json()) == subject.definition
        path = tmp_path / f"{subject.model}.pkl"
        write_model_tuples(path, subject)
        assert read_model_tuples(path) == subject


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"axes": {"k": []}}, "axes.k: .*The values of an axis"),
        ({"operator": "conv2d(1x$kx8x8, 2x2x3x3)"}, r"\$kx8x8 is no axis.*write {k} for \$k"),
        ({"operator": "conv2d(1x{n}x8x8, 2x2x3x3)"}, r"\$n is no axis"),
        ({"axes": {"k": [1], "zero": [1]}}, "axes.zero: .*Did you mean 'zeros'"),
        ({"zeros": 1.5}, "zeros: 1.5 is greater than the maximum of 1"),
        ({"zeros": "half"}, "zeros: 'half' is not of type 'number'"),
        ({"zeros": float("nan")}, "zeros is nan: only finite numbers are allowed"),
        ({"axes": {"k": [1], "zeros": [0, 2]}}, r"k=1,zeros=2\] is not valid"),
        ({"dtype": "int64"}, "dtype: 'int64' is not one of"),
        ({"model": "resnet18"}, "Unknown key 'model'.*config/README.md"),
        ({"inputs": [{"shape": [1]}]}, "Unknown key 'inputs'"),
    ],
)
def test_a_config_that_cannot_be_is_refused(config, message):
    usual = {"operator": "conv2d(1x2x8x8, 2x2x{k}x{k})", "axes": {"k": [1, 3]}}
    with pytest.raises(OpcostError) as raised:
        defined(**usual | config)
    assert_says(raised, message)


def test_a_place_needs_values():
    with pytest.raises(OpcostError, match=r"\$k is no axis: list its values under axes"):
        defined(operator="relu({k}x3)")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"operator": "conv2d(1x2x4x4, 2x2x5x5)"},
            r"operator conv: conv2d\(1x2x4x4, 2x2x5x5\) cannot be called: .*Kernel size: \(5 x 5\)."
            ".*greater than actual input size. Change the call, or leave this combination",
        ),
        ({"operator": "conv2d(1x3x8x8, 4x2x3x3)"}, "cannot be called: .*to have 2 channels"),
        ({"operator": "relu"}, "'relu' is no call of an operator: write it like conv2d"),
        ({"operator": "relu(2x3:int64[zeros=0.5])"}, "a tensor of int64 has no share of zeros"),
        ({"operator": "relu(2x3:int64)", "zeros": 0.5}, "zeros: 0.5 changes nothing, because no"),
        ({"operator": "relu(2x3:float16)", "dtype": "bfloat16"}, "dtype: bfloat16 changes nothing"),
        (
            {"operator": "relu(2x3)", "memory_format": "channels_last"},
            "memory_format: channels_last changes nothing",
        ),
        ({"operator": "mm(2x3, 3x4)", "parameters": ["weight"]}, "tensors are mat2, self"),
        ({"operator": "view(2x3, size=[6])"}, "moves no data, so there is nothing to measure"),
        ({"operator": "relu(0x3)"}, "moves no data, so there is nothing to measure"),
        ({"operator": "nonzero(2x3)"}, "the sizes of what nonzero.* depend on values"),
        ({"operator": "from_file(filename=x)"}, "may not be called"),
    ],
)
def test_a_call_that_cannot_be_measured_is_refused_before_anything_is(config, message):
    with pytest.raises(OpcostError) as raised:
        extracted(**config)
    assert_says(raised, message)


def assert_says(raised, message):
    assert re.search(message, str(raised.value).replace("\n", " ")), raised.value


def study_of(folder, operators=SWEEP, models=()):
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models/conv.yaml").write_text(yaml.safe_dump(dict(operators)))
    (folder / "models/net.yaml").write_text("model: alexnet\ninputs: [{shape: [1, 3, 64, 64]}]\n")
    return load_study(
        {
            "models": [*models, "conv"],
            "model_directory": str(folder / "models"),
            "targets": {"local": {"device": "cpu"}},
        }
    )


def extract_all(addresses):
    (addresses.results / "tuples").mkdir(parents=True)
    for name, definition in addresses.study.models.items():
        write_model_tuples(addresses.extraction(name), extract_model_tuples(definition))


def test_an_operator_is_measured_as_a_tuple_and_never_as_a_whole(tmp_path):
    study = study_of(tmp_path, models=["net"])
    assert study.end_to_end == ["net"]
    assert len(study.models) == 17
    addresses = Addresses(study, tmp_path / "results")
    extract_all(addresses)
    assert plan_target(addresses, "local").models == 1
    alone = Addresses(study_of(tmp_path), tmp_path / "results")
    assert len(plan_target(alone, "local").chosen) == 16
    text = describe_plans(alone, open_device)
    assert "operators: 16 tuples, 0 measured, 16 to measure" in text
    assert "models: 0, 0 measured, 0 to measure" in text


def test_a_value_that_is_added_to_an_axis_adds_its_tuples_alone(tmp_path):
    before, after = (
        collect(extracted(**{**SWEEP, "axes": {**SWEEP["axes"], "k": kernels}}), None)
        for kernels in ([1, 3], [1, 3, 5])
    )
    assert before.items() <= after.items()
    assert len(after) == len(before) + 8


POINTS = {"operator": "conv2d(1x2x8x8, 2x2x{k}x{k})", "axes": {"k": [1, 3, 5]}}


def costs(*rows_of_points, target="local", **config):
    """The sweep of operators, of which each has a row."""
    subjects = extracted(**{**POINTS, **config})
    measured = [
        {**found, "tuple_id": next(iter(subject.by_id)), "target": target}
        for subject, found in zip(subjects, rows_of_points, strict=False)
        if found
    ]
    alone = [*single_operators({target: subjects}, measured, {target: noise()})]
    points = defined(**{**POINTS, **config}).points
    return sweep_rows([Sweep("conv", points)], [], alone, subjects)


def test_a_sweep_has_a_row_of_each_operator_and_says_why_one_is_not_measured():
    found = costs(row(2e-3, power_w=50), row(4e-3, power_w=50))
    assert [json.loads(each["point"]) for each in found] == [{"k": 1}, {"k": 3}, {"k": 5}]
    assert [each["time_reason"] for each in found] == [None, None, "not measured"]
    assert found[0].keys() == set(schemas.SWEEPS.names)
    assert found[1]["time_s"] == 4e-3
    assert found[1]["energy_j"] == pytest.approx(0.2)
    assert (found[1]["flops"], found[1]["bytes"]) == (2 * 2 * 2 * 9 * 36, 4 * (128 + 36 + 72))
    assert found[1]["estimated"] == []


def test_the_table_of_a_sweep_has_the_rates_of_its_operators():
    lines = sweep_lines(costs(row(2e-6), row(4e-6), row(5e-6, power_w=50)))
    assert lines[0] == "Sweep conv on local:"
    assert lines[2].split() == ["k", "time", "FLOP/s", "bandwidth", "energy", "power"]
    assert " ".join(lines[4].split()) == "3 4.00 µs ± 1.0% 648 MFLOP/s 236 MB/s - -"


def test_what_failed_has_a_row_without_a_time():
    found, *_ = costs(row(**FAILED))
    assert found["time_s"] is None
    lines = sweep_lines([found])
    assert [line.split() for line in lines[2:4]] == [["k"], ["1"]]
    assert lines[-1] == f"No time of k=1: {FAILED['status']}: {FAILED['error']}."


def test_an_operator_without_axes_has_a_table_of_one_line():
    lines = sweep_lines(costs(row(2e-6), operator=LIKE_TINY_CNN, axes={"zeros": [0.5]}))
    assert lines[2].split()[0] == "zeros"
    subjects = extracted(operator=LIKE_TINY_CNN)
    measured = [{**row(2e-6), "tuple_id": next(iter(subjects[0].by_id))}]
    alone = single_operators({"local": subjects}, measured, {"local": noise()})
    lines = sweep_lines(sweep_rows([Sweep("conv", {"conv": {}})], [], alone, subjects))
    assert lines[0] == "Sweep conv on local:"
    assert lines[2].split() == ["time", "FLOP/s", "bandwidth"]


def test_it_stands_in_no_comparison_of_sums_and_wholes():
    subjects = extracted(**POINTS)
    measured = [{**row(), "tuple_id": next(iter(each.by_id))} for each in subjects]
    manifest, noises = collect(subjects, None), {"local": noise()}
    tables = compare_study({"local": subjects}, measured, [], manifest, noises)
    assert not any(tables)


@pytest.mark.parametrize(
    ("description", "axes", "call"),
    [
        (
            "conv2d(1x2x8x8, 2x2x3x3, padding=[1,1])",
            ["padding=[0,1]"],
            "conv2d(1x2x8x8, 2x2x3x3, padding={padding})",
        ),
        (
            "conv2d(1x2x8x8, 2x2x3x3)",
            ["stride=[1,2]", "padding=[0,1]"],
            "conv2d(1x2x8x8, 2x2x3x3, stride={stride}, padding={padding})",
        ),
        ("conv2d(1x{c}x8x8, 2x{c}x3x3)", ["c=[2, 4]"], None),
        ("linear({x}, 4x3)", ["x=[1x3,2x3]"], None),
        ("relu(2x3)", ["zeros=[0,0.5]", "dtype=[float32,bfloat16]"], None),
        ("{function}(2x3)", ["function=[relu,tanh]"], None),
        (
            "max_pool2d(1x2x8x8, kernel_size=2)",
            ["ceil_mode=[true,false]"],
            "max_pool2d(1x2x8x8, kernel_size=2, ceil_mode={ceil_mode})",
        ),
        ("softmax(2x3, dim=1)", ["dtype=[float32,float64]"], None),
        (
            "softmax(2x3, dim=1, dtype=None)",
            ["dtype=[float64]"],
            "softmax(2x3, dim=1, dtype={dtype})",
        ),
    ],
)
def test_the_command_line_names_places_arguments_and_settings(description, axes, call):
    variant = operator_variant(description, axes)
    assert variant.config["operator"] == (call or description)
    assert [*variant.config["axes"]] == [each.partition("=")[0] for each in axes]


def test_a_config_is_called_like_its_operator():
    assert operator_variant("conv2d.default(1x2x8x8, 2x2x3x3)", []).name == "conv2d.default"
    assert operator_variant("{f}(2x3)", ["f=[relu]"]).name == "f"
    assert operator_variant("relu(2x3)", []).config == {"operator": "relu(2x3)"}


CONVOLUTION = "conv2d(1x2x8x8, 2x2x{k}x{k})"


@pytest.mark.parametrize(
    ("description", "axes", "message"),
    [
        (CONVOLUTION, ["k=[]"], r"--axis k=\[\] has no values: give NAME=\[VALUE,...\]"),
        (CONVOLUTION, ["k=3"], r"--axis k=3 is no axis: give NAME=\[VALUE,...\], such as padding"),
        (CONVOLUTION, ["k=[2020-13-45]"], "--axis k=.* is not valid YAML.*month"),
        (CONVOLUTION, [f"k=[{'9' * 5000}]"], "--axis k=.* is not valid YAML.*digits"),
        (CONVOLUTION, ["k=[1, 03]"], "YAML reads 03 as 3; write 3"),
        (CONVOLUTION, ["k=[1]", "k=[3]"], "--axis k is there twice"),
        (CONVOLUTION, ["k=[[1,1]]"], r"axes.k.0: \[1, 1\] is not of type"),
        (CONVOLUTION, [], r"{k} has no values: give --axis k=\[VALUE,...\]"),
        (
            CONVOLUTION,
            ["k=[1]", "pading=[1]"],
            "has no argument pading, .*Did you mean 'padding'",
        ),
        (
            CONVOLUTION,
            ["k=[1,9]"],
            r"operator conv2d\[k=9\]: .*cannot be called: Calculated padded",
        ),
        (CONVOLUTION, ["k=[1]", "zeros=[0,1.1]"], "zeros: 1.1 is greater than the maximum of 1"),
        (
            "_jagged_to_padded_dense_forward([4:int64], 9x2, max_lengths=[{k}])",
            ["k=[5,7]"],
            "_forward.*: opcost does not know which integers its "
            r"argument 'offsets' \(4:int64\) may hold. Measure its model",
        ),
    ],
)
def test_what_the_command_line_cannot_mean_is_refused(description, axes, message):
    with pytest.raises(OpcostError) as raised:
        operator_variant(description, axes)
    assert_says(raised, message)


def test_an_operator_has_no_parts_to_explain(tmp_path, monkeypatch):
    study_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(main, ["explain", "models/conv.yaml[c=2,k=1,s=1,zeros=0]"])
    assert ended.exit_code == 1
    assert (
        "is an operator without a model, which has no parts. Its row: opcost query --tuple "
        "'conv2d(1x2x8x8, 2x2x1x1)'" in ended.stderr
    )


def test_the_points_of_a_target_have_a_table_of_operators_beside_operators_without_a_model(done):
    (done.root / "tests/study/models/relu.yaml").write_text('operator: "relu(8)"\n')
    points = {"device": "cpu", "axes": {"tf32": [False, True]}}
    configure(done, models=["tiny_mlp", "relu"], targets={"point": points})
    done.started()
    summary = (done.root / "results/summary.txt").read_text()
    assert (
        "Time of all calls of each operator on point, and the difference at other points" in summary
    )
