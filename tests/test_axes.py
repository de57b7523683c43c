"""Axes: a config with lists of values stands for a model of each combination."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opcost.errors import OpcostError
from opcost.models.axes import expand, text, value_of
from opcost.models.configs import define_models, load_model
from opcost.study import load_study, without_axes

SHAPE = ["$batch", 3, "$size", "$size"]
SWEEP = {
    "model": "resnet18",
    "inputs": [{"shape": SHAPE}],
    "axes": {"batch": [1, 8], "size": [32, 64]},
}
IMAGES = {"model": "resnet18", "inputs": [{"shape": [1, 3, 32, 32]}]}
CHAT = {
    "model": "transformers:LlamaForCausalLM",
    "inputs": {"input_ids": {"shape": ["$batch", 8], "dtype": "int64", "high": 100}},
    "generation": {"new_tokens": 4, "cache_lengths": [8, 10]},
    "axes": {"batch": [1, 2]},
}


def defined(**config):
    return define_models("net", config, Path(), "net.yaml")


def test_each_combination_is_a_model_named_by_its_values():
    found = defined(**SWEEP)
    assert [*found.models] == [
        "net[batch=1,size=32]",
        "net[batch=1,size=64]",
        "net[batch=8,size=32]",
        "net[batch=8,size=64]",
    ]
    assert found.models["net[batch=8,size=64]"].inputs[0].shape == (8, 3, 64, 64)
    assert found.points["net[batch=8,size=64]"] == {"batch": 8, "size": 64}
    assert {name: each.name for name, each in found.models.items()} == {n: n for n in found.models}


values = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)


@settings(max_examples=20)
@given(values, values, values)
def test_a_model_stays_what_it_is_when_an_axis_grows(batches, sizes, more):
    """Therefore nothing of it is measured again."""
    axes = {"batch": batches, "size": sizes}
    grown = axes | {"batch": [*dict.fromkeys([*more, *batches])]}
    before, after = (defined(**SWEEP | {"axes": each}).models for each in (axes, grown))
    assert len(before) == len(batches) * len(sizes)
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    ("config", "read", "expected"),
    [
        ({"axes": {"dtype": ["float64", "bfloat16"]}}, lambda m: m.dtype, ["float64", "bfloat16"]),
        ({"axes": {"autocast": [None, "bfloat16"]}}, lambda m: m.autocast, [None, "bfloat16"]),
        (
            {"autocast": "float16", "axes": {"autocast": [None, "bfloat16"]}},
            lambda m: m.autocast,
            [None, "bfloat16"],
        ),
        (
            {"axes": {"arguments.num_classes": [10, 20]}},
            lambda m: m.arguments,
            [{"num_classes": 10}, {"num_classes": 20}],
        ),
        (
            {"model": "resnet$depth", "axes": {"depth": [18, 34]}},
            lambda m: m.model,
            ["resnet18", "resnet34"],
        ),
        (
            {"arguments": {"zero_init_residual": "$zero"}, "axes": {"zero": [True, False]}},
            lambda m: m.arguments["zero_init_residual"],
            [True, False],
        ),
    ],
    ids=["a key", "null", "null over a value", "an argument", "a part of a word", "a boolean"],
)
def test_an_axis_is_a_key_or_a_place_in_the_config(config, read, expected):
    assert [read(each) for each in defined(**IMAGES | config).models.values()] == expected


def test_braces_end_the_name_of_an_axis_before_more_letters():
    for depth in ("{depth}", "${depth}"):
        config = IMAGES | {"model": f"resnet{depth}", "axes": {"depth": [18]}}
        assert defined(**config).models["net[depth=18]"].model == "resnet18"
    whole = IMAGES | {"arguments": {"num_classes": "{n}"}, "axes": {"n": [10]}}
    assert defined(**whole).models["net[n=10]"].arguments == {"num_classes": 10}


def test_null_creates_no_keys_on_its_way():
    [without, with_it] = expand(
        "net", {"axes": {"optimizer.momentum": [None, 0.9]}}, "net.yaml", {"optimizer"}
    )
    assert without.config == {}
    assert with_it.config == {"optimizer": {"momentum": 0.9}}


def test_a_key_may_begin_like_another():
    axes = {"optimizer": ["SGD"], "optimizer_steps": [1]}
    [point] = expand("net", {"axes": axes}, "net.yaml", axes.keys())
    assert point.config == {"optimizer": "SGD", "optimizer_steps": 1}


def test_names_have_the_last_part_of_a_key_and_values_as_yaml_writes_them():
    axes = {"arguments.zero_init_residual": [True], "autocast": [None]}
    assert [*defined(**IMAGES, axes=axes).models] == ["net[zero_init_residual=true,autocast=none]"]


def test_skipped_combinations_are_no_models():
    skip = [{"batch": 8, "size": 64}, {"batch": 1, "size": [32, 64]}]
    assert [*defined(**SWEEP, skip=skip).models] == ["net[batch=8,size=32]"]


def test_steps_and_layers_are_parts_of_each_point():
    found = defined(**CHAT)
    assert [*found.models][:3] == [
        "net[batch=1,prompt=8]",
        "net[batch=1,cache=8]",
        "net[batch=1,cache=10]",
    ]
    assert [each.name for each in found.generations] == ["net[batch=1]", "net[batch=2]"]
    assert found.generations[1].batch_size == 2
    layers = defined(**SWEEP, layers=["conv1"]).models
    assert "net[batch=8,size=64,layer=conv1]" in layers


def test_a_point_is_loaded_by_its_name(tmp_path):
    (tmp_path / "net.yaml").write_text(
        "model: resnet18\ninputs: [{shape: [$batch, 3, 32, 32]}]\naxes: {batch: [1, 2]}\n"
    )
    assert load_model("net[batch=2]", tmp_path).inputs[0].shape == (2, 3, 32, 32)
    with pytest.raises(OpcostError, match=r"has no part net\[batch=3\].*net\[batch=1\]"):
        load_model("net[batch=3]", tmp_path)
    with pytest.raises(OpcostError, match="stands for several models"):
        load_model("net", tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"axes": {}}, "axes: .*Lists of values"),
        ({"axes": {"batch": []}}, "axes.batch: .*The values of an axis"),
        ({"axes": {"batch": [[1], 2]}}, r"axes.batch.0: \[1\] is not of type"),
        ({"axes": {"batch": ["a b"], "size": [32]}}, "axes.batch.0: 'a b' is not allowed"),
        ({"axes": {"batch": [1, "1"], "size": [32]}}, "axes.batch: 1 occurs twice"),
        ({"axes": {"batch": [1]}}, r"\$size is no axis: list its values under axes. Axes: \$batch"),
        (
            {"model": "resnet$sizes", "axes": {"batch": [1], "size": [32]}},
            r"\$sizes is no axis: .*write {size} for \$size",
        ),
        ({"axes": {"batch": [1], "sise": [32]}}, "axes.sise: no value of the config is .*'size'"),
        ({"axes": {"batch": [1], "size": [32], "dtipe": ["float32"]}}, "axes.dtipe: .*'dtype'"),
        (
            {"axes": {"batch": [1], "size": [32], "dtype": ["float8"]}},
            r"float8\] is not valid:\n  dtype: 'float8",
        ),
        (
            {"optimizer": "SGD", "axes": {"batch": [1], "size": [32], "optimizer.lr": [0.1]}},
            "axes.optimizer.lr: optimizer is 'SGD', which has no keys",
        ),
        (
            {"axes": {"batch": [1], "size": [32], "arguments.size": [1]}},
            "axes: size and arguments.size would both be called size",
        ),
        (
            {"axes": {"batch": [1], "size": [32], "optimizer.lr": [0.1], "optimizer": ["SGD"]}},
            "axes: optimizer and optimizer.lr would replace each other",
        ),
        (
            {"arguments": {"w": {"x": "$size"}}, "axes": {"arguments.w": [1], "size": [32]}},
            r"axes: \$size and arguments.w would replace each other",
        ),
        ({"axes": {"batch": list(range(1, 100)), "size": list(range(1, 100))}}, "9801 combinat"),
        ({"skip": [{"batch": 4}]}, "skip.0.batch: 4 is none of its values: 1, 8"),
        ({"skip": [{"bach": 8}]}, "skip.0: 'bach' is no axis. Did you mean 'batch'"),
        ({"skip": [{"batch": [1, 8]}]}, "skip: it leaves none of 4 combinations"),
    ],
)
def test_axes_that_cannot_be_are_refused(config, message):
    with pytest.raises(OpcostError, match=message):
        defined(**SWEEP | config)


def test_places_without_axes_are_no_numbers():
    with pytest.raises(OpcostError, match=r"'\$batch' is not of type 'integer'"):
        defined(model="resnet18", inputs=[{"shape": ["$batch", 3, 32, 32]}])


POINTS = {"device": "cpu", "axes": {"threads": [1, 2], "tf32": [False, True]}}


def study_of(**targets):
    return load_study({"models": [], "torchvision": {"names": ["alexnet"]}, "targets": targets})


def test_a_target_with_axes_stands_for_one_of_each_combination():
    points = {**POINTS, "skip": [{"threads": 1, "tf32": True}]}
    study = study_of(local=points, other={"device": "cpu"})
    assert [*study.conditions] == [
        "local[threads=1,tf32=false]",
        "local[threads=2,tf32=false]",
        "local[threads=2,tf32=true]",
        "other",
    ]
    assert study.conditions["local[threads=2,tf32=true]"].target.threads == 2
    [sweep] = study.target_sweeps
    assert sweep.name == "local"
    assert sweep.points["local[threads=2,tf32=true]"] == {"threads": 2, "tf32": True}


def test_points_of_targets_may_be_written_out_as_the_file_of_all_runs_does():
    expanded = without_axes({"local": POINTS})
    assert without_axes(expanded) == expanded
    assert study_of(**expanded).target_sweeps == study_of(local=POINTS).target_sweeps


def test_points_of_targets_have_the_values_of_axes_that_are_no_settings():
    """Those of places, also of targets that are written out as the file of all runs does."""
    targets = {"local": {"device": "cpu", "threads": "$n", "axes": {"n": [1, 2]}}}
    for each in (targets, without_axes(targets)):
        [sweep] = study_of(**each).target_sweeps
        assert sweep.points == {"local[n=1]": {"n": 1}, "local[n=2]": {"n": 2}}


@pytest.mark.parametrize("value", [None, True, False, 3, -0.5, 1e-30, 10**400, "a", "nan", "1x"])
def test_a_value_is_known_from_a_name(value):
    found = value_of(text(value))
    assert (found, type(found)) == (value, type(value))


def test_what_is_skipped_is_told_by_its_name():
    """For Python, true, 1 and 1.0 are the same."""
    values = {"n": [True, 1, 1.0, 0, False]}
    found = expand("net", {"x": "$n", "axes": values, "skip": [{"n": 1}, {"n": False}]}, "s", ())
    assert [each.name for each in found] == ["net[n=true]", "net[n=1.0]", "net[n=0]"]


@pytest.mark.parametrize("axis", ["tf32", "numa_node", "cluster"])
def test_a_place_of_a_target_is_not_called_like_a_setting(axis):
    target = {"device": "cpu", "threads": f"${axis}", "axes": {axis: [1, 2]}}
    with pytest.raises(OpcostError, match=f"axes.{axis}: .{axis} is a place, and a target has a"):
        study_of(local=target)


def test_a_target_is_not_both_written_out_and_a_point():
    written = {"local[threads=1]": {"device": "cpu"}}
    axes = {"local": {"device": "cpu", "axes": {"threads": [1, 2]}}}
    for targets in (written | axes, axes | written):
        with pytest.raises(OpcostError, match=r"\[threads=1\] is both written out and a point"):
            study_of(**targets)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (
            "model: resnet18\ninputs: [{shape: [$n, 3, 32, 32]}]\naxes: {n: [1, 2]}\n",
            {"device": "cpu", "threads": "$n", "axes": {"n": [1, 2]}},
        ),
        (
            "model: resnet18\ninputs: [{shape: [1, 3, 32, 32]}]\n"
            "axes: {arguments.threads: [1, 2]}\n",
            {"device": "cpu", "axes": {"threads": [1, 2]}},
        ),
        (
            "operator: 'relu(1x{threads})'\naxes: {threads: [1, 2]}\n",
            {"device": "cpu", "axes": {"threads": [1, 2]}},
        ),
    ],
    ids=["places", "keys of one label", "an operator"],
)
def test_axes_of_models_and_targets_have_different_names(tmp_path, model, target):
    (tmp_path / "net.yaml").write_text(model)
    study = {"models": ["net"], "model_directory": str(tmp_path)}
    with pytest.raises(OpcostError, match=r"targets\.local and the model net both have an axis"):
        load_study({**study, "targets": {"local": target}})
    [_] = load_study({**study, "targets": {"local": {"device": "cpu"}}}).sweeps


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            {"device": "cpu", "axes": {"threads": []}},
            r"targets.local is not valid:\n  axes.threads",
        ),
        (
            {"device": "cpu", "axes": {"threads": [0]}},
            r"targets.local\[threads=0\].threads: 0 is less",
        ),
        (
            {"device": "cpu", "axes": {"cluster.partition": ["a"]}},
            "no key that can have an axis is",
        ),
    ],
)
def test_wrong_axes_of_a_target_are_explained(target, message):
    with pytest.raises(OpcostError, match=message):
        study_of(local=target)
