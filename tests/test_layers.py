"""Layers: a module of a model is a model of its own, run on what it gets inside the model."""

from pathlib import Path

import pytest
import torch
from opcost.costs.comparison import compare
from opcost.errors import OpcostError
from opcost.measuring import benchmark
from opcost.measuring.subjects import ModelSubject
from opcost.models import construction
from opcost.models.configs import define_models
from opcost.models.definition import ModelDefinition
from opcost.models.inputs import Arguments
from opcost.models.iteration import narrowed
from opcost.runs.layers import _calls, _kinds, _rest
from opcost.tuples.extraction import extract_model_tuples

from tests.comparisons import row
from tests.quick_measurement import QUICK
from tests.stations import station_of
from tests.test_in_context import estimate, whole

RESNET = {"model": "resnet18", "inputs": [{"shape": [1, 3, 32, 32]}]}


def defined(**config):
    return define_models("net", {**RESNET, **config}, Path(), "net.yaml").models


def test_a_config_stands_for_the_model_and_each_layer_that_it_lists():
    models = defined(layers=["conv1", "layer1.0"])
    assert [*models] == ["net", "net[layer=conv1]", "net[layer=layer1.0]"]
    assert [each.layer for each in models.values()] == [None, "conv1", "layer1.0"]
    assert {name: each.name for name, each in models.items()} == {name: name for name in models}


def test_definitions_of_layers_survive_json_and_those_of_models_are_as_before():
    model, layer = defined(layers=["conv1"]).values()
    assert ModelDefinition.from_json(layer.to_json()) == layer
    assert "layer" not in model.to_json().replace("net[layer", "")


def test_a_layer_makes_the_calls_that_it_makes_in_the_model():
    model, layer = (extract_model_tuples(each) for each in defined(layers=["layer2.0"]).values())
    inside = [
        model.tuples[call.position].operator_tuple
        for call in model.calls
        if call.module_path.startswith("layer2.0")
    ]
    assert [layer.tuples[call.position].operator_tuple for call in layer.calls] == inside
    assert layer.calls[0].module_path == "conv1"


class Doubling(torch.nn.Module):
    """Calls a layer twice, by position and name, and overwrites its first argument."""

    def __init__(self):
        super().__init__()
        self.layer, self.unused = Scaled(), Scaled()

    def forward(self, x):
        given = x + 1
        first = self.layer(given, factor=3.0)
        given.zero_()
        return self.layer(first, factor=5.0)


class Scaled(torch.nn.Module):
    def forward(self, x, factor):
        return x * factor


def test_a_layer_gets_the_arguments_of_its_first_call_with_their_values():
    x = torch.arange(4.0)
    layer, inputs = narrowed(Doubling(), Arguments((x,), {}), "layer")
    assert torch.equal(inputs.args[0], x + 1)
    assert inputs.kwargs == {"factor": 3.0}
    assert torch.equal(layer(*inputs.args, **inputs.kwargs), 3 * (x + 1))


class Itself(torch.nn.Module):
    """Tells whether its arguments are one tensor, and how they lie in memory."""

    def forward(self, x, y, view):
        return x is y, view.stride(), view.untyped_storage()._cdata == x.untyped_storage()._cdata


class Calls(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Itself()

    def forward(self, x):
        return self.layer(x, x, x[:, ::2].expand(4, 2))


def test_arguments_that_are_one_tensor_or_one_memory_stay_so():
    layer, inputs = narrowed(Calls(), Arguments((torch.zeros(1, 4),), {}), "layer")
    assert layer(*inputs.args) == (True, (0, 2), True)


def test_a_layer_that_is_run_several_times_counts_as_often():
    model, layer = (
        extract_model_tuples(each) for each in defined(layers=["layer1.0.relu"]).values()
    )
    [relu] = [paths for paths in _kinds(model) if "layer1.0.relu" in paths]
    assert _calls(model, ["layer1.0.relu"], layer) == 2
    assert _calls(model, relu, layer) == 4
    assert _calls(model, ["layer1.0"], layer) is None


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("layers", "the model has no module 'layers'. Did you mean 'layer'?"),
        ("unused", "its forward does not call the module unused"),
    ],
)
def test_a_layer_that_is_not_run_is_explained(layer, message):
    with pytest.raises(OpcostError, match=message):
        narrowed(Doubling(), Arguments((torch.ones(2),), {}), layer)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "training", "loss": "cross_entropy"}, "an isolated module is run in inference"),
        ({"layers": ["conv1", "conv1"]}, "layers"),
        ({"layers": ["conv1..weight"]}, "layers"),
        ({"layers": []}, "layers"),
    ],
)
def test_layers_that_cannot_be_are_refused(config, message):
    with pytest.raises(OpcostError, match=message):
        defined(**{"layers": ["conv1"], **config})


def test_a_layer_is_measured_like_a_model(cpu):
    layer = defined(layers=["layer1.0"])["net[layer=layer1.0]"]
    extracted = extract_model_tuples(layer)
    found = benchmark.measure(ModelSubject(layer, None, extracted), station_of(cpu, QUICK))
    assert (found["status"], found["differing_calls"]) == ("ok", [])
    assert len(found["call_tuple_id"]) == len(extracted.calls)


def test_what_layers_leave_of_a_model_adds_up_to_all_of_it():
    model = extract_model_tuples(defined()["net"])
    kernels = sum(count for _, count in model.kernels())
    found = estimate(model, whole(model, 1e-3, 0.1))
    layers = [path for paths in _kinds(model) for path in paths]
    others, between, total = _rest(found.in_context, layers, compare(found))
    assert [each["layer"] for each in (others, between, total)] == list(LAST_ROWS)
    assert (others["in context"][:7], others["time share"]) == ("8.00 ms", "8.0%")  # additions
    assert between["time share"] == f"{100 - kernels}.0%"
    unmeasured = estimate(model, row(0.1))
    [alone] = _rest(unmeasured.in_context, layers, compare(unmeasured))
    assert alone["layer"] == "(end to end)"


LAST_ROWS = ("(other calls)", "(between calls)", "(end to end)")


def test_equal_layers_of_a_model_are_one_kind():
    model = extract_model_tuples(defined()["net"])
    kinds = {paths[0]: paths for paths in _kinds(model)}
    assert kinds["layer1.0.conv1"] == [
        f"layer1.{block}.conv{number}" for block in (0, 1) for number in (1, 2)
    ]
    with construction.without_initialisation():
        modules = dict(construction.build(defined()["net"]).named_modules())
    leaves = {path for path, module in modules.items() if not [*module.children()]}
    assert {path for each in kinds.values() for path in each} == leaves
