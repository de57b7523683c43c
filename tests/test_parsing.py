"""Descriptions, as `opcost query` prints them, are read back as the tuples that they describe."""

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.parsing import parse

from tests.documents import ROOT


def test_all_descriptions_of_the_reference_data_are_read_back():
    [path] = (ROOT / "data/reference").glob("*.parquet")
    texts = pq.read_table(path, columns=["canonical_json"])["canonical_json"].to_pylist()
    found = [OperatorTuple.from_json(text) for text in texts]
    assert len(found) == 112
    for each in found:
        assert parse(str(each)) == each


@pytest.mark.parametrize("model", [0, 1])
def test_all_tuples_of_a_model_are_read_back(tiny_tuples, model):
    for record in tiny_tuples[model].by_id.values():
        assert parse(str(record.operator_tuple)) == record.operator_tuple


F = TensorSpec((2, 3), "float32")


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten.div.Tensor", {"self": F, "other": 49}),
        ("aten.div.Scalar", {"self": F, "other": 49}),
        ("aten.mul.Tensor", {"self": F, "other": 0.25}),
        ("aten.bernoulli_.float", {"self": F, "p": 0.8}),
        ("aten.index.Tensor", {"self": F, "indices": (TensorSpec((9,), "int64"),)}),
        ("aten.einsum.default", {"equation": "ab,cb->ac", "tensors": (F, F)}),
        ("aten.cat.default", {"tensors": (F,) * 80, "dim": 1}),
        ("aten.gelu.default", {"self": F, "approximate": "tanh"}),
        ("aten.sum.dim_IntList", {"self": F, "dim": (-1,), "keepdim": True}),
        ("aten.masked_fill.Scalar", {"self": F, "mask": F, "value": float("-inf")}),
        ("aten.clone.default", {"self": TensorSpec((2, 3, 4, 5), "bfloat16", "channels_last")}),
        ("aten.relu.default", {"self": TensorSpec((2, 3), "float32", (1, 2))}),
        ("aten.relu.default", {"self": TensorSpec((), "float64")}),
    ],
)
def test_a_call_is_read_back(operator, arguments):
    described = OperatorTuple(operator, tuple(sorted(arguments.items())))
    assert parse(str(described)).canonical_json == described.canonical_json


def test_a_row_is_found_by_its_description():
    [path] = (ROOT / "data/reference").glob("*.parquet")
    description = pq.read_table(path, columns=["description"])["description"][0].as_py()
    found = CliRunner().invoke(main, ["query", str(path), "--tuple", description, "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["description"] == description


def test_names_decide_between_arguments_and_overloads():
    whole = parse("aten.conv2d.padding(1x3x8x8, 4x3x3x3, padding=same)")
    assert dict(whole.arguments)["padding"] == "same"
    named = parse(
        "batch_norm(2x3, weight=None, bias=None, running_mean=3:float32, running_var=3:float32, "
        "training=False, momentum=0.1, eps=1e-05, cudnn_enabled=True)"
    )
    assert dict(named.arguments)["running_mean"] == TensorSpec((3,), "float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv2d", "is no call of an operator: write it like conv2d"),
        ("conv2dd(1x3)", "conv2dd is no operator of PyTorch. Did you mean 'conv2d'"),
        ("conv2d.same(1x3)", "has no such overload. Allowed: default, padding"),
        ("conv2d(1x3x8x8)", "1 tensors do not fit its tensors: input, weight, bias"),
        ("conv2d(1x3x8x8, 4x3x3x3, pading=[1,1])", "it has no argument pading"),
        ("conv2d(1x3x8x8, 4x3x3x3, stride=x)", "stride is 'x': write a list, such as"),
        ("conv2d(1x3x8x8:float31, 4x3x3x3)", "float31 is no dtype. Did you mean 'float32'"),
        ("conv2d(1x3x8x8@(1,2), 4x3x3x3)", "has 4 sizes and 2 strides"),
        ("conv2d(image, 4x3x3x3)", "'image' is no tensor: write 1x64x56x56"),
        ("relu(2x3, self=2x3)", "do not fit its tensors"),
        ("gelu(2x3, approximate=tanh, approximate=none)", "gives approximate twice"),
        ("softmax(2x3, dim=one)", "dim is 'one', which is no int"),
    ],
)
def test_what_is_no_description_is_explained(text, message):
    with pytest.raises(OpcostError) as raised:
        parse(text)
    assert message in str(raised.value)
