"""The arguments of forward, as a config writes them: positional or by name, nested, of any type."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from opcost.costs.model_argument import parse_input
from opcost.errors import OpcostError
from opcost.measuring.workload import model_workload
from opcost.models.configs import define_models, load_model, read_arguments
from opcost.models.construction import build
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.inputs import Arguments, arranged, example_inputs
from opcost.models.variants import with_batch
from opcost.runs.live_module import save_model
from opcost.tuples.extraction import extract_model_tuples
from torch import nn

NAMES = st.text("abcxyz", min_size=1, max_size=3)
CONSTANTS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-1, 1) | NAMES
TENSORS = st.builds(lambda size: {"shape": [size, 2]}, st.integers(1, 9))
NESTED = st.recursive(
    TENSORS | CONSTANTS,
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(NAMES, each, max_size=3)
        | st.builds(lambda values: {"tuple": values}, st.lists(each, max_size=3))
    ),
    max_leaves=8,
)

TAGGER = """
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 8)

    def forward(self, batch, *, mask, normalise=False, sizes=(), past=None):
        assert past is None and isinstance(sizes, tuple) and len(sizes) == 2
        found = self.words(batch["ids"]) * mask
        return found.softmax(-1) if normalise else found
"""
KEYWORDS = {
    "batch": {"ids": {"shape": [2, 5], "dtype": "int64", "high": 100}},
    "mask": {"shape": [2, 5, 1], "dtype": "bool", "low": 1},
    "normalise": True,
    "sizes": {"tuple": [3, {"shape": [2]}]},
    "past": None,
}


def defined(inputs, directory, **config):
    document = {"model": "alexnet", "inputs": inputs, **config}
    return define_models("net", document, directory, "net").models["net"]


def filled(document, values):
    """What a document stands for, with the next of the values for each tensor."""
    if isinstance(document, list):
        return [filled(each, values) for each in document]
    if isinstance(document, dict) and "shape" in document:
        return next(values)
    if isinstance(document, dict) and list(document) == ["tuple"]:
        return tuple(filled(document["tuple"], values))
    if isinstance(document, dict):
        return {key: filled(each, values) for key, each in document.items()}
    return document


@given(st.lists(NESTED, min_size=1, max_size=3) | st.dictionaries(NAMES, NESTED, min_size=1))
def test_arguments_are_passed_as_the_config_writes_them(document):
    assume("shape" in str(document))
    inputs, arrangement = read_arguments(document, "net")
    definition = ModelDefinition("net", inputs, arrangement=arrangement)
    definition = ModelDefinition.from_json(definition.to_json())
    numbers = range(len(inputs))
    found, expected = arranged(definition.arrangement, numbers), filled(document, iter(numbers))
    by_name = isinstance(document, dict)
    assert found == (Arguments((), expected) if by_name else Arguments(expected, {}))


def test_what_a_definition_does_not_say_is_not_in_its_json(tmp_path):
    """It decides whether a model is measured again, and a later key may say nothing, too."""
    found = json.loads(defined([{"shape": [1, 3, 64, 64]}], tmp_path).to_json())
    assert found["inputs"] == [{"shape": [1, 3, 64, 64], "dtype": None, "high": None}]
    assert not {"arrangement", "dtype", "layer"} & found.keys()


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("what", [{"model": "resnet18"}, {"factory": "nets:tagger"}])
def test_a_definition_is_the_same_after_it_was_written(what, dtype):
    found = ModelDefinition("net", (InputSpec((1, 3)),), **what, dtype=dtype)
    assert ModelDefinition.from_json(found.to_json()) == found
    kept = replace(found, dtype=None).to_json()
    converts = dtype == "bfloat16" or (dtype == "float32" and "factory" in what)
    assert (found.to_json() != kept) == converts


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": {"dtype": "int64"}}, "inputs.x: it has dtype, but no shape"),
        ({"x": {"shap": [1, 2]}}, "has no tensor"),
        ({"shape": [1, 2]}, "is a tensor: write the arguments as a list"),
        ([{"shape": [1], "high": 3, "low": 3}], "inputs.0.high: 3 is not greater than low"),
        ([{"shape": [1], "dtype": "int64", "high": 2.5}], "inputs.0: low and high of int64"),
        ([{"shape": [1], "dtype": "bool", "low": -1}], "give numbers from 0 to 2 for bool"),
        ([{"shape": [1], "dtype": "int32", "high": 2**31}], "give numbers from -2147"),
        ([{"shape": [1], "dtype": "complex64", "high": 3}], "complex numbers have no range"),
        ([[{"shape": [0]}]], "inputs.0.0.shape.0: 0 is less than the minimum"),
        ({"x": [{"shape": [1], "hihg": 3}]}, "inputs.x.0: Unknown key 'hihg'. Did you mean 'high'"),
        ([], "inputs: [] should be non-empty"),
        ("1x3", "inputs: '1x3' is not of type"),
    ],
)
def test_inputs_that_cannot_be_are_explained(inputs, message, tmp_path):
    with pytest.raises(OpcostError) as caught:
        defined(inputs, tmp_path)
    assert message in str(caught.value)


def test_one_list_of_all_inputs_is_written_once(tmp_path):
    with pytest.raises(OpcostError, match="inputs_in_list: it is true, but"):
        defined([[{"shape": [3, 64, 64]}]], tmp_path, inputs_in_list=True)


def test_values_are_within_their_range():
    specs = [
        InputSpec((1000,), "int64", 5, 2),
        InputSpec((1000,), "float32", 3.0, -1.0),
        InputSpec((1000,), "bool", None, 1),
        InputSpec((1000,), "float32"),
    ]
    found = example_inputs(ModelDefinition("net", tuple(specs))).args
    assert set(found[0].tolist()) == {2, 3, 4}
    assert -1 <= found[1].min() < -0.9
    assert 2.9 < found[1].max() < 3
    assert found[2].all()
    assert found[3].std() == pytest.approx(1, rel=0.2)


@pytest.fixture
def tagger(tmp_path):
    (tmp_path / "tagger.py").write_text(TAGGER)
    config = {"factory": "tagger.py:Tagger", "inputs": KEYWORDS}
    (tmp_path / "tagger.yaml").write_text(yaml.safe_dump(config))
    return load_model("tagger", tmp_path)


def test_a_model_is_extracted_and_run_with_keyword_arguments(tagger, tmp_path, cpu):
    operators = [
        record.operator_tuple.name for record in extract_model_tuples(tagger, tmp_path).tuples
    ]
    assert operators == ["embedding", "mul", "softmax"]
    assert tagger.batch_size == 2


def test_a_workload_copies_tensors_and_keeps_other_values(cpu):
    class Net(nn.Module):
        def forward(self, pair, scale):
            assert isinstance(pair, tuple)
            return pair[0] * scale if pair[1] is None else pair[1]

    inputs = Arguments([(torch.ones(3), None)], {"scale": 2})
    workload = model_workload(Net(), inputs, cpu, "cold")
    workload.run(2)
    assert workload.output().tolist() == [2.0, 2.0, 2.0]


def test_a_batch_size_is_that_of_each_tensor():
    found = with_batch(KEYWORDS, 7)
    assert found["batch"]["ids"]["shape"] == [7, 5]
    assert found["sizes"] == {"tuple": [3, {"shape": [7]}]}
    assert found["normalise"] is True
    for nothing in ([{"shape": []}], {"x": {"shape": 3}}):
        with pytest.raises(ValueError, match="no batch dimension"):
            with_batch(nothing, 7)


class Scaled(nn.Module):
    """Takes what a config can write."""

    def forward(self, x, options, *, mask=None):
        x = x * options["scale"]
        return x if mask is None else x.masked_fill(~mask, 0.0)


@pytest.mark.parametrize("value", [True, False])
def test_a_live_module_is_saved_with_all_its_arguments(tmp_path, value):
    mask = torch.full((2, 3), value)
    inputs = [torch.ones(2, 3), {"scale": 2.0, "others": (1, None)}]
    _, path = save_model(Scaled(), inputs, {"mask": mask}, "scaled", tmp_path)
    document = yaml.safe_load((tmp_path / path).read_text())
    assert document["inputs"] == {
        "x": {"shape": [2, 3]},
        "options": {"scale": 2.0, "others": {"tuple": [1, None]}},
        "mask": {"shape": [2, 3], "dtype": "bool", "low": int(value), "high": value + 1},
    }
    drawn = example_inputs(load_model("scaled", (tmp_path / path).parent))
    assert drawn.kwargs["mask"].equal(mask)
    assert drawn.kwargs["options"] == inputs[1]


def test_a_live_module_is_saved_with_the_autocast_that_is_active(tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        found, path = save_model(nn.Linear(3, 4), [X], {}, "linear", tmp_path)
    defined = load_model("linear", (tmp_path / path).parent)
    assert defined.autocast == "bfloat16"
    assert replace(found, definition=defined).precision == "float32, autocast bfloat16"


X = torch.ones(2, 3)


class Pixels(nn.Module):
    """Normalises them."""

    def forward(self, image):
        return image / 255


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.tensor([[0, 255]], dtype=torch.uint8), "1x2:uint8<256"),
        (torch.tensor([[0, 127]], dtype=torch.int8), "1x2:int8<128"),
        (torch.tensor([[0, 4]], dtype=torch.int16), "1x2:int16<5"),
        (torch.tensor([[True, False]]), "1x2:bool"),
        (torch.ones(1, 2, dtype=torch.float64), "1x2:float64"),
        (torch.ones(1, 2, dtype=torch.complex64), "1x2:complex64"),
    ],
)
def test_an_input_is_the_same_for_a_command_and_for_a_live_module(tmp_path, tensor, text):
    _, path = save_model(Pixels(), [tensor], {}, "pixels", tmp_path)
    defined = load_model("pixels", (tmp_path / path).parent)
    assert defined.inputs == (parse_input(text),)
    [drawn] = example_inputs(defined).args
    assert (drawn.dtype, drawn.shape) == (tensor.dtype, tensor.shape)


@pytest.mark.parametrize("body", [torch.bfloat16, torch.float64])
def test_a_live_module_is_saved_in_its_dtypes(tmp_path, monkeypatch, body):
    monkeypatch.chdir(tmp_path)
    net = nn.Sequential(nn.Linear(3, 4).to(body), Cast(), nn.LayerNorm(4))
    _, path = save_model(net, [X.to(body)], {}, "net", tmp_path)
    built = build(load_model("net", path.parent))
    assert [each.dtype for each in built.parameters()] == [body] * 2 + [torch.float32] * 2
    assert load_model("net", path.parent).inputs == (InputSpec((2, 3)),)


class Cast(nn.Module):
    """Between two dtypes."""

    def forward(self, x):
        return x.float()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X, {"scale": 2, "others": object()}], r"inputs\[1\]\['others'\] is a object"),
        ([X, {"scale": np.float64(2)}], r"inputs\[1\]\['scale'\] is a float64"),
        ([X, {"scale": 2, "shape": [2]}], r"inputs\[1\] is a dict: .*keys are strings other than"),
        ([X, {"scale": X}], "two arguments are the same tensor"),
        ([X, {"scale": torch.ones(2, 3, dtype=torch.uint16)}], "has dtype uint16: give"),
    ],
)
def test_a_live_module_whose_arguments_no_config_can_write_is_refused(inputs, message, tmp_path):
    with pytest.raises(OpcostError, match=message):
        save_model(Scaled(), inputs, {}, "scaled", tmp_path)
