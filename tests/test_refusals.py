"""What opcost cannot describe is refused when a model is extracted, before anything is measured."""

import re
from pathlib import Path

import pytest
import torch
from opcost.errors import OpcostError
from opcost.models.configs import define_models
from opcost.models.construction import build
from opcost.plain_yaml import read_yaml
from opcost.tuples.extraction import extract_model_tuples

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)
        {more}
    def forward(self, x):
        x = self.linear(x)
        return {result}

def build():
    return Net()
"""


def net(folder, more="pass", result="x", **config):
    name = f"net_{folder.name}"
    (folder / f"{name}.py").write_text(FILE.format(more=more, result=result))
    document = {"factory": f"{name}.py:build", "inputs": [{"shape": [8, 16]}], **config}
    return define_models("net", document, folder, "net.yaml").models["net"], folder


@pytest.mark.parametrize(
    ("code", "config", "message"),
    [
        (
            {"more": "self.register_buffer('w', torch.eye(4).to_sparse())"},
            {},
            "its w is of layout torch.sparse_coo, which is not supported",
        ),
        (
            {"result": "torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()"},
            {},
            "quantised tensors (aten.quantize_per_tensor.default) are not supported",
        ),
        (
            {"more": "self.w = nn.Parameter(torch.randn(4, dtype=torch.cfloat))"},
            {"dtype": "bfloat16"},
            "its w is complex, and dtype is torch.bfloat16: use float32 or float64",
        ),
        (
            {"result": "torch.distributed.all_reduce(x)"},
            {},
            "Collectives are not supported: build the model for a single process",
        ),
    ],
)
def test_each_refusal_says_what_it_found(code, config, message, tmp_path):
    with pytest.raises(OpcostError) as caught:
        extract_model_tuples(*net(tmp_path, **code, **config))
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_complex_parameters_stay_complex(dtype, tmp_path):
    more = "self.w = nn.Parameter(torch.randn(4, dtype=torch.cfloat))"
    definition, folder = net(tmp_path, more, "torch.view_as_real(x * self.w)", dtype=dtype)
    expected = {"float32": torch.complex64, "float64": torch.complex128}[dtype]
    assert build(definition, folder).w.dtype == expected
    operands = {
        spec.dtype
        for record in extract_model_tuples(definition, folder).tuples
        for _, spec in record.operator_tuple.tensors
        if record.operator_tuple.name == "mul"
    }
    assert operands == {dtype, str(expected).removeprefix("torch.")}


def test_random_weights_are_not_downloaded():
    config = {"model": "resnet18", "arguments": {"weights": "DEFAULT"}}
    document = config | {"inputs": [{"shape": [1, 3, 32, 32]}]}
    definition = define_models("net", document, Path(), "n").models["net"]
    with pytest.raises(OpcostError, match="nothing is downloaded: leave `weights` out"):
        extract_model_tuples(definition)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "the key 'b' twice, in lines 2 and 4: delete one"),
        ("{a: {b: 1, b: 3}}", "the key 'b' twice, in line 1: delete one"),
        ('{"a": 1, "a": 1}', "the key 'a' twice, in line 1"),
        ("a: 010", 'line 1: YAML reads 010 as 8; write 8, or "010" in quotes if it is a text'),
        ("b: 1\na: [1:30]", "line 2: YAML reads 1:30 as 90; write 90"),
        ("a: 1:30.5", "YAML reads 1:30.5 as 90.5"),
        ("a: No", "YAML reads No as false; write false"),
        ("on: 1", 'YAML reads on as true; write true, or "on" in quotes'),
        ("1: 1", "has the key 1: keys are printable strings; write it in quotes"),
        ("a: !!python/object/apply:os.system [ls]", "is not valid YAML; repair it"),
        ("a: [.nan]", "a.0 is nan: only finite numbers"),
        ("a: -.inf", "a is -inf: only finite numbers"),
        ("[" * 5000 + "]" * 5000, "nests values too deep"),
    ],
)
def test_yaml_that_is_read_otherwise_than_it_is_written_is_refused(written, message, tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(written)
    with pytest.raises(OpcostError, match=re.escape(message)):
        read_yaml(path)


def test_other_yaml_means_what_it_says(tmp_path):
    path = tmp_path / "net.yaml"
    written = '[{a: 0, b: "010"}, {a: 0x10, b: "on", "1": 0.5}, true, null, 1_000, 2026-11-28]'
    path.write_text(written)
    expected = [{"a": 0, "b": "010"}, {"a": 16, "b": "on", "1": 0.5}]
    assert read_yaml(path) == [*expected, True, None, 1000, "2026-11-28"]
