"""A wrong configuration is refused before anything runs, in words that say what to do."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from opcost.errors import OpcostError
from opcost.study import Conditions, ModelDefinition, default_measurement, load_study

SCHEMAS = Path("workflow/schemas")
CONFIG = {"models": ["net"], "targets": {"local": {"device": "cpu"}}}
MODEL = {"model": "resnet18", "inputs": [{"shape": [1, 3, 64, 64]}]}


@pytest.fixture
def load(tmp_path):
    def load(config=CONFIG, model=MODEL):
        text = model if isinstance(model, str) else yaml.safe_dump(model)
        (tmp_path / "net.yaml").write_text(text)
        return load_study({"model_directory": str(tmp_path), **config}, SCHEMAS)

    return load


def test_defaults_are_filled_in(load):
    study = load()
    assert study.operators is None
    assert study.conditions["local"].target.threads == 1
    assert study.conditions["local"].measurement.cache_state == "model"
    assert study.models["net"].inputs[0].shape == (1, 3, 64, 64)


def test_definitions_and_conditions_survive_json(load):
    study = load()
    definition, conditions = study.models["net"], study.conditions["local"]
    assert ModelDefinition.from_json(definition.to_json()) == definition
    assert Conditions.from_json(conditions.to_json()) == conditions


def test_the_shipped_configuration_is_valid():
    config = yaml.safe_load(Path("config/config.yaml").read_text())
    names = [path.stem for path in Path("config/models").glob("*.yaml")]
    assert set(load_study({**config, "models": names}, SCHEMAS).models) == set(names)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**CONFIG, "modles": []}, "Unknown key 'modles'. Did you mean 'models'?"),
        ({**CONFIG, "models": []}, "neither `models` nor `torchvision` names a model"),
        ({"models": ["net"]}, "'targets' is a required property"),
        ({**CONFIG, "models": ["ent"]}, "Did you mean 'net'?"),
        (
            {**CONFIG, "measurement": {"cache_state": "hot"}},
            "'hot' is not one of ['model', 'cold', 'warm']",
        ),
        ({**CONFIG, "measurement": {"max_time": 1}}, "Did you mean 'max_time_s'"),
        ({**CONFIG, "measurement": {"max_time_s": 0.1}}, "min_time_s (0.3) exceeds"),
        ({**CONFIG, "targets": {"local": {"device": "gpu"}}}, "targets.local.device: 'gpu'"),
        ({**CONFIG, "targets": {"local": {"device": "cpu", "threads": 0}}}, "threads: 0 is less"),
        ({**CONFIG, "operators": "conv2d"}, "operators: 'conv2d' is not valid"),
        (
            {**CONFIG, "targets": {"local": {"device": "cuda", "cluster": {"gpu_model": "3090"}}}},
            "targets.local.cluster.gpu_model: '3090' does not match",
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
        ({**MODEL, "factory": "a:b"}, "Give either model"),
        ({"inputs": MODEL["inputs"]}, "Give either model"),
        ({**MODEL, "inputs": [{"shape": [1, 0]}]}, "inputs.0.shape.1: 0 is less than the minimum"),
        ({**MODEL, "inputs": [{"shape": [1, "3"]}]}, "inputs.0.shape.1: '3' is not of type"),
        ({**MODEL, "dtype": "float23"}, "'float23' is not one of"),
        ("model: [", "is not valid YAML"),
        ("", "'inputs' is a required property"),
    ],
)
def test_a_wrong_model_config_is_explained_with_its_file(load, model, message):
    with pytest.raises(OpcostError) as caught:
        load(model=model)
    assert message in str(caught.value)
    assert "net.yaml" in str(caught.value)


def test_comments_in_a_factory_do_not_change_its_definition(load, tmp_path):
    model = {"factory": "source:build", "inputs": [{"shape": [1]}]}
    definitions = []
    for text in ("def build(): return 1", "# why\ndef build():\n    return 1", "def build(): ..."):
        (tmp_path / "source.py").write_text(text)
        definitions.append(load(model=model).models["net"].to_json())
    assert definitions[0] == definitions[1] != definitions[2]


def test_the_default_settings_are_those_of_a_study_that_changes_none(load):
    study = load(CONFIG)
    defaults = default_measurement(SCHEMAS)
    assert study.conditions["local"].measurement == defaults


def test_what_a_cluster_is_asked_for_is_no_condition(load):
    asked = {"gpu_model": "h100", "partition": "gpu", "constraint": "big", "exclusive": True}
    study = load({**CONFIG, "targets": {"local": {"device": "cpu", "cluster": asked}}})
    assert dataclasses.asdict(study.cluster_requests["local"]) == asked
    assert study.conditions == load(CONFIG).conditions


def test_any_device_of_a_kind_is_another_condition(load):
    some = load({**CONFIG, "targets": {"local": {"device": "cpu", "any_of_kind": True}}})
    one = load(CONFIG).conditions["local"].to_json()
    assert some.conditions["local"].to_json() != one
    assert Conditions.from_json(some.conditions["local"].to_json()) == some.conditions["local"]
    assert "any_of_kind" not in one  # conditions from before it existed stay equal
