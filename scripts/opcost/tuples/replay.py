"""Replay an operator tuple from its JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError
from opcost.tuples.allowed_operators import ALLOWED_NAMESPACES, OPAQUE, given_by_replay, refusal
from opcost.tuples.operator_tuple import Constant, OperatorTuple, TensorSpec, Value


class UnsupportedOperator(OpcostError):
    """The operator of a tuple does not exist here, or may not be called."""


class OpaqueOperator(UnsupportedOperator):
    """An operator that cannot be allowed; the message says what to do instead."""


class ReplayMismatch(OpcostError):
    """The output of a replayed call differs from that of the model's call."""


@dataclass(frozen=True)
class ReplayCall:
    """An operator and the arguments to call it with."""

    operator: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Execute the operator once."""
        return self.operator(*self.args, **self.kwargs)

    def on(self, tensors: Mapping[int, torch.Tensor]) -> "ReplayCall":
        """The same call with tensors replaced, by the ids of the present ones."""

        def replaced(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return tensors[id(value)]
            return [replaced(each) for each in value] if isinstance(value, list) else value

        args, kwargs = map(replaced, self.args), self.kwargs.items()
        return ReplayCall(
            self.operator, tuple(args), {name: replaced(each) for name, each in kwargs}
        )


def resolve(operator: str) -> torch._ops.OpOverload:
    """The operator with a name such as `aten.conv2d.default`.

    Raises UnsupportedOperator for one that does not exist, or that may not be called.
    """
    namespace, _, rest = operator.partition(".")
    if namespace == "prims":
        raise OpaqueOperator(
            f"{operator}: forward-mode derivatives (jvp, jacfwd, hessian) run decompositions that "
            "differ between devices: use jacrev or autograd.grad"
        )
    if namespace not in ALLOWED_NAMESPACES:
        allowed = " and ".join(ALLOWED_NAMESPACES)
        raise UnsupportedOperator(f"{operator}: only operators of {allowed} can be replayed")
    if namespace == "torchvision":
        import torchvision  # noqa: F401  registers its operators
    name, _, overload = rest.rpartition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise UnsupportedOperator(f"{operator} does not exist in torch {torch.__version__}")
    reason = refusal(found)
    if reason is not None:
        kind = OpaqueOperator if found._schema.name in OPAQUE else UnsupportedOperator
        raise kind(f"{operator} may not be called: {reason}")
    return found


def rebuild(operator_tuple: OperatorTuple, tensors: Iterable[torch.Tensor]) -> ReplayCall:
    """The tuple's call on the given tensors, in the order of `OperatorTuple.tensors`.

    An operator that takes a device gets the tensors' device. Raises UnsupportedOperator.
    """
    given = list(tensors)
    supply = iter(given)
    operator = resolve(operator_tuple.operator)
    values = {name: _decode(value, supply) for name, value in operator_tuple.arguments}
    args, kwargs = _sorted_out(operator, values, given)
    if values:
        raise UnsupportedOperator(f"{operator_tuple.operator} has no argument {sorted(values)}")
    return ReplayCall(operator, tuple(args), kwargs)


def _sorted_out(
    operator: torch._ops.OpOverload, values: dict[str, Any], given: Sequence[torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    """Move the operator's arguments out of `values`: positional ones, and those by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        if argument.name in values and given_by_replay(argument):
            raise UnsupportedOperator(f"{operator}: a tuple must not choose {argument.name!r}")
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
            raise UnsupportedOperator(f"{operator}: no value for {argument.name!r}")
    return args, kwargs


def on_device(call: ReplayCall, device: torch.device) -> ReplayCall:
    """The call with its outputs on `device`, if the operator has no tensors as inputs."""
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
            f"the replayed call returned [{', '.join(map(str, found))}], "
            f"the model's call [{', '.join(map(str, wanted))}]"
        )


def tensors_in_tree(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries, such as arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage(tensor: torch.Tensor) -> int:
    """An identifier of a tensor's memory, which views share."""
    return tensor.untyped_storage()._cdata


def empty_tensor(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    """An uninitialised tensor of the spec's shape, dtype and layout."""
    storage = torch.empty(storage_elements(spec), dtype=torch_dtype(spec.dtype), device=device)
    return storage.as_strided(spec.shape, strides(spec))


def torch_dtype(name: str) -> torch.dtype:
    """The dtype with that name, such as `float32`. Raises UnsupportedOperator for other names."""
    return _constant("dtype", name)


def strides(spec: TensorSpec) -> tuple[int, ...]:
    """The strides, in elements, of a tensor of this layout."""
    contiguous = [1] * len(spec.shape)
    for axis in range(len(spec.shape) - 2, -1, -1):
        contiguous[axis] = contiguous[axis + 1] * max(spec.shape[axis + 1], 1)
    if spec.layout is None:
        return tuple(contiguous)
    if isinstance(spec.layout, str):
        memory_format = _constant("memory_format", spec.layout)
        meta = torch.empty(spec.shape, device="meta", memory_format=memory_format)
        return tuple(meta.stride())
    return tuple(
        natural if size == 1 else stride
        for size, stride, natural in zip(spec.shape, spec.layout, contiguous, strict=True)
    )


def storage_elements(spec: TensorSpec) -> int:
    """The number of storage elements that a tensor of this layout spans."""
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
            return _constant(value.kind, value.name)
        case tuple():
            return [_decode(element, supply) for element in value]
        case _:
            return value


_CONSTANTS = {
    "dtype": torch.dtype,
    "memory_format": torch.memory_format,
    "layout": torch.layout,
}


def _constant(kind: str, name: str) -> Any:
    """The torch constant of that kind and name."""
    value = vars(torch).get(name)
    if not isinstance(value, _CONSTANTS.get(kind, ())):
        raise UnsupportedOperator(f"torch has no {kind} {name!r}")
    return value
