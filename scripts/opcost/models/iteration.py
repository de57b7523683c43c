"""The work of an iteration: a module, a training step, a step of generation, or an isolated layer.

A layer is a module of a model, run on the arguments that it gets in the model, which runs once to
record them. It then finds the same values, shapes and layouts as inside the model, and is measured
like any model, for as long as a power sensor needs.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError, closest
from opcost.models.conditions import autocast, conditions
from opcost.models.construction import parameter_dtypes
from opcost.models.decoding import GenerationStep
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.inputs import Arguments, example_inputs, further_inputs
from opcost.models.source import check_unchanged
from opcost.models.training import TrainingStep, training_step
from opcost.models.user_code import errors_of, message, reason, user_code

LACK_VALUES = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
)
"""Errors of fake tensors where sizes or control flow depend on values."""


class MixedInference:
    """A module in lower precision, called like the module."""

    def __init__(self, module: nn.Module, dtype: str) -> None:
        self.module, self._dtype = module, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward under autocast."""
        with autocast(self.module, self._dtype):
            return self.module(*args, **kwargs)


class _Copying(TorchFunctionMode):
    """Converts tensors that cannot be copied: those made by autograd, or without values."""

    def __init__(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._convert = convert

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.__deepcopy__ and (args[0].is_meta or not args[0].is_leaf):
            return self._convert(args[0])
        return func(*args, **(kwargs or {}))


def copied(
    run: "Runnable",
    convert: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor.detach().clone(),
    memo: Mapping[int, Any] = MappingProxyType({}),
) -> Any:
    """A copy of a module or runnable; tensors that PyTorch does not copy are `convert`ed.

    `memo` has copies of objects by their ids. Raises OpcostError that names the attribute that
    cannot be copied.
    """
    with _Copying(convert), user_code():
        try:
            return copy.deepcopy(run, {**memo})
        except Exception as error:
            for path, part in module_of(run).named_modules():
                for key, value in vars(part).items():
                    try:
                        copy.deepcopy(value, {**memo})
                    except Exception as own:
                        if key == "_modules":
                            continue  # one of the modules will be named
                        where = f"{path}.{key}" if path else key
                        raise OpcostError(
                            f"its attribute {where}, a {type(value).__name__}, cannot be copied, "
                            f"and opcost runs copies of a model: {message(own)}. Make it where "
                            "forward needs it, or give its class a __deepcopy__"
                        ) from error
            raise


Runnable = nn.Module | MixedInference | TrainingStep | GenerationStep
"""Calling it runs an iteration."""


class Iteration(NamedTuple):
    """What an iteration of a definition runs, and its arguments.

    `drawn` has the tensors that were made for it, each with its specification.
    """

    run: Runnable
    inputs: Arguments
    drawn: Sequence[tuple[torch.Tensor, InputSpec]]


def iteration_of(
    definition: ModelDefinition,
    module: nn.Module,
    search_path: Path | None = None,
    *,
    device: torch.device | None = None,
    empty: bool = False,
) -> Iteration:
    """The iteration of a definition, with a module that was built from it.

    `device` is that of the module, None for the CPU; arguments are on the CPU, those of a layer on
    the device. `empty` tensors have no values. Raises OpcostError for an unsuitable loss,
    optimizer, model or layer; errors of `LACK_VALUES` pass unchanged.
    """
    definition = definition.stating(parameter_dtypes(module))
    inputs = example_inputs(definition, empty=empty)
    further = further_inputs(definition, empty=empty)
    tensors = [each for each in tree_leaves((inputs, further)) if isinstance(each, torch.Tensor)]
    drawn = [*zip(tensors, (*definition.inputs, *definition.further_inputs), strict=True)]
    with errors_of(definition.name):
        run = _runnable(module, definition, _on(device, further), search_path)
        if definition.layer is not None:
            run, inputs = narrowed(run, _on(device, inputs), definition.layer, definition.autocast)
    return Iteration(run, inputs, drawn)


def _on(device: torch.device | None, arguments: Arguments) -> Arguments:
    return arguments if device is None else arguments.to(device)


def _runnable(
    module: nn.Module, definition: ModelDefinition, further: Arguments, search_path: Path | None
) -> Runnable:
    if definition.training is not None:
        check_unchanged(definition, search_path)
        training = definition.training
        step = training_step(module, training, further, definition.autocast, search_path)
        check_unchanged(definition, search_path)
        return step
    if definition.generates:
        cached = further if definition.cached_tokens else None
        return GenerationStep(module, cached, definition.autocast)
    return _in_precision(module, definition.autocast)


def _in_precision(module: nn.Module, dtype: str | None) -> Runnable:
    return module if dtype is None else MixedInference(module, dtype)


def narrowed(
    run: Runnable, inputs: Arguments, layer: str, dtype: str | None = None
) -> tuple[Runnable, Arguments]:
    """An isolated module of a model, with the dtype of autocast, and the arguments that it gets.

    Raises OpcostError if the model has no such module or does not call it; errors of `LACK_VALUES`
    pass unchanged.
    """
    modules = dict(module_of(run).named_modules())
    if layer not in modules:
        raise OpcostError(f"the model has no module {layer!r}. {closest(layer, modules)}")
    module = modules[layer]
    given: list[Arguments] = []

    def keep(_: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not given:
            given.append(_kept(Arguments(args, dict(kwargs))))

    hook = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with conditions(trained=False), user_code():
            run(*inputs.args, **inputs.kwargs)
    except Exception as error:
        if type(error).__name__ in LACK_VALUES:
            raise
        raise OpcostError(f"its forward failed: {reason(error)}") from error
    finally:
        hook.remove()
    if not given:
        raise OpcostError(
            f"its forward does not call the module {layer}, which therefore "
            "has no arguments: name one that it calls"
        )
    return _in_precision(module, dtype), given[0]


def _kept(arguments: Arguments) -> Arguments:
    """A copy of the arguments, because later calls and in-place operators may change them.

    Shared tensors and memory stay shared: modules test that, and layouts affect kernels.
    """
    if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(arguments)):
        return arguments  # they have no values
    return copy.deepcopy(arguments)


def prepare(run: Runnable, inputs: Arguments) -> None:
    """Make the state that persists between iterations: of the optimizer, or cached keys and values.
    Raises OpcostError.
    """
    if isinstance(run, TrainingStep | GenerationStep):
        run.prepare(inputs)


def module_of(run: Runnable) -> nn.Module:
    """The module of a runnable."""
    return run if isinstance(run, nn.Module) else run.module


def held_tensors(run: Runnable) -> list[torch.Tensor]:
    """The tensors that persist between iterations."""
    if isinstance(run, TrainingStep):
        return [*run.held()]
    module = module_of(run)
    cached = run.cached_tensors() if isinstance(run, GenerationStep) else ()
    return [*module.parameters(), *module.buffers(), *cached]
