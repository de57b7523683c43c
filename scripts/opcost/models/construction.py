"""From a model definition to a module and example inputs."""

import functools
import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from opcost.errors import OpcostError, closest
from opcost.memory import gib
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.factory import import_callable, own_arguments
from opcost.models.inputs import NO_ARGUMENTS, UNSCALED, Arguments, arranged
from opcost.models.libraries import constructor, library_of
from opcost.models.user_code import reason, user_code

_DYNAMO = "torch._dynamo"
"""The module that torch.compile imports, which takes seconds."""
_LARGEST_TENSOR_BYTES = 2**63
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
"""Dtypes of models that have complex parameters, with the dtypes of these."""


def build(definition: ModelDefinition, search_path: Path | None = None) -> nn.Module:
    """The module in eval or training mode, in the definition's dtype and memory format, on the CPU.

    Without a dtype, parameters and buffers keep theirs. `search_path` is searched first for a
    factory's module. Nothing is downloaded: weights are random, and equal for equal definitions.
    Raises OpcostError if the model cannot be built.
    """
    construct, arguments = _constructor(definition, search_path)
    architecture = _weights_left_out() if definition.zoo else nullcontext()
    try:
        with (
            architecture,
            torch.random.fork_rng(devices=[]),
            own_arguments(definition.factory or ""),
            user_code(),
        ):
            torch.default_generator.manual_seed(definition.seed)
            module = construct(**arguments)
    except Exception as error:
        remedy = ". Give others as NAME=VALUE with --argument, or as `arguments` of a model config"
        raise OpcostError(
            f"model {definition.name}: {definition.model or definition.factory} cannot be built "
            f"with arguments {dict(definition.arguments or {})}: {reason(error)}"
            f"{'' if _takes(construct, arguments) else remedy}"
        ) from error
    if inspect.iscoroutine(module):
        module.close()
    if not isinstance(module, nn.Module):
        raise OpcostError(
            f"model {definition.name}: {definition.factory} returned a {type(module).__name__}; "
            "it must return an nn.Module, and nothing beside it"
        )
    try:
        with user_code():
            return _prepared(module, definition)
    except Exception as error:
        raise OpcostError(
            f"model {definition.name}: the {type(module).__name__} that "
            f"{definition.model or definition.factory} "
            f"returned cannot be prepared for {definition.mode}: {reason(error)}"
        ) from error


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
    if definition.training is None:
        module = module.eval().requires_grad_(False)
    else:
        module = module.train()
        _check_hooks(module)
    if dtype is not None:
        convert = functools.partial(_converted, dtype)
        if any(isinstance(parameter, FakeTensor) for parameter in module.parameters()):
            replace_tensors(module, lambda tensor: convert(tensor.detach()))
            return module
        module = module._apply(convert)
    if definition.training is not None and "float16" in parameter_dtypes(module):
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


def example_inputs(definition: ModelDefinition) -> Arguments:
    """The model's arguments on the CPU, with random tensors from its seed."""
    tensors = _tensors(definition, definition.inputs, _drawn(definition.seed))
    return arranged(definition.arrangement, tensors, definition.inputs_in_list)


def empty_inputs(definition: ModelDefinition) -> Arguments:
    """The arguments of `example_inputs` without values; fake tensors take no memory."""
    tensors = _tensors(definition, definition.inputs, _empty)
    return arranged(definition.arrangement, tensors, definition.inputs_in_list)


def example_further_inputs(definition: ModelDefinition) -> Arguments:
    """The inputs of an iteration other than those of forward, on the CPU: labels of a loss, or
    cached tokens; with random tensors from the model's seed.
    """
    return _further(definition, _drawn(definition.seed + 1))


def empty_further_inputs(definition: ModelDefinition) -> Arguments:
    """The arguments of `example_further_inputs` without values."""
    return _further(definition, _empty)


def input_bytes(definition: ModelDefinition) -> int:
    """The size of all inputs. Raises OpcostError for a tensor of impossible size."""
    specs = (*definition.inputs, *definition.further_inputs)
    return sum(_input_bytes(definition, spec) for spec in specs)


_Make = Callable[[InputSpec, torch.dtype], torch.Tensor]


def _drawn(seed: int) -> _Make:
    generator = torch.Generator().manual_seed(seed)

    def draw(spec: InputSpec, dtype: torch.dtype) -> torch.Tensor:
        low, high = spec.limits
        if dtype.is_complex:
            return torch.randn(spec.shape, dtype=dtype, generator=generator)
        if not dtype.is_floating_point:
            limits = int(low), int(high)
            return torch.randint(*limits, spec.shape, generator=generator).to(dtype)
        if spec.low is None and spec.high is None:
            return torch.randn(spec.shape, generator=generator).to(dtype)
        return (low + (high - low) * torch.rand(spec.shape, generator=generator)).to(dtype)

    return draw


def _empty(spec: InputSpec, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=dtype)


def _further(definition: ModelDefinition, make: _Make) -> Arguments:
    training, specs = definition.training, definition.further_inputs
    if training is None and not specs:
        return NO_ARGUMENTS
    arrangement = definition.arrangement if training is None else training.target_arrangement
    return arranged(arrangement, _tensors(definition, specs, make))


def _tensors(
    definition: ModelDefinition, specs: Iterable[InputSpec], make: _Make
) -> list[torch.Tensor]:
    tensors = []
    for spec in specs:
        _input_bytes(definition, spec)
        tensor = make(spec, _dtype(definition, spec))
        if definition.memory_format == "channels_last" and tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        tensors.append(tensor)
    return tensors


def _input_bytes(definition: ModelDefinition, spec: InputSpec) -> int:
    size = math.prod(spec.shape) * _dtype(definition, spec).itemsize
    if size >= _LARGEST_TENSOR_BYTES:
        raise OpcostError(
            f"model {definition.name}: an input of {spec} would have {gib(size)}; no tensor is "
            f"larger than {gib(_LARGEST_TENSOR_BYTES)}. Give smaller sizes"
        )
    return size


def _dtype(definition: ModelDefinition, spec: InputSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype or definition.dtype or "float32")
    return dtype


@contextmanager
def conditions(trained: bool) -> Iterator[None]:
    """The conditions that extraction and every measurement of a model share.

    Compiled parts run operator by operator: those of TorchScript, and those of torch.compile if
    they exist already (`run_compiled_parts_eagerly`).
    """
    existed = _DYNAMO in sys.modules
    stance = torch.compiler.set_stance("force_eager") if existed else nullcontext()
    gradients = torch.enable_grad() if trained else inference_conditions()
    try:
        with gradients, stance, torch.jit.optimized_execution(False):
            yield
    finally:
        if not existed and _DYNAMO in sys.modules:
            torch.compiler.set_stance("default")


def run_compiled_parts_eagerly() -> None:
    """Run compiled parts eagerly in these `conditions`, if the model has been built in them."""
    if _DYNAMO in sys.modules:
        torch.compiler.set_stance("force_eager")


@contextmanager
def inference_conditions() -> Iterator[None]:
    """The conditions of inference, and of operators, which are below autograd.

    The fast path of multi-head attention is disabled, because it exists only on some devices: a
    model's operators would depend on the device.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


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


def _replaced_here(holder: Any, name: str, replacement: Callable[..., Any]) -> Any:
    """Replace a function in this thread only: another thread may build or load a module."""
    original, thread = getattr(holder, name), threading.get_ident()

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        function = replacement if threading.get_ident() == thread else original
        return function(*args, **kwargs)

    return mock.patch.object(holder, name, chosen)


def _constructor(definition: ModelDefinition, search_path: Path | None) -> tuple[Any, dict]:
    arguments = dict(definition.arguments or {})
    if definition.factory is not None:
        found = import_callable(definition, definition.factory, "factory", search_path)
        if isinstance(found, nn.Module):
            raise OpcostError(
                f"model {definition.name}: {definition.factory} is an instance of "
                f"{type(found).__name__}: name a function that returns the module, or its class"
            )
        return found, arguments
    name = str(definition.model)
    if library_of(name) is not None:
        try:
            return constructor(name, arguments), {}
        except OpcostError as error:
            raise OpcostError(f"model {definition.name}: {error}") from error
    import torchvision.models  # importing takes seconds, and a factory may not need it

    if arguments.get("weights") is not None or arguments.get("weights_backbone") is not None:
        raise OpcostError(
            f"model {definition.name}: weights are random, and nothing is downloaded: leave "
            "`weights` out of its arguments"
        )
    if name not in torchvision.models.list_models():
        raise OpcostError(
            f"model {definition.name}: torchvision has no model {name!r}. "
            f"{closest(name, torchvision.models.list_models())}"
        )
    if name in torchvision.models.list_models(module=torchvision.models.quantization):
        raise OpcostError(
            f"model {definition.name}: quantised models are not supported: opcost describes "
            "tensors of plain types, and what torchvision builds by default under this name is a "
            "float model"
        )
    builder = torchvision.models.get_model_builder(name)
    if definition.zoo:
        return builder, {"weights": "DEFAULT", **arguments}
    for argument in ("weights", "weights_backbone"):
        if argument in inspect.signature(builder).parameters:
            arguments.setdefault(argument, None)
    return builder, arguments
