"""What a model executes: every operator call, with the module it happens in.

The model runs once on fake tensors, which have shapes and no values: nothing is computed, and the
weights need no memory.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from opcost import work
from opcost.description import describe, describe_tensor
from opcost.errors import OpcostError
from opcost.manifest import ModelTuples, TupleRecord
from opcost.models import build, example_inputs, inference_conditions
from opcost.operator_tuple import OperatorTuple, TensorSpec
from opcost.replay import tensors_in_tree
from opcost.study import ModelDefinition


@dataclass(frozen=True)
class Call:
    """One operator call of a model, in the order of execution.

    `module_path` is where it happened (`layer1.0.conv1`), "" in the model itself.
    `launches_kernel` is False for a view, or whatever else moves no data. `parameters` names the
    arguments that the model holds itself: its parameters and buffers, and views of them.
    """

    operator_tuple: OperatorTuple
    outputs: tuple[TensorSpec, ...]
    launches_kernel: bool
    parameters: tuple[str, ...]
    module_path: str
    module_class: str


@dataclass(frozen=True)
class Extraction:
    """A model's calls and the number of its parameters."""

    calls: tuple[Call, ...]
    parameters: int


def extract(definition: ModelDefinition, search_path: Path | None = None) -> Extraction:
    """Run a model on fake tensors and record its calls.

    Raises OpcostError when the model cannot be built, cannot run on its inputs, or executes an
    operator whose output sizes depend on values.
    """
    with _no_initialisation():
        module = build(definition, search_path)
    return extract_module(module, example_inputs(definition), definition.name)


def extract_module(module: nn.Module, inputs: list[torch.Tensor], name: str) -> Extraction:
    """Record the calls of a built module in eval mode; its parameters become fake tensors."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    _make_fake(module, fake_mode)
    fake_inputs = [fake_mode.from_tensor(tensor) for tensor in inputs]
    with _module_path(module) as where:
        held = {_storage(tensor) for tensor in [*module.parameters(), *module.buffers()]}
        recorder = _Recorder(where, held)
        try:
            with inference_conditions(), fake_mode, recorder:
                module(*fake_inputs)
        except OpcostError:
            raise
        except Exception as error:
            raise OpcostError(_why_not(error, name, inputs, where())) from error
    return Extraction(tuple(recorder.calls), parameters)


def extract_model_tuples(
    definition: ModelDefinition, search_path: Path | None = None
) -> ModelTuples:
    """What a model executes, each distinct tuple once, with its work.

    Raises OpcostError like `extract`.
    """
    extraction = extract(definition, search_path)
    positions: dict[OperatorTuple, int] = {}
    tuples: list[TupleRecord] = []
    calls = []
    for call in extraction.calls:
        position = positions.setdefault(call.operator_tuple, len(tuples))
        if position == len(tuples):
            tuples.append(_record(call))
        tuples[position] = tuples[position].holding(call.parameters)
        calls.append((position, call.module_path, call.module_class))
    return ModelTuples(
        definition.name, tuple(tuples), tuple(calls), extraction.parameters, str(torch.__version__)
    )


def _record(call: Call) -> TupleRecord:
    if not call.launches_kernel:
        return TupleRecord(call.operator_tuple, call.outputs, False, 0, 0, call.parameters)
    try:
        flops: int | None = work.flops(call.operator_tuple)
    except Exception:  # an operator without a meta kernel: its FLOPs are not known
        flops = None
    moved = work.minimal_bytes(call.operator_tuple, call.outputs)
    return TupleRecord(call.operator_tuple, call.outputs, True, flops, moved, call.parameters)


class _Recorder(TorchDispatchMode):
    """Sees each operator below autograd, above the kernels."""

    def __init__(self, where: Callable[[], tuple[str, str]], held: set[int]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._where = where
        self._held = held

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions to a fake tensor about its device
            return func(*args, **kwargs)
        operator_tuple = describe(func, args, kwargs)
        inputs = tensors_in_tree((args, kwargs))
        result = func(*args, **kwargs)
        outputs = tensors_in_tree(result)
        self.calls.append(
            Call(
                operator_tuple,
                tuple(describe_tensor(tensor) for tensor in outputs),
                _launches_kernel(func, operator_tuple, inputs, outputs),
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
            if held and all(_storage(tensor) in self._held for tensor in held)
        )


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


_DROPOUT = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
_ALLOCATE = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"}


def _launches_kernel(
    operator: torch._ops.OpOverload,
    operator_tuple: OperatorTuple,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
) -> bool:
    """Whether data moves: decided by shared storage, because `reshape` is a view only at times."""
    name = operator_tuple.name
    if name.removesuffix("_") in _DROPOUT and not dict(operator_tuple.arguments)["train"]:
        return False
    if name in _ALLOCATE or torch.Tag.inplace_view in operator.tags:
        return False
    if all(tensor.numel() == 0 for tensor in outputs):
        return False
    if operator._schema.is_mutable:
        return True
    storages = {_storage(tensor) for tensor in inputs}
    return any(_storage(tensor) not in storages for tensor in outputs)


@contextmanager
def _module_path(model: nn.Module) -> Iterator[Callable[[], tuple[str, str]]]:
    """Yields a function that answers (path, class) of the module that is running."""
    paths = {id(module): path for path, module in model.named_modules()}
    stack = [(paths[id(model)], type(model).__name__)]

    def enter(module: nn.Module, _inputs: Any) -> None:
        # A module made on the fly, inside forward, has no path of its own.
        stack.append((paths.get(id(module), stack[-1][0]), type(module).__name__))

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        stack.pop()

    with ExitStack() as hooks:
        hooks.enter_context(module_hooks.register_module_forward_pre_hook(enter))
        hooks.enter_context(module_hooks.register_module_forward_hook(leave))
        yield lambda: stack[-1]


def _make_fake(module: nn.Module, fake_mode: FakeTensorMode) -> None:
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                fake = fake_mode.from_tensor(parameter.data)
                part._parameters[name] = nn.Parameter(fake, requires_grad=False)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fake_mode.from_tensor(buffer)


@contextmanager
def _no_initialisation() -> Iterator[None]:
    """Build modules without drawing their weights: memory that is never touched costs nothing."""

    def untouched(original: Any) -> Any:
        @functools.wraps(original)
        def initialise(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return tensor

        return initialise

    with ExitStack() as patches:
        for name, function in inspect.getmembers(nn.init, inspect.isfunction):
            if name.endswith("_") and not name.startswith("_"):
                patches.enter_context(mock.patch.object(nn.init, name, untouched(function)))
        yield


def _why_not(
    error: Exception, name: str, inputs: list[torch.Tensor], where: tuple[str, str]
) -> str:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
    path, module_class = where
    place = f"in {path!r} ({module_class})" if path else f"in {module_class}"
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return (
            f"model {name}: {place} the operator {error} has an output that depends on values, "
            "not on sizes alone; such models (detection, for example) cannot be extracted yet"
        )
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"model {name} cannot run on inputs of shape {shapes}: {place}: {reason}. "
        "Check `inputs` in its config"
    )
