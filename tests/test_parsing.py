"""Descriptions, as `opcost query` prints them, are read back as the tuples that they describe."""

import json
import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.parsing import Unstated, parse, with_argument
from opcost.tuples.recorder import CallLog

from tests.documents import ROOT


@pytest.mark.parametrize(("device", "tuples"), [("xeon", 112), ("h100", 190), ("h200", 179)])
def test_all_descriptions_of_the_reference_data_are_read_back(device, tuples):
    [path] = (ROOT / "data/reference").glob(f"{device}_*.parquet")
    texts = pq.read_table(path, columns=["canonical_json"])["canonical_json"].to_pylist()
    found = [OperatorTuple.from_json(text) for text in texts]
    assert len(found) == tuples
    for each in found:
        assert parse(str(each)) == each


_CALLS = [
    lambda x, _: x + True,
    lambda x, _: x * 2,
    lambda x, _: 1 - x,
    lambda x, _: x / 0.5,
    lambda x, _: x > 0,
    lambda x, _: x.pow(0.5),
    lambda x, _: x.fmod(2),
    lambda x, _: x.fill_(2),
    lambda x, _: x.bernoulli(0.5),
    lambda x, _: x.bernoulli_(0.5),
    lambda x, _: x.xlogy(2.0),
    lambda x, _: x.std(),
    lambda x, _: x.std(1),
    lambda x, _: x.var((0, 1), keepdim=True),
    lambda x, _: x.to("cpu", torch.float16),
    lambda x, _: x.to(torch.float16),
    lambda x, _: torch.normal(x, 0.5),
    lambda x, _: torch.linspace(x[0, 0], 1, 4),
    lambda x, i: x.index_fill(0, i, 0.5),
    lambda _, i: i << 1,
    lambda _, i: i & 3,
]


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("number", range(len(_CALLS)))
def test_what_a_call_of_python_dispatches_is_read_back(number, inference):
    x, i = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
    with torch.inference_mode(inference), CallLog() as log:
        _CALLS[number](x, i)
    assert log.operator_tuples
    for each in log.operator_tuples:
        assert parse(str(each)) == each


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


shares = st.floats(0, 1, exclude_min=True)
tensors = st.builds(
    TensorSpec,
    st.lists(st.integers(0, 99), max_size=4).map(tuple),
    st.sampled_from(["float32", "float16", "bfloat16", "float64", "complex64"]),
    zeros=st.just(0.0) | shares,
)
memories = st.sampled_from(["pinned", "pageable"])


@given(tensors, tensors)
def test_shares_of_zeros_are_read_back(first, second):
    described = OperatorTuple("aten.add.Tensor", (("other", second), ("self", first)))
    assert parse(str(described)).canonical_json == described.canonical_json
    assert OperatorTuple.from_json(described.canonical_json) == described


@given(tensors, tensors, memories, st.booleans(), st.booleans())
def test_copies_between_host_and_device_are_read_back(to, source, memory, to_device, blocking):
    on_host = replace(source if to_device else to, memory=memory)
    arguments = {"self": to, "src": on_host} if to_device else {"self": on_host, "src": source}
    arguments |= {} if blocking else {"non_blocking": True}
    described = OperatorTuple("aten.copy_.default", tuple(arguments.items()))
    assert parse(str(described)).canonical_json == described.canonical_json
    assert OperatorTuple.from_json(described.canonical_json) == described


def test_a_memory_of_the_host_is_part_of_the_identity_and_none_leaves_it_as_it_was():
    within, pinned = parse("copy_(2x3, 2x3)"), parse("copy_(2x3, 2x3[pinned])")
    pageable, back = parse("copy_(2x3, 2x3[pageable])"), parse("copy_(2x3[pinned], 2x3)")
    assert "memory" not in within.canonical_json
    assert len({within, pinned, pageable, back}) == 4
    both = parse("copy_(2x3, 2x3:float16[zeros=0.5,pinned])")
    assert parse("copy_(2x3, 2x3:float16[pinned,zeros=0.5])") == both
    assert str(both) == "copy_(2x3, 2x3:float16[zeros=0.5,pinned])"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add(8[pinned], 8)", "a GPU does not compute: only copy_ between the host and the device"),
        ("copy_(8[pinned], 8[pageable])", "copies within the memory of the host"),
        ("copy_(8, 8[pined])", "'pined' is no option of a tensor: write [zeros=0.5], [pinned] or"),
    ],
)
def test_what_is_no_copy_between_host_and_device_is_refused(text, message):
    with pytest.raises(OpcostError, match=re.escape(message)):
        parse(text)


def test_a_damaged_memory_of_the_host_is_refused():
    damaged = parse("copy_(2x3, 2x3[pinned])").canonical_json.replace("pinned", "shared")
    with pytest.raises(OpcostError, match="no tensor is in the memory 'shared'"):
        OperatorTuple.from_json(damaged)


def test_a_share_of_zeros_is_part_of_the_identity_and_none_leaves_it_as_it_was():
    plain, half = parse("relu(2x3)"), parse("relu(2x3:float32[zeros=0.5])")
    assert parse("relu(2x3[zeros=0])") == parse("relu(2x3[zeros=-0.0])") == plain
    assert "zeros" not in plain.canonical_json
    assert half != plain
    assert str(half) == "relu(2x3[zeros=0.5])"
    assert parse("relu(2x3[zeros=.50])") == half
    listed = parse("cat([2x3[zeros=0.25],2x3])")
    assert [spec.zeros for _, spec in listed.tensors] == [0.25, 0]


@pytest.mark.parametrize("share", ["0", "0.0", "1", "-0.5", "1.5", "true", '"0.5"', "null", "NaN"])
def test_a_share_in_json_is_a_number_above_zero_up_to_one(share):
    spec = f'{{"dtype":"float32","shape":[2],"zeros":{share}}}'
    with pytest.raises(OpcostError, match="describes no operator tuple"):
        OperatorTuple.from_json(f'{{"arguments":{{"self":{spec}}},"operator":"aten.relu.default"}}')


def test_what_tensors_do_not_state_may_be_said_for_all():
    every = Unstated("bfloat16", "channels_last", 0.5)
    found = parse("conv2d(1x3x8x8, 4x3x3x3:float32[zeros=0], bias=4:float16)", every)
    assert str(found) == (
        "conv2d(1x3x8x8:bfloat16@channels_last[zeros=0.5], 4x3x3x3@channels_last, "
        "4:float16[zeros=0.5])"
    )
    assert str(parse("embedding(9x4, 8:int64)", every)) == (
        "embedding(9x4:bfloat16[zeros=0.5], 8:int64)"
    )


def test_a_number_stands_for_all_elements_of_a_list_of_known_length():
    whole = parse("conv2d(1x3x8x8, 4x3x3x3, padding=[1,1])")
    assert parse("conv2d(1x3x8x8, 4x3x3x3, padding=1)") == whole
    assert parse("sum(2x3, dim=-1)") == parse("sum(2x3, dim=[-1])")


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("conv2d(1x3x8x8, 4x3x3x3, padding=[1,1])", "conv2d(1x3x8x8, 4x3x3x3, padding=2)"),
        ("conv2d(1x3x8x8,4x3x3x3)", "conv2d(1x3x8x8, 4x3x3x3, padding=2)"),
        ("f(padding = [1,1], groups=2)", "f(padding=2, groups=2)"),
    ],
)
def test_an_argument_is_replaced_or_added(text, changed):
    assert with_argument(text, "padding", "2") == changed


def test_a_row_is_found_by_its_description():
    [path] = (ROOT / "data/reference").glob("h100_*.parquet")
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
        ("cat([1000000000 times 8])", "is more than 100,000 times"),
        (f"cat({'[' * 3000}8{']' * 3000})", "brackets in brackets, more than 50 deep"),
        ("conv2d(1x144x56x56, 144x1x3x3, gro...", "is cut to fit a line: opcost query prints"),
        ("conv2dd(1x3)", "conv2dd is no operator of PyTorch. Did you mean 'conv2d'"),
        ("conv2d.same(1x3)", "has no such overload. Allowed: default, padding"),
        ("conv2d(1x3x8x8)", "1 tensors do not fit its tensors: input, weight, bias"),
        ("conv2d(1x3x8x8, 4x3x3x3, pading=[1,1])", "it has no argument pading"),
        ("conv2d(1x3x8x8, 4x3x3x3, stride=x)", "stride is 'x': write a list, such as"),
        ("conv2d(1x3x8x8:float31, 4x3x3x3)", "float31 is no dtype. Did you mean 'float32'"),
        ("conv2d(1x3x8x8@(1,2), 4x3x3x3)", "has 4 sizes and 2 strides"),
        ("conv2d(image, 4x3x3x3)", "'image' is no tensor: write 1x64x56x56"),
        ("relu(2x3[zeros=1.5])", "zeros=1.5 is no share: give a number from 0 to 1"),
        ("relu(2x3[zeros=half])", "zeros=half is no share: give a number from 0 to 1"),
        ("relu(2x3[zero=0.5])", "'zero=0.5' is no option of a tensor: write [zeros=0.5]"),
        ("relu(2x3:int64[zeros=0.5])", "a tensor of int64 has no share of zeros: only tensors of"),
        ("relu(2x3, self=2x3)", "do not fit its tensors"),
        ("gelu(2x3, approximate=tanh, approximate=none)", "gives approximate twice"),
        ("softmax(2x3, dim=one)", "dim is 'one', which is no int"),
    ],
)
def test_what_is_no_description_is_explained(text, message):
    with pytest.raises(OpcostError) as raised:
        parse(text)
    assert message in str(raised.value)
