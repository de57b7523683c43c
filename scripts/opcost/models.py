"""From a model definition to a module and example inputs."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError, closest
from opcost.study import ModelDefinition


def build(definition: ModelDefinition, search_path: Path | None = None) -> nn.Module:
    """The module in eval mode, in the definition's dtype and memory format, on the CPU.

    `search_path` is where a factory's module is looked for first. Nothing is downloaded: weights
    are random. Raises OpcostError when the model cannot be built.
    """
    constructor, arguments = _constructor(definition, search_path)
    try:
        module = constructor(**arguments)
    except Exception as error:
        raise OpcostError(
            f"model {definition.name}: {definition.model or definition.factory} cannot be built "
            f"with arguments {arguments}: {error}"
        ) from error
    if not isinstance(module, nn.Module):
        raise OpcostError(
            f"model {definition.name}: {definition.factory} returned a {type(module).__name__}; "
            "it must return an nn.Module"
        )
    module = module.eval().requires_grad_(False).to(getattr(torch, definition.dtype))
    if definition.memory_format == "channels_last":
        module = module.to(memory_format=torch.channels_last)
    return module


def example_inputs(definition: ModelDefinition, seed: int = 0) -> list[torch.Tensor]:
    """The model's inputs on the CPU: normal floats, uniform integers, drawn from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for spec in definition.inputs:
        dtype = getattr(torch, spec.dtype or definition.dtype)
        if dtype.is_floating_point:
            tensor = torch.randn(spec.shape, generator=generator).to(dtype)
        else:
            tensor = torch.randint(spec.high or 2, spec.shape, generator=generator).to(dtype)
        if definition.memory_format == "channels_last" and tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        tensors.append(tensor)
    return tensors


@contextmanager
def inference_conditions() -> Iterator[None]:
    """What extraction and every measurement have in common.

    The fast path of multi-head attention is off: it exists on some devices only, so that with it
    the operators of a model would depend on where they are counted.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _constructor(definition: ModelDefinition, search_path: Path | None) -> tuple[Any, dict]:
    arguments = dict(definition.arguments or {})
    if definition.factory is not None:
        return _factory(definition, search_path), arguments
    import torchvision.models  # seconds, and a factory may not need it

    name = str(definition.model)
    if name not in torchvision.models.list_models():
        raise OpcostError(
            f"model {definition.name}: torchvision has no model {name!r}. "
            f"{closest(name, torchvision.models.list_models())}"
        )
    constructor = torchvision.models.get_model_builder(name)
    for argument in ("weights", "weights_backbone"):
        if argument in inspect.signature(constructor).parameters:
            arguments.setdefault(argument, None)
    return constructor, arguments


def _factory(definition: ModelDefinition, search_path: Path | None) -> Any:
    module_name, _, attribute = str(definition.factory).partition(":")
    if search_path is not None and str(search_path.resolve()) not in sys.path:
        sys.path.insert(0, str(search_path.resolve()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise OpcostError(
            f"model {definition.name}: cannot import {module_name!r} for factory "
            f"{definition.factory!r}: {error}. Put its file beside the model config"
            f"{f' ({search_path})' if search_path else ''} or install it"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        callables = [name for name, value in vars(module).items() if callable(value)]
        raise OpcostError(
            f"model {definition.name}: module {module_name!r} has no callable {attribute!r}. "
            f"{closest(attribute, callables)}"
        )
    return factory
