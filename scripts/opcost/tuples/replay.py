"""An operator tuple run again, from its JSON alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import Constant, OperatorTuple, TensorSpec, Value

ALLOWED_NAMESPACES = ("aten", "torchvision")
"""Namespaces whose operators may be called: a tuple from a stranger reaches nothing else."""


class UnsupportedOperator(OpcostError):
    """The operator of a tuple does not exist here, or may not be called."""


class ReplayMismatch(OpcostError):
    """A rebuilt call gave another output than the model's call did."""


@dataclass(frozen=True)
class ReplayCall:
    """An operator and the arguments to call it with."""

    operator: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Execute the operator once."""
        return self.operator(*self.args, **self.kwargs)


def resolve(operator: str) -> torch._ops.OpOverload:
    """The operator of that name, such as `aten.conv2d.default`. Raises UnsupportedOperator."""
    namespace, _, rest = operator.partition(".")
    if namespace not in ALLOWED_NAMESPACES:
        allowed = " and ".join(ALLOWED_NAMESPACES)
        raise UnsupportedOperator(f"{operator}: only operators of {allowed} can be replayed")
    if namespace == "torchvision":
        import torchvision  # noqa: F401  registers its operators
    name, _, overload = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError as error:
        raise UnsupportedOperator(
            f"{operator} does not exist in torch {torch.__version__}"
        ) from error


def rebuild(operator_tuple: OperatorTuple, tensors: Iterable[torch.Tensor]) -> ReplayCall:
    """The tuple's call on the given tensors, which come in the order of `OperatorTuple.tensors`.

    An operator that must be told a device gets that of the tensors. Raises UnsupportedOperator.
    """
    given = list(tensors)
    supply = iter(given)
    operator = resolve(operator_tuple.operator)
    values = {name: _decode(value, supply) for name, value in operator_tuple.arguments}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        if argument.kwarg_only:
            if argument.name in values:
                kwargs[argument.name] = values.pop(argument.name)
        elif argument.name in values:
            args.append(values.pop(argument.name))
        elif argument.has_default_value():
            args.append(argument.default_value)
        elif str(argument.real_type) == "Device" and given:
            args.append(given[0].device)
        else:
            raise UnsupportedOperator(f"{operator_tuple.operator}: no value for {argument.name!r}")
    if values:
        raise UnsupportedOperator(f"{operator_tuple.operator} has no argument {sorted(values)}")
    return ReplayCall(operator, tuple(args), kwargs)


def on_device(call: ReplayCall, device: torch.device) -> ReplayCall:
    """The call with its outputs on `device`, where the operator creates tensors from nothing."""
    creates = any(
        argument.kwarg_only and argument.name == "device" and "Device" in str(argument.real_type)
        for argument in call.operator._schema.arguments
    )
    if not creates:
        return call
    return ReplayCall(call.operator, call.args, {**call.kwargs, "device": device})


def check_outputs(result: Any, expected: Sequence[TensorSpec]) -> None:
    """Raise ReplayMismatch unless the result has the shapes and dtypes recorded at extraction."""
    found = [
        TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for tensor in tensors_in_tree(result)
    ]
    wanted = [TensorSpec(spec.shape, spec.dtype) for spec in expected]
    if found != wanted:
        raise ReplayMismatch(
            f"the rebuilt call returned [{', '.join(map(str, found))}], "
            f"the model's call [{', '.join(map(str, wanted))}]"
        )


def tensors_in_tree(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries, such as arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def empty_tensor(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    """An uninitialised tensor of the spec's shape, dtype and layout."""
    storage = torch.empty(storage_elements(spec), dtype=getattr(torch, spec.dtype), device=device)
    return storage.as_strided(spec.shape, strides(spec))


def strides(spec: TensorSpec) -> tuple[int, ...]:
    """The strides, in elements, that a tensor of this layout has."""
    contiguous = [1] * len(spec.shape)
    for axis in range(len(spec.shape) - 2, -1, -1):
        contiguous[axis] = contiguous[axis + 1] * max(spec.shape[axis + 1], 1)
    if spec.layout is None:
        return tuple(contiguous)
    if isinstance(spec.layout, str):
        memory_format = getattr(torch, spec.layout)
        meta = torch.empty(spec.shape, device="meta", memory_format=memory_format)
        return tuple(meta.stride())
    return tuple(
        natural if size == 1 else stride
        for size, stride, natural in zip(spec.shape, spec.layout, contiguous, strict=True)
    )


def storage_elements(spec: TensorSpec) -> int:
    """How many elements of storage a tensor of this layout spans."""
    if 0 in spec.shape:
        return 0
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(spec.shape, strides(spec), strict=True)
    )


def _decode(value: Value, supply: Iterator[torch.Tensor]) -> Any:
    match value:
        case TensorSpec():
            return next(supply)
        case Constant():
            return getattr(torch, value.name)
        case tuple():
            return [_decode(element, supply) for element in value]
        case _:
            return value
