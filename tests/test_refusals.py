"""What opcost cannot describe is refused when a model is extracted, before anything is measured."""

from pathlib import Path

import pytest
import torch
import yaml
from opcost.errors import OpcostError
from opcost.models.configs import define_model
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
    return define_model("net", document, folder, "net.yaml"), folder


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
    definition = define_model("net", config | {"inputs": [{"shape": [1, 3, 32, 32]}]}, Path(), "n")
    with pytest.raises(OpcostError, match="nothing is downloaded: leave `weights` out"):
        extract_model_tuples(definition)


def test_a_key_that_stands_twice_in_a_file_is_refused_wherever_it_stands(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("inputs: []\narguments:\n  width: 1\n  height: 2\n  width: 3\n")
    with pytest.raises(OpcostError, match=r"the key 'width' twice, in lines 3 and 5: delete one"):
        read_yaml(path)
    path.write_text(yaml.safe_dump([{"a": 1}, {"a": 1}]))
    assert read_yaml(path) == [{"a": 1}, {"a": 1}]
