"""The work of an iteration: a module, a training step, or a step of generation."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from opcost.errors import OpcostError
from opcost.models.decoding import GenerationStep
from opcost.models.definition import ModelDefinition
from opcost.models.inputs import Arguments
from opcost.models.precision import autocast
from opcost.models.training import TrainingStep, training_step
from opcost.models.user_code import message, user_code


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


def runnable(
    module: nn.Module,
    definition: ModelDefinition,
    further: Arguments,
    search_path: Path | None = None,
) -> Runnable:
    """The runnable of a definition's iteration, with a module that was built from it.

    `further` are its further inputs (construction.py). Raises OpcostError for an unsuitable loss,
    optimizer or model.
    """
    if definition.training is not None:
        return training_step(module, definition, definition.training, further, search_path)
    if definition.cached_tokens is not None:
        try:
            cached = further if definition.cached_tokens else None
            return GenerationStep(module, cached, definition.autocast)
        except OpcostError as error:
            raise OpcostError(f"model {definition.name}: {error}") from error
    return module if definition.autocast is None else MixedInference(module, definition.autocast)


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
