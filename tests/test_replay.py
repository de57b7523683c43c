"""A tuple runs again from its JSON alone, and a wrong rebuild is noticed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opcost.tuples.calls import module_calls
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.replay import (
    ReplayMismatch,
    UnsupportedOperator,
    check_outputs,
    empty_tensor,
    on_device,
    rebuild,
    resolve,
)
from torch import nn

META = torch.device("meta")
CPU = torch.device("cpu")


def replay(operator_tuple, device=CPU):
    again = OperatorTuple.from_json(operator_tuple.canonical_json)
    tensors = [empty_tensor(spec, device) for _, spec in again.tensors]
    return on_device(rebuild(again, tensors), device)


@given(st.data())
def test_a_tensor_is_rebuilt_with_its_layout(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    tensor = torch.empty(shape)
    order = data.draw(st.permutations(range(len(shape))))
    tensor = tensor.permute(order)
    if data.draw(st.booleans()):
        tensor = tensor[..., :1]
    if data.draw(st.booleans()):
        tensor = tensor.expand(3, *tensor.shape)
    spec = describe_tensor(tensor)
    assert describe_tensor(empty_tensor(spec, CPU)) == spec


@pytest.mark.parametrize(
    ("shape", "memory_format"),
    [((2, 3, 4, 5), torch.channels_last), ((2, 3, 4, 5, 6), torch.channels_last_3d)],
)
def test_a_named_layout_is_rebuilt(shape, memory_format):
    tensor = torch.empty(shape, memory_format=memory_format)
    assert empty_tensor(describe_tensor(tensor), CPU).stride() == tensor.stride()


class Everything(nn.Module):
    """Calls with lists, optional tensors, constants, strings, infinities, and no tensors at all."""

    def forward(self, x, index):
        y = torch.cat([x, x.t().contiguous().t()], dim=1)
        y = y.clamp(min=-float("inf"), max=3).to(torch.float64)
        y = y + torch.arange(y.shape[1], dtype=torch.float64)
        y = nn.functional.gelu(y, approximate="tanh")
        y = y[:, index] + nn.functional.embedding(index, y.t()).sum()
        y = torch.div(y, 2, rounding_mode="floor").masked_fill(y > 0, -float("inf"))
        z = nn.functional.scaled_dot_product_attention(y[None], y[None], y[None], is_causal=True)
        left, _ = z.max(dim=-1)
        return left.mul_(2).add_(1, alpha=3), torch.full((2, 2), 7.0).split(1)


def test_every_kind_of_argument_survives_the_round_trip():
    inputs = [torch.randn(4, 4), torch.tensor([0, 3, 1, 1])]
    calls = module_calls(Everything(), inputs, "everything").calls
    assert len(calls) > 12
    for call in calls:
        again = replay(call.operator_tuple, META)
        assert describe(again.operator, again.args, again.kwargs) == call.operator_tuple
        check_outputs(again(), call.outputs)


def test_another_output_than_the_models_is_refused():
    relu = describe(torch.ops.aten.relu.default, (torch.empty(2, 3),), {})
    result = replay(relu)()
    check_outputs(result, [TensorSpec((2, 3), "float32")])
    for wrong in ([TensorSpec((3, 2), "float32")], [TensorSpec((2, 3), "float64")], []):
        with pytest.raises(ReplayMismatch, match="the replayed call returned"):
            check_outputs(result, wrong)


@pytest.mark.parametrize(
    "operator", ["os.system.default", "prim.device.default", "builtins.exec.default"]
)
def test_only_operators_of_known_namespaces_are_called(operator):
    with pytest.raises(UnsupportedOperator, match="only operators of aten and torchvision"):
        resolve(operator)


@pytest.mark.parametrize("operator", ["aten.conv2d.nonsense", "aten.no_such_operator.default"])
def test_an_operator_that_does_not_exist_here_is_named(operator):
    with pytest.raises(UnsupportedOperator, match=f"{operator} does not exist in torch"):
        resolve(operator)


def test_an_argument_too_many_or_too_few_is_refused():
    spec = TensorSpec((2,), "float32")
    with pytest.raises(UnsupportedOperator, match="no value for 'self'"):
        rebuild(OperatorTuple("aten.relu.default", ()), [])
    with pytest.raises(UnsupportedOperator, match="has no argument \\['extra'\\]"):
        rebuild(OperatorTuple("aten.relu.default", (("extra", 1), ("self", spec))), [torch.ones(2)])


def test_operators_that_make_tensors_make_them_on_the_device():
    arange = describe(torch.ops.aten.arange.default, (4,), {"device": CPU})
    assert replay(arange, META)().device == META
