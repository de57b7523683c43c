"""From a model definition to a module."""

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from opcost.errors import OpcostError
from opcost.models.definition import UNSCALED, ModelDefinition
from opcost.models.source import check_unchanged, import_callable, own_arguments
from opcost.models.trained_weights import cached_state, load_weights
from opcost.models.user_code import errors_of, reason, user_code
from opcost.models.zoo import constructor

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
"""Dtypes of models that have complex parameters, with the dtypes of these."""


def build(definition: ModelDefinition, search_path: Path | None = None) -> nn.Module:
    """The module in eval or training mode, in the definition's dtype and memory format, on the CPU.

    Without a dtype, parameters and buffers keep theirs. `search_path` is searched first for a
    factory's module. Nothing is downloaded: weights are those of a file or of torchvision's cache,
    or random, and equal for equal definitions.
    Raises OpcostError if the model cannot be built.
    """
    with errors_of(definition.name):
        return _built(definition, search_path)


def _built(definition: ModelDefinition, search_path: Path | None) -> nn.Module:
    construct, arguments = _constructor(definition, search_path)
    weights = _weights_left_out() if definition.zoo else _weights_of(definition)
    try:
        with (
            weights,
            torch.random.fork_rng(devices=[]),
            own_arguments(definition.factory or ""),
            user_code(),
        ):
            torch.default_generator.manual_seed(definition.seed)
            module = construct(**arguments)
    except Exception as error:
        if isinstance(error, OpcostError) and definition.has_named_weights:
            raise
        remedy = ". Give others as NAME=VALUE with --argument, or as `arguments` of a model config"
        raise OpcostError(
            f"{definition.source} cannot be built with arguments "
            f"{dict(definition.arguments or {})}: {reason(error)}"
            f"{'' if _takes(construct, arguments) else remedy}"
        ) from error
    if inspect.iscoroutine(module):
        module.close()
    if not isinstance(module, nn.Module):
        raise OpcostError(
            f"{definition.factory} returned a {type(module).__name__}; "
            "it must return an nn.Module, and nothing beside it"
        )
    load_weights(module, definition, search_path)
    try:
        with user_code():
            return _prepared(module, definition)
    except Exception as error:
        raise OpcostError(
            f"the {type(module).__name__} that {definition.source} returned cannot be prepared "
            f"for {definition.mode}: {reason(error)}"
        ) from error


def _constructor(
    definition: ModelDefinition, search_path: Path | None
) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """What makes the module, and the arguments that it is called with."""
    if definition.factory is None:
        return constructor(definition)
    check_unchanged(definition, search_path)
    found = import_callable(definition.factory, "factory", search_path)
    check_unchanged(definition, search_path)
    if isinstance(found, nn.Module):
        raise OpcostError(
            f"{definition.factory} is an instance of "
            f"{type(found).__name__}: name a function that returns the module, or its class"
        )
    return found, dict(definition.arguments or {})


def _takes(construct: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    """Whether a callable accepts these arguments, and needs no others."""
    try:
        inspect.signature(construct).bind(**arguments)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def _prepared(module: nn.Module, definition: ModelDefinition) -> nn.Module:
    if isinstance(module, torch.jit.ScriptModule):
        raise OpcostError("TorchScript is not supported: return the module that was scripted")
    check_has_values(module)
    dtype: torch.dtype | None = getattr(torch, definition.dtype) if definition.dtype else None
    check_tensors(module, dtype)
    if definition.trains:
        module = module.train()
        _check_hooks(module)
    else:
        module = module.eval().requires_grad_(False)
    if dtype is not None:
        convert = functools.partial(_converted, dtype)
        if any(isinstance(parameter, FakeTensor) for parameter in module.parameters()):
            replace_tensors(module, lambda tensor: convert(tensor.detach()))
            return module
        module = module._apply(convert)
    if definition.trains and "float16" in parameter_dtypes(module):
        raise OpcostError(UNSCALED)
    if definition.memory_format == "channels_last":
        module = module.to(memory_format=torch.channels_last)
    return module


def check_has_values(module: nn.Module) -> None:
    """Raise OpcostError for a module on the meta device, which can be explained, but not run."""
    held = [*module.named_parameters(), *module.named_buffers()]
    if without := [name for name, tensor in held if tensor.is_meta]:
        raise OpcostError(
            f"its {without[0]} is on the meta device, without values: build it on the processor"
        )


def check_tensors(module: nn.Module, dtype: torch.dtype | None = None) -> None:
    """Raise OpcostError for parameters and buffers that opcost cannot describe or convert."""
    if any(is_lazy(tensor) for tensor in [*module.parameters(), *module.buffers()]):
        raise OpcostError(
            "it has lazy parameters: use modules with sizes, such as nn.Linear instead of "
            "nn.LazyLinear, or run it once in the factory"
        )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.layout != torch.strided or tensor.is_quantized:
            kind = "quantised" if tensor.is_quantized else f"of layout {tensor.layout}"
            raise OpcostError(
                f"its {name} is {kind}, which is not supported: opcost describes strided tensors "
                "of plain types"
            )
        if tensor.is_complex() and dtype is not None and dtype not in _COMPLEX:
            allowed = " or ".join(str(each).removeprefix("torch.") for each in _COMPLEX)
            raise OpcostError(f"its {name} is complex, and dtype is {dtype}: use {allowed}")


def _check_hooks(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise OpcostError(
                f"parameter {name} has a hook, which copies of it do not have: use hooks of "
                "modules, or of activations"
            )


def _converted(dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    """A parameter or buffer in a model's dtype; integers are unchanged."""
    if tensor.is_complex():
        return tensor.to(_COMPLEX[dtype])
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def replace_tensors(module: nn.Module, convert: Callable[[torch.Tensor], Any]) -> None:
    """Replace the parameters and buffers of a module, which may be fake tensors and stay shared."""

    @functools.cache  # a tensor that modules share stays shared
    def converted(tensor: torch.Tensor) -> Any:
        return convert(tensor).requires_grad_(tensor.requires_grad)

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = converted(tensor)


def parameter_dtypes(module: nn.Module) -> tuple[str, ...]:
    """The distinct dtypes of a module's parameters, except integers, or else of its buffers."""
    return dtypes_of(module.parameters()) or dtypes_of(module.buffers())


def dtypes_of(tensors: Iterable[torch.Tensor]) -> tuple[str, ...]:
    """The distinct dtypes of tensors, except integers, in order."""
    kinds = [each.dtype for each in tensors if each.is_floating_point() or each.is_complex()]
    return tuple(str(kind).removeprefix("torch.") for kind in dict.fromkeys(kinds))


@contextmanager
def without_initialisation() -> Iterator[None]:
    """Build modules without initialising their weights: untouched memory is not allocated."""
    # Attention modules import these functions by name.
    with ExitStack() as patches:
        for module in (nn.init, nn.modules.activation):
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if (
                    function.__module__ == nn.init.__name__
                    and name.endswith("_")
                    and name[0] != "_"
                ):
                    patches.enter_context(
                        _replaced_here(module, name, lambda tensor, *_, **__: tensor)
                    )
        yield


@contextmanager
def _weights_left_out() -> Iterator[None]:
    """Prevent torchvision's constructors from downloading or loading weights.

    They still build the architecture of these weights: with frozen batch norms, with or without
    auxiliary heads, at their image size.
    """
    from torchvision.models import WeightsEnum

    with (
        _replaced_here(WeightsEnum, "get_state_dict", lambda *_, **__: {}),
        _replaced_here(nn.Module, "load_state_dict", lambda *_, **__: None),
    ):
        yield


def _weights_of(definition: ModelDefinition) -> AbstractContextManager[Any]:
    """Let torchvision's constructors load named weights, from its cache only."""
    if not definition.has_named_weights:
        return nullcontext()
    from torchvision.models import WeightsEnum

    return _replaced_here(WeightsEnum, "get_state_dict", lambda own, **_: cached_state(own))


def _replaced_here(holder: Any, name: str, replacement: Callable[..., Any]) -> Any:
    """Replace a function in this thread only: another thread may build or load a module."""
    original, thread = getattr(holder, name), threading.get_ident()

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        function = replacement if threading.get_ident() == thread else original
        return function(*args, **kwargs)

    return mock.patch.object(holder, name, chosen)
