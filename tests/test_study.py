"""A wrong configuration is refused before anything runs, in words that say what to do."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opcost.configuration import (
    from_command_line,
    on_command_line,
    read_schema,
    targets_named_last,
)
from opcost.errors import OpcostError
from opcost.study import Conditions, ModelDefinition, load_study
from opcost.target import OperatingPoint

from tests.quick_measurement import default_measurement

CONFIG = {"models": ["net"], "targets": {"local": {"device": "cpu"}}}
MODEL = {"model": "resnet18", "inputs": [{"shape": [1, 3, 64, 64]}]}


@pytest.fixture
def load(tmp_path):
    def load(config=CONFIG, model=MODEL):
        text = model if isinstance(model, str | bytes) else yaml.safe_dump(model)
        (tmp_path / "net.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_study({"model_directory": str(tmp_path), **config})

    return load


def test_defaults_are_filled_in(load):
    study = load()
    assert study.operators is None
    assert study.conditions["local"].target.threads == 1
    assert study.conditions["local"].measurement.cache_state == "model"
    assert study.models["net"].inputs[0].shape == (1, 3, 64, 64)


def test_torchvision_can_be_switched_off(load):
    assert set(load({**CONFIG, "torchvision": None}).models) == {"net"}


def test_definitions_and_conditions_survive_json(load):
    study = load()
    definition, conditions = study.models["net"], study.conditions["local"]
    assert ModelDefinition.from_json(definition.to_json()) == definition
    assert Conditions.from_json(conditions.to_json()) == conditions


def test_a_model_is_a_file_or_has_its_config_in_the_study_or_is_one_of_torchvision(load):
    entries = ["net", {"name": "inline", **MODEL}, "resnet18"]
    file, inline, official = load({**CONFIG, "models": entries}).models.values()
    assert [file.name, inline.name, official.name] == ["net", "inline", "resnet18"]
    assert dataclasses.replace(inline, name="net") == file
    assert official.inputs[0].shape == (1, 3, 224, 224)
    ours = load({**CONFIG, "models": ["resnet18"], "model_directory": "config/models"})
    assert ours.models["resnet18"] == official


def test_a_config_in_a_study_may_have_all_that_a_file_may_have(load):
    steps = {"name": "swept", **MODEL, "axes": {"dtype": ["float32", "bfloat16"]}}
    operator = {"name": "add", "operator": "add(8, 8)"}
    study = load({**CONFIG, "models": [steps, operator]})
    assert [*study.models] == ["swept[dtype=float32]", "swept[dtype=bfloat16]", "add"]
    assert study.models_of("swept") == [*study.models][:2]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (MODEL, "models.0: 'name' is a required property"),
        ({**MODEL, "name": "../net"}, "models.0.name: '../net' is not allowed"),
        ({**MODEL, "name": "n" * 300}, "cannot name a model"),
        ({**MODEL, "name": "net", "dtype": "int4"}, "models: net is not valid:\n  dtype: 'int4'"),
        ({"name": "net"}, "models: net is not valid"),
        ("resnet81", "nor a torchvision model resnet81: write the file"),
        ("resnet81", "Did you mean 'resnet18'"),
    ],
)
def test_a_wrong_entry_of_models_is_explained(load, entry, message):
    with pytest.raises(OpcostError) as caught:
        load({**CONFIG, "models": [entry]})
    assert message in str(caught.value)


def test_two_models_of_one_name_are_refused(load):
    with pytest.raises(OpcostError, match="models: net is there twice"):
        load({**CONFIG, "models": ["net", {"name": "net", **MODEL}]})


NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Co", "Cn", "Zp")))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS | st.sampled_from(["1", "true", "null", '"x"', "[1]", "{a}", "1e5", "NaN", "a: b"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), PLAIN) | NAMES))
def test_snakemake_reads_on_its_command_line_what_a_configuration_says(models):
    from snakemake.cli import parse_config

    read = parse_config([f"models={on_command_line(models)}"])
    assert from_command_line(read) == {"models": models}


def test_the_shipped_configuration_is_valid():
    config = yaml.safe_load(Path("config/config.yaml").read_text())
    names = [path.stem for path in Path("config/models").glob("*.yaml")]
    study = load_study({**config, "models": names})
    steps = [step for name in names for step in study.models_of(name)]
    assert set(study.models) == set(steps)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**CONFIG, "modles": []}, "Unknown key 'modles'. Did you mean 'models' or"),
        ({"targets": CONFIG["targets"]}, "neither `models` nor `torchvision` names a model"),
        ({**CONFIG, "models": [".net"]}, "with no dot at its start"),
        ({"models": ["net"]}, "'targets' is a required property"),
        ({**CONFIG, "models": ["ent"]}, "Did you mean 'net' or"),
        (
            {**CONFIG, "measurement": {"cache_state": "hot"}},
            "'hot' is not one of ['model', 'cold', 'warm']",
        ),
        ({**CONFIG, "measurement": {"max_time": 1}}, "Did you mean 'max_time_s'"),
        ({**CONFIG, "measurement": {"max_time_s": 0.05}}, "min_time_s (0.1) exceeds"),
        (
            {**CONFIG, "measurement": {"operation": "sustained", "energy": False}},
            "use operation: burst, or energy: true",
        ),
        ({**CONFIG, "targets": {"local": {"device": "gpu"}}}, "targets.local.device: 'gpu'"),
        ({**CONFIG, "targets": {"local": {"device": "cpu", "threads": 0}}}, "threads: 0 is less"),
        ({**CONFIG, "targets": {"x": {"device": "cpu\n"}}}, r"'cpu\n' is not allowed"),
        ({**CONFIG, "targets": {"x\n": {"device": "cpu"}}}, "keys are printable strings"),
        (
            {**CONFIG, "targets": {True: {"device": "cpu"}}},
            "has the key True: keys are printable strings",
        ),
        ({**CONFIG, "model_directory": "\0"}, "without null characters"),
        ({**CONFIG, "measurement": {"timeout_s": math.nan}}, "measurement.timeout_s is nan: only"),
        ({**CONFIG, "measurement": {"timeout_s": 10**400}}, "greater than the maximum of 604800"),
        ({**CONFIG, "measurement": {"max_time_s": "6e1"}}, "it is a string; in YAML write 60.0 ("),
        ({**CONFIG, "measurement": {"seed": "1e3"}}, "it is a string; in YAML write 1000 ("),
        ({**CONFIG, "operators": "none"}, "operators: 'none' is not allowed ("),
        ({**CONFIG, "max_device_time_s": 0}, "max_device_time_s: 0 is not greater than 0 ("),
        ({**CONFIG, "targets": {"tuples": {"device": "cpu"}}}, "give the target another name"),
        (
            {**CONFIG, "targets": {"local": {"device": "cpu", "power_limit_w": 300}}},
            "its device is cpu, which has max_frequency_mhz, numa_node, huge_pages instead",
        ),
        (
            {**CONFIG, "targets": {"x": {"device": "cuda:1", "max_frequency_mhz": 2000}}},
            "such as device: cpu",
        ),
        (
            {
                **CONFIG,
                "targets": {"x": {"device": "cuda", "sm_clock_mhz": 9, "any_of_kind": True}},
            },
            "targets.x.sm_clock_mhz is 9, and any_of_kind true: it is set on one device",
        ),
        (
            {**CONFIG, "targets": {"x": {"device": "cuda", "power_limit_w": 0}}},
            "power_limit_w: 0 is less than the minimum of 1",
        ),
        (
            {**CONFIG, "targets": {"local": {"device": "cuda", "cluster": {"gpu_model": "3090"}}}},
            "targets.local.cluster.gpu_model: '3090' is not allowed",
        ),
    ],
)
def test_a_wrong_configuration_is_explained(load, config, message):
    with pytest.raises(OpcostError) as caught:
        load(config)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({**MODEL, "memroy_format": "x"}, "Did you mean 'memory_format'?"),
        ({**MODEL, "kwargs": {"mask": 1}}, "Arguments of forward belong to inputs"),
        ({**MODEL, "inputs": {"x": 1}}, "inputs: {'x': 1} has no tensor"),
        ({**MODEL, "factory": "a:b"}, "top level: it has model and factory (Give either model"),
        ({"inputs": MODEL["inputs"]}, "it has neither model nor factory (Give either"),
        ({**MODEL, "inputs": [{"shape": [1, 0]}]}, "inputs.0.shape.1: 0 is less than the minimum"),
        ("model: [", "is not valid YAML"),
        (b"model: \xff", "is not UTF-8 text"),
        ("&a [*a]", "nests values too deep"),
        ("", "'inputs' is a required property"),
    ],
)
def test_a_wrong_model_config_is_explained_with_its_file(load, model, message):
    with pytest.raises(OpcostError) as caught:
        load(model=model)
    assert message in str(caught.value)
    assert "net.yaml" in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
SETTINGS = read_schema("config")["properties"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=VALUES)
def test_any_value_in_a_configuration_is_allowed_or_an_error_of_ours(load, data, value):
    config = copy.deepcopy(CONFIG)
    section, keys = data.draw(
        st.sampled_from(
            [
                (config, SETTINGS),
                (config.setdefault("measurement", {}), SETTINGS["measurement"]["properties"]),
                (config["targets"]["local"], ["device", "threads", "tf32", "cluster"]),
            ]
        )
    )
    section[data.draw(st.sampled_from(sorted(keys)))] = value
    try:
        study = load(config)
    except OpcostError:
        return
    for each in study.conditions.values():
        assert json.loads(each.to_json(), parse_constant=pytest.fail)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_for_a_model_config_are_an_error_of_ours(load, content):
    with pytest.raises(OpcostError):
        load(model=content)


def test_the_conditions_of_a_configuration_are_the_same_text_as_ever(load):
    """In the settings that change what a number means, another text measures everything again."""
    changed = {"timeout_s": 300, "max_time_s": 3, "batch_s": 0.02}
    conditions = load({**CONFIG, "measurement": changed}).conditions["local"]
    assert conditions.to_json() == (
        '{"measurement": {"batch_s": 0.02, "cache_state": "model", "idle_s": 0.3, '
        '"max_repeats": 2, "max_time_s": 3, "min_batches": 10, "min_time_s": 0.1, '
        '"model_time_s": 1.0, "power_lead_in_max_s": 5.0, "power_max_s": 12.0, '
        '"power_min_s": 1.5, "power_relative_ci": 0.01, "repeat_pause_s": 5.0, "seed": 0, '
        '"time_relative_ci": 0.01, "timeout_s": 300, "warm_up_s": 0.1}, "protocol_version": 7, '
        '"target": {"device": "cpu", "tf32": false, "threads": 1}}'
    )


LOCAL, GPU = {"local": {"device": "auto"}}, {"gpu": {"device": "cuda"}}


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        ([{}], {"local", "gpu"}),
        ([{"targets": GPU}], {"gpu"}),
        ([{"targets": GPU}, {"models": []}], {"gpu"}),
        ([{"targets": GPU}, {"targets": LOCAL}], {"local"}),
        ([{"targets": LOCAL | GPU}], {"local", "gpu"}),
    ],
)
def test_the_targets_are_those_that_are_named_last(sources, names):
    merged = {"models": ["net"], "targets": LOCAL | GPU}
    chosen = targets_named_last(merged, sources)
    assert chosen == merged | {"targets": {name: merged["targets"][name] for name in names}}


def test_the_default_settings_are_those_of_a_study_that_changes_none(load):
    study = load(CONFIG)
    defaults = default_measurement()
    assert study.conditions["local"].measurement == defaults


def test_what_a_cluster_is_asked_for_is_no_condition(load):
    asked = {"gpu_model": "h100", "partition": "gpu", "constraint": "big", "exclusive": True}
    study = load({**CONFIG, "targets": {"local": {"device": "cpu", "cluster": asked}}})
    assert dataclasses.asdict(study.cluster_requests["local"]) == asked
    assert study.conditions == load(CONFIG).conditions


POINTS = {"device": "cuda:0", "axes": {"power_limit_w": [None, 300, 200]}}


def test_operating_points_are_axes_of_a_target_and_other_conditions(load):
    found = load({**CONFIG, "targets": {"gpu": POINTS}}).conditions
    assert [*found] == [f"gpu[power_limit_w={limit}]" for limit in ("none", 300, 200)]
    points = [each.target.operating_point for each in found.values()]
    assert points == [OperatingPoint(limit) for limit in (None, 300, 200)]
    assert len({each.to_json() for each in found.values()}) == 3
    for each in found.values():
        assert Conditions.from_json(each.to_json()) == each
    # Conditions from before there were points stay equal.
    assert "power_limit_w" not in found["gpu[power_limit_w=none]"].to_json()


def test_any_device_of_a_kind_is_another_condition(load):
    some = load({**CONFIG, "targets": {"local": {"device": "cpu", "any_of_kind": True}}})
    one = load(CONFIG).conditions["local"].to_json()
    assert some.conditions["local"].to_json() != one
    assert Conditions.from_json(some.conditions["local"].to_json()) == some.conditions["local"]
    assert "any_of_kind" not in one  # conditions from before it existed stay equal
