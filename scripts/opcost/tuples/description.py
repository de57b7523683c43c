"""Describe a live call as an operator tuple; `replay` does the reverse."""

from typing import Any

import torch

from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import Constant, OperatorTuple, TensorSpec, Value

_QUANTISED = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)

_QUANTISING = ("aten::quantize_", "aten::dequantize")
"""Operators whose fake results are not marked as quantised."""

_STRIDED = (
    "opcost describes strided tensors of plain types: compute on such (to_dense, dequantize, "
    "to_padded_tensor)"
)


def describe(
    operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> OperatorTuple:
    """The operator tuple of a live call. Raises OpcostError for quantised tensors."""
    if operator.namespace == "quantized" or operator._schema.name.startswith(_QUANTISING):
        raise OpcostError(f"quantised tensors ({operator}) are not supported: {_STRIDED}")
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    arguments = []
    for argument in operator._schema.arguments:
        declared = str(argument.real_type)
        # The target determines the device of tensors, not the tuple.
        if argument.name not in given or "Device" in declared or argument.name == "pin_memory":
            continue
        value = _encode(given[argument.name], declared)
        if argument.has_default_value():
            default = _encode(argument.default_value, declared)
            if type(value) is type(default) and value == default:
                continue
        arguments.append((argument.name, value))
    return OperatorTuple(str(operator), tuple(sorted(arguments, key=lambda pair: pair[0])))


def describe_tensor(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a live (or fake) tensor. Raises OpcostError for one that is not strided."""
    quantised = tensor.dtype in _QUANTISED  # fake tensors lack is_quantized
    if tensor.layout != torch.strided or quantised or tensor.is_nested:
        nested = "nested" if tensor.is_nested else str(tensor.layout)
        kind = "quantised" if quantised else nested
        raise OpcostError(f"{kind} tensors are not supported: {_STRIDED}")
    layout: str | tuple[int, ...] | None
    if tensor.is_contiguous():
        layout = None
    elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        layout = "channels_last"
    elif tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        layout = "channels_last_3d"
    else:
        layout = tuple(
            0 if size == 1 else stride
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), layout)


def _encode(value: Any, declared: str) -> Value:
    match value:
        case torch.Tensor():
            return describe_tensor(value)
        case torch.dtype():
            return Constant("dtype", str(value).removeprefix("torch."))
        case torch.memory_format():
            return Constant("memory_format", str(value).removeprefix("torch."))
        case torch.layout():
            return Constant("layout", str(value).removeprefix("torch."))
        case bool() | None | str():
            return value
        case int() | float():
            # An argument declared as float may be given as an integer: 1 and 1.0 are one value.
            return float(value) if declared in ("float", "Optional[float]") else value
        case list() | tuple():
            element_type = declared.removeprefix("Optional[").removeprefix("List[").rstrip("]")
            return tuple(_encode(element, element_type) for element in value)
        case _:
            raise OpcostError(
                f"an argument of type {type(value).__name__} is not supported: give a tensor"
            )
