"""An error in a user's module names its file and line, and what opcost can pass to it."""

import itertools
import re
import sys
from pathlib import Path

import pytest
import torch
from opcost.costs.explanation import explain
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import ModelSubject
from opcost.measuring.tracing import trace_on
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.tuples.calls import model_calls
from opcost.tuples.extraction import extract_model_tuples, extract_module_tuples
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from tests.stations import station_of

NUMBERS = itertools.count()
BLOCK = """\
import {library}
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, fails_in):
        super().__init__()
        if fails_in == "constructor":
            raise ValueError("the width is odd")
        self.fails_in = fails_in

    def forward(self, x):
        if self.fails_in == "comprehension":
            return [{{}}["key"] for _ in range(2)]
        if self.fails_in == "library":
            return {library}.half(x)
        return nn.Linear(8, 8)(x).view(3, -1)

def build(fails_in):
    if fails_in == "library only":
        return {library}.Half()
    return nn.Sequential(Block(fails_in))
"""
LIBRARY = """\
from torch import nn

def half(x):
    return x.chunk(2, dim=7)

class Half(nn.Module):
    def forward(self, x):
        return half(x)
"""


@pytest.fixture
def failing_in(tmp_path, monkeypatch):
    """Defines a model that fails in a named part of it."""
    packages, name = tmp_path / "lib" / "site-packages", f"library_{next(NUMBERS)}"
    (packages / name).mkdir(parents=True)
    (packages / name / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(packages)
    (tmp_path / f"nets_{name}.py").write_text(BLOCK.format(library=name))
    monkeypatch.chdir(tmp_path)

    def define(part):
        factory, arguments = f"nets_{name}:build", {"fails_in": part}
        return ModelDefinition("net", (InputSpec((4, 8)),), factory=factory, arguments=arguments)

    return define


def without_numbers(text):
    return re.sub(r"(nets_)?library_\d+", lambda found: "nets" if found[1] else "library", text)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("constructor", "nets.py:9 in Block.__init__: the width is odd"),
        ("forward", "in '0' (Block): nets.py:17 in Block.forward: shape '[3, -1]' is invalid"),
        ("comprehension", "in '0' (Block): nets.py:14 in Block.forward: KeyError: 'key'"),
        ("library", "in '0' (Block): nets.py:16 in Block.forward: Dimension out of range"),
        ("library only", "in Half: library/__init__.py:4 in half: Dimension out of range"),
    ],
)
def test_the_line_is_the_users_or_else_the_librarys(failing_in, tmp_path, part, message):
    with pytest.raises(OpcostError) as caught:
        model_calls(failing_in(part), tmp_path)
    assert message in without_numbers(str(caught.value))


def test_a_row_and_a_recording_have_the_line_once(
    failing_in, cpu, conditions, watch, tiny_tuples, tmp_path
):
    model = failing_in("forward")
    row = measure(ModelSubject(model, tmp_path), station_of(cpu, conditions, watch))
    recorded = trace_on(cpu, model, tmp_path, tiny_tuples[0])
    for said in (row["error"], recorded.not_recorded):
        assert without_numbers(said).count("nets.py:17 in Block.forward: shape") == 1
        assert said.count(".py:") == 1


def test_a_module_of_the_program_itself_has_its_line(monkeypatch):
    class Halved(nn.Module):
        def forward(self, x):
            return x.view(3, -1)

    monkeypatch.setattr(sys, "argv", [__file__])
    with pytest.raises(OpcostError, match=r"test_user_errors.py:\d+ in Halved.forward: shape"):
        extract_module_tuples(Halved(), [X], "model")


AS_GIVEN = "opcost passes what `inputs` of the model config says"
LINEAR, X = nn.Linear(8, 8), torch.ones(4, 8)


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ((LINEAR, X), ["inputs are of type Tensor: give a list of the positional arguments"]),
        ((LINEAR, {"input": X}), ["the inputs are of type dict", "keyword arguments as kwargs"]),
        ((LINEAR, [{"input": X}]), ["must be Tensor, not dict"]),
        ((nn.Linear, [X]), ["the module is a class: give an instance of nn.Module"]),
        (("resnet18", [X]), ["the module is of type str", "extract_model_tuples"]),
    ],
    ids=["tensor", "dict", "dict in a list", "class", "name"],
)
def test_a_function_says_what_it_accepts(arguments, messages):
    with pytest.raises(OpcostError) as caught:
        extract_module_tuples(*arguments, "model")
    for message in messages:
        assert message in str(caught.value)


def test_a_module_in_place_of_its_definition_or_tuples_is_said_to_be_one():
    with pytest.raises(OpcostError, match=r"is of type Linear: .* to extract_module_tuples"):
        extract_model_tuples(LINEAR)
    with pytest.raises(OpcostError, match="is of type Linear: give its extracted tuples"):
        explain(LINEAR, [])


@pytest.mark.parametrize("use", ["batch['x']", "batch.x", "dict(**batch)", "'x' in batch.keys()"])
def test_where_forward_wants_a_dict_the_config_is_to_have_one(tmp_path, use):
    name = f"takes_dict_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(
        f"from torch import nn\nclass Net(nn.Module):\n    def forward(self, batch): {use}\n"
    )
    definition = ModelDefinition("net", (InputSpec((4, 8)),), factory=f"{name}:Net")
    with pytest.raises(OpcostError, match=rf"{name}\.py:3 in Net.forward: .*{AS_GIVEN}"):
        model_calls(definition, tmp_path)


def test_a_keyword_argument_of_forward_is_passed_on():
    class Masked(nn.Module):
        def forward(self, x, *, mask):
            return x * mask

    with pytest.raises(OpcostError, match="required keyword-only argument: 'mask'"):
        extract_module_tuples(Masked(), [X], "model")
    assert len(extract_module_tuples(Masked(), [X], "model", {"mask": X}).calls) == 1


class Own(torch.Tensor):
    """A subclass without operators of its own."""


class Function(nn.Module):
    """A module whose forward is a function."""

    function = None

    def forward(self, x):
        return type(self).function(x)


def of_function(function):
    Function.function = function
    factory = f"{__name__}:{Function.__name__}"
    return ModelDefinition("net", (InputSpec((4, 8)),), factory=factory)


def nested(x):
    return torch.nested.nested_tensor([x[0], x[1][:1]]) * 2


def jagged(x):
    return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4])) * 2


def chosen(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def forces(x):
    with torch.enable_grad():
        x = x.requires_grad_(True)
        return torch.autograd.grad((x * x).sum(), x)[0]


CANNOT_RECORD = "calls functions, whose operators cannot be recorded. Use an if, a loop"
DENSE = "opcost describes strided tensors of plain types: compute on such (to_dense"


@pytest.mark.parametrize(
    ("function", "messages"),
    [
        (nested, ["in nested: nested tensors are not supported", DENSE]),
        (jagged, ["in jagged: nested tensors are not supported", DENSE]),
        (lambda x: x.to_sparse().sum(), ["torch.sparse_coo tensors are not supported", DENSE]),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), ["quantised", DENSE]),
        (lambda x: x * 2j, ["an argument of type complex is not supported: give a tensor"]),
        (chosen, ["in chosen: the operator cond", CANNOT_RECORD]),
        (lambda x: flex_attention(*[x[None, None]] * 3), ["flex_attention", CANNOT_RECORD]),
        (lambda x: torch.from_numpy(x.numpy()), ["NumPy computes without operators of PyTorch"]),
        (forces, ["in forces: ", "Inference is run in torch.inference_mode", "mode: train"]),
    ],
    ids=["nested", "jagged", "sparse", "quantised", "complex", "cond", "flex", "numpy", "forces"],
)
def test_what_cannot_be_recorded_is_named_with_its_line_and_what_to_do(function, messages):
    with pytest.raises(OpcostError) as caught:
        model_calls(of_function(function))
    for message in (f"{Path(__file__).name}:", *messages):
        assert message in str(caught.value)


def test_a_subclass_that_fake_tensors_cannot_have_is_recorded_on_real_ones():
    definition = of_function(lambda x: nn.functional.linear(x.as_subclass(Own), x))
    [record] = [each for each in extract_model_tuples(definition).tuples if each.launches_kernel]
    assert record.flops == 2 * 4 * 8 * 4
