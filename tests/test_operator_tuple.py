"""Two calls are one tuple exactly when operator, parameters, shapes, dtypes and layouts agree."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.operator_tuple import ELEMENT_BYTES, Constant, OperatorTuple, TensorSpec

conv2d = torch.ops.aten.conv2d.default
IMAGE, WEIGHT = torch.empty(1, 3, 8, 8), torch.empty(4, 3, 3, 3)

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from(sorted(ELEMENT_BYTES))


@st.composite
def tensor_specs(draw):
    shape = draw(shapes)
    strides = st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)).map(tuple)
    layout = draw(st.none() | st.just("channels_last") | strides)
    return TensorSpec(shape, draw(dtypes), layout)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from([Constant("dtype", "float16"), Constant("memory_format", "channels_last")])
)
values = st.recursive(
    scalars | tensor_specs(), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5
)
operator_tuples = st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=5).map(
    lambda arguments: OperatorTuple("aten.op.default", tuple(sorted(arguments.items())))
)


@given(operator_tuples)
def test_canonical_json_carries_all_of_a_tuple(operator_tuple):
    again = OperatorTuple.from_json(operator_tuple.canonical_json)
    assert again == operator_tuple
    assert again.canonical_json == operator_tuple.canonical_json
    assert again.tuple_id == operator_tuple.tuple_id


@given(operator_tuples)
def test_canonical_json_is_strict_json_with_sorted_keys(operator_tuple):
    document = json.loads(operator_tuple.canonical_json, parse_constant=pytest.fail)
    compact = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert compact == operator_tuple.canonical_json


@given(operator_tuples, operator_tuples)
def test_different_tuples_have_different_ids(first, second):
    assert (first.tuple_id == second.tuple_id) == (first.canonical_json == second.canonical_json)


def test_the_id_is_the_beginning_of_the_sha256_of_the_canonical_json():
    operator_tuple = OperatorTuple("aten.relu.default", (("self", TensorSpec((2,), "float32")),))
    assert operator_tuple.canonical_json == (
        '{"arguments":{"self":{"dtype":"float32","shape":[2]}},"operator":"aten.relu.default"}'
    )
    assert operator_tuple.tuple_id == "3a398d10d381e3f0"


def test_ids_do_not_depend_on_the_process():
    program = (
        "import torch; from opcost.tuples.description import describe;"
        "x = torch.empty(1, 3, 8, 8); w = torch.empty(4, 3, 3, 3);"
        "print(describe(torch.ops.aten.conv2d.default, (x, w), {'padding': [1, 1]}).tuple_id)"
    )
    # In this process, Python has drawn the seed of its hashes.
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": "scripts"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    own = describe(conv2d, (IMAGE, WEIGHT), {"padding": [1, 1]}).tuple_id
    assert other.strip() == own


def test_an_argument_equal_to_its_default_changes_nothing():
    short = describe(conv2d, (IMAGE, WEIGHT), {})
    spelled_out = describe(conv2d, (IMAGE, WEIGHT, None, [1, 1], [0, 0], [1, 1], 1), {})
    assert short == spelled_out
    assert dict(short.arguments).keys() == {"input", "weight"}


def test_an_integer_for_a_float_parameter_is_that_float():
    elu, dropout = torch.ops.aten.elu.default, torch.ops.aten.dropout.default
    assert describe(dropout, (IMAGE, 1, False), {}) == describe(dropout, (IMAGE, 1.0, False), {})
    # A Scalar parameter keeps its type: it decides the result's type.
    assert describe(elu, (IMAGE, 2), {}) != describe(elu, (IMAGE, 2.0), {})


@pytest.mark.parametrize(
    "other",
    [
        (torch.empty(1, 3, 9, 8), WEIGHT),
        (IMAGE.double(), WEIGHT.double()),
        (IMAGE.repeat(2, 1, 1, 1).contiguous(memory_format=torch.channels_last)[:1], WEIGHT),
    ],
    ids=["shape", "dtype", "layout"],
)
def test_shape_dtype_and_layout_tell_tuples_apart(other):
    assert describe(conv2d, other, {}) != describe(conv2d, (IMAGE, WEIGHT), {})


def test_values_and_devices_do_not_matter():
    zeros, ones = torch.zeros(3), torch.ones(3, device="meta")
    relu = torch.ops.aten.relu.default
    assert describe(relu, (zeros,), {}) == describe(relu, (ones,), {})
    arange = torch.ops.aten.arange.default
    assert describe(arange, (4,), {"device": torch.device("meta")}) == describe(arange, (4,), {})


def test_infinities_are_text_in_the_json():
    clamp = torch.ops.aten.clamp.default
    operator_tuple = describe(clamp, (IMAGE, -math.inf), {})
    assert '"min":{"float":"-inf"}' in operator_tuple.canonical_json


def test_layouts_have_the_names_that_people_use():
    image = torch.empty(2, 3, 4, 4)
    assert describe_tensor(image).layout is None
    last = image.contiguous(memory_format=torch.channels_last)
    assert describe_tensor(last).layout == "channels_last"
    assert describe_tensor(image[:, 1:]).layout == (48, 16, 4, 1)


def test_strides_of_dimensions_of_size_one_do_not_matter():
    storage = torch.empty(1000)
    first = storage.as_strided((1, 3, 2), (7, 4, 1))
    second = storage.as_strided((1, 3, 2), (99, 4, 1))
    assert describe_tensor(first) == describe_tensor(second)


def test_repeated_elements_of_an_expanded_tensor_count_once():
    spec = describe_tensor(torch.empty(1, 4).expand(5, 4))
    assert (spec.elements, spec.bytes) == (4, 16)


def test_a_description_reads_like_a_call():
    operator_tuple = describe(conv2d, (IMAGE, WEIGHT), {"padding": [1, 1]})
    assert str(operator_tuple) == "conv2d(1x3x8x8, 4x3x3x3, padding=[1,1])"


def test_a_long_list_of_equal_tensors_is_shown_as_their_number():
    image = TensorSpec((3, 8, 8), "float32")
    other = TensorSpec((4,), "float32")
    shown = str(OperatorTuple("aten.stack.default", (("tensors", (image,) * 80 + (other,)),)))
    assert shown == "stack([80 times 3x8x8,4])"
