"""A second count of the FLOPs of a training step, from what the model's code calls in Python.

Each product of a forward pass has a closed form of the shapes in the model's code. Backward takes
as many again for each operand that needs a gradient, if one reaches the product's result. It
shares nothing with opcost's count, which is of the operators below autograd.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from opcost.models.training import TrainingStep
from opcost.tuples.calls import recorded_calls
from opcost.tuples.extraction import distinct_tuples
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_SECOND = {
    **dict.fromkeys(("addmm", "baddbmm"), (1, 2)),
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm", "linear"), (0, 1)),
}
"""The operands of products, whose inner axis is the last of the first one."""


class Products(TorchFunctionMode):
    """Adds up `flops`; `unknown` are the functions of linear algebra that have no closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.unknown: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _SECOND:
            first, second = (args[each] for each in _SECOND[name])
            self._product(result, 2 * result.numel() * first.shape[-1], first, second)
        elif name.startswith("conv_transpose"):
            self._product(result, 2 * args[0].numel() * args[1][0].numel(), *args[:2])
        elif name in ("conv1d", "conv2d", "conv3d", "deform_conv2d"):
            operands = args[:2]
            if name == "deform_conv2d":  # what offsets need is what the input would
                operands = (args[1], args[1])
            self._product(result, 2 * result.numel() * args[1][0].numel(), *operands)
        elif name == "einsum":
            equation, first, second = args
            inputs, output = equation.replace(" ", "").split("->")
            sizes = dict(zip(inputs.replace(",", ""), first.shape + second.shape, strict=True))
            assert set(output) < set(sizes), "a sum of products"
            self._product(result, 2 * math.prod(sizes.values()), first, second)
        elif name == "bilinear":
            first, second, weight = args[:3]
            self._product(result, 2 * len(first) * weight.numel(), first, second, weight)
            self.flops += 2 * result.numel() * second.shape[-1]
        elif name == "scaled_dot_product_attention":
            query, key, value = args[:3]
            self._attention(result, query, key, value, (kwargs or {}).get("dropout_p", 0.0))
        elif name == "multi_head_attention_forward":
            self._multi_head_attention(result[0], args, kwargs)
        elif name in ("gru", "rnn_tanh", "rnn_relu"):
            self._recurrent(result[0], args[0], args[2])
        elif "linalg" in f"{getattr(func, '__module__', '')}{name}" or name == "cholesky":
            self.unknown.add(name)
        return result

    def _product(self, result: Tensor, flops: int, *operands: Tensor) -> None:
        """A product, whose gradients are as many products of the same size."""
        self.flops += flops
        self._in_backward(result, flops * sum(each.requires_grad for each in operands))

    def _in_backward(self, result: Tensor, flops: int) -> None:
        def add(_: Tensor) -> None:
            self.flops += flops

        if result.requires_grad:
            result.register_hook(add)

    def _attention(
        self, result: Tensor, query: Tensor, key: Tensor, value: Tensor, dropout: float
    ) -> None:
        scores = query.numel() * key.shape[-2]
        flops = 2 * scores + 2 * scores // query.shape[-1] * value.shape[-1]
        self.flops += flops
        # The fused kernel computes the scores once more; with dropout, there is none.
        self._in_backward(result, flops * 2 if dropout else flops * 5 // 2)

    def _multi_head_attention(self, result: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        query, key, value, width = args[:4]
        length, batch = query.shape[0], query.shape[1]
        for each in (query, key, value):
            needs = 1 + each.requires_grad
            self.flops += 2 * each.numel() * width
            self._in_backward(result, 2 * each.numel() * width * needs)
        self.flops += 2 * query.numel() * width
        self._in_backward(result, 2 * 2 * query.numel() * width)
        scores = 2 * 2 * batch * length * key.shape[0] * width
        self.flops += scores
        fused = not kwargs["need_weights"] and not (kwargs["training"] and args[10])
        self._in_backward(result, scores * 5 // 2 if fused else scores * 2)

    def _recurrent(self, result: Tensor, data: Tensor, weights: Sequence[Tensor]) -> None:
        """The hidden state that a sequence begins with needs no gradient."""
        steps, batch = data.shape[:2]
        of_data, of_hidden = (2 * steps * batch * weights[each].numel() for each in (0, 1))
        self.flops += of_data + of_hidden
        before = of_hidden + of_hidden * (steps - 1) // steps
        self._in_backward(result, of_data * (1 + data.requires_grad) + before)


def total(result: Any) -> Any:
    """A loss to which all floating-point results contribute."""
    if isinstance(result, torch.Tensor):
        return result.float().square().mean()
    results = result.values() if hasattr(result, "values") else result
    tensors = (each for each in results if isinstance(each, torch.Tensor))
    return sum(total(each) for each in tensors if each.requires_grad)


def both_counts(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> tuple[tuple[int, set[str]], tuple[int, set[str]]]:
    """FLOPs of a training step as opcost counts them, and as this second count does; each with the
    names of what it does not know.
    """
    kwargs = kwargs or {}
    step = TrainingStep(module.train(), total, None)
    with torch.enable_grad(), Products() as products:
        step(*args, **kwargs)
    executed = recorded_calls(step, args, kwargs, "model")
    tuples, calls = distinct_tuples(executed)
    found = [tuples[call.position] for call in calls]
    unknown = {record.operator_tuple.name for record in found if record.flops is None}
    counted = sum(record.flops or 0 for record in found)
    return (counted, unknown), (products.flops, products.unknown)
