"""Record every operator call of a running model, with the module that makes it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.replay import tensors_in_tree


@dataclass(frozen=True)
class Call:
    """One operator call of a model, in the order of execution.

    `module_path` is the calling module (`layer1.0.conv1`), "" for the model itself.
    `launches_kernel` is False for views and other calls that move no data. `parameters` names the
    arguments that are parameters or buffers of the model, or views of them.
    """

    operator_tuple: OperatorTuple
    outputs: tuple[TensorSpec, ...]
    launches_kernel: bool
    parameters: tuple[str, ...]
    module_path: str
    module_class: str


class Recorder(TorchDispatchMode):
    """Records each operator below autograd and above the kernels.

    `where` returns (path, class) of the running module; `model` is the one that holds the
    parameters. With a `device`, only what runs there launches kernels.
    """

    def __init__(
        self,
        where: Callable[[], tuple[str, str]],
        model: nn.Module,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self._device = device
        self.calls: list[Call] = []
        self._where = where
        self._held = {storage(tensor) for tensor in [*model.parameters(), *model.buffers()]}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # queries of a fake tensor's device
            return func(*args, **kwargs)
        operator_tuple = describe(func, args, kwargs)
        inputs = tensors_in_tree((args, kwargs))
        result = func(*args, **kwargs)
        outputs = tensors_in_tree(result)
        self.calls.append(
            Call(
                operator_tuple,
                tuple(describe_tensor(tensor) for tensor in outputs),
                _launches_kernel(func, operator_tuple, inputs, outputs, self._device),
                self._parameters(func, args, kwargs),
                *self._where(),
            )
        )
        return result

    def _parameters(
        self, operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, ...]:
        names = [argument.name for argument in operator._schema.arguments]
        given = [*zip(names, args, strict=False), *kwargs.items()]
        tensors = [(name, tensors_in_tree(value)) for name, value in given]
        return tuple(
            name
            for name, held in tensors
            if held and all(storage(tensor) in self._held for tensor in held)
        )


class CallLog(TorchDispatchMode):
    """The operator tuples of all calls, in order, and how many calls of each launch kernels.

    With a `device`, only what runs there does.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self._device = device
        self.operator_tuples: list[OperatorTuple] = []
        self.kernels: Counter[OperatorTuple] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        operator_tuple = describe(func, args, kwargs)
        inputs = tensors_in_tree((args, kwargs))
        result = func(*args, **kwargs)
        self.operator_tuples.append(operator_tuple)
        outputs = tensors_in_tree(result)
        if _launches_kernel(func, operator_tuple, inputs, outputs, self._device):
            self.kernels[operator_tuple] += 1
        return result


def storage(tensor: torch.Tensor) -> int:
    """An identifier of a tensor's memory, which views share."""
    return tensor.untyped_storage()._cdata


_DROPOUT = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
_ALLOCATE = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"}
_ALIAS = "lift_fresh"
"""It returns its argument, of which fake tensors make a copy."""


def _launches_kernel(
    operator: torch._ops.OpOverload,
    operator_tuple: OperatorTuple,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    device: torch.device | None,
) -> bool:
    """Whether data moves: decided by shared storage, because `reshape` is only sometimes a view."""
    name = operator_tuple.name
    if device is not None and _beyond_device(device, name, inputs, outputs):
        return False
    if name.removesuffix("_") in _DROPOUT and not dict(operator_tuple.arguments)["train"]:
        return False
    if name in _ALLOCATE or name == _ALIAS or torch.Tag.inplace_view in operator.tags:
        return False
    if all(tensor.numel() == 0 for tensor in outputs):
        # Searching a mask is work even if the result is empty.
        searched = any(tensor.dtype == torch.bool and tensor.numel() for tensor in inputs)
        return bool(outputs) and searched
    if operator._schema.is_mutable:
        return True
    storages = {storage(tensor) for tensor in inputs}
    return any(storage(tensor) not in storages for tensor in outputs)


def _beyond_device(
    device: torch.device, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> bool:
    """Whether an operator runs on the device's host, or moves data between the two.

    Kernels accept numbers and indices that are tensors of the host.
    """

    def on_host(tensor: torch.Tensor) -> bool:
        return tensor.device.type != device.type

    moves_in = bool(inputs) and all(map(on_host, inputs))
    return moves_in or any(map(on_host, outputs)) or (name == "copy_" and any(map(on_host, inputs)))


@contextmanager
def module_path(model: nn.Module) -> Iterator[Callable[[], tuple[str, str]]]:
    """Yields a function that returns (path, class) of the running module."""
    paths = {id(module): path for path, module in model.named_modules()}
    stack = [(paths[id(model)], type(model).__name__)]

    def enter(module: nn.Module, _inputs: Any) -> None:
        # A module created inside forward has no path.
        stack.append((paths.get(id(module), stack[-1][0]), type(module).__name__))

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        stack.pop()

    with ExitStack() as hooks:
        hooks.enter_context(module_hooks.register_module_forward_pre_hook(enter))
        hooks.enter_context(module_hooks.register_module_forward_hook(leave))
        yield lambda: stack[-1]
