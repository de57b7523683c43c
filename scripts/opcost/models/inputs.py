"""The arguments of a model's forward: tensors made from a definition, in their arrangement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only

from opcost.models.definition import InputSpec, ModelDefinition, bytes_of_input


class Arguments(NamedTuple):
    """The arguments of a model's forward, or of a loss after the output."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def to(self, device: torch.device) -> "Arguments":
        """The arguments with their tensors on a device."""
        moved: Arguments = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self)
        return moved


def example_inputs(definition: ModelDefinition, *, empty: bool = False) -> Arguments:
    """The model's arguments on the CPU, with random tensors from its seed.

    `empty` ones have no values; as fake tensors they take no memory.
    """
    make = _empty if empty else _drawn(definition.seed)
    tensors = _tensors(definition, definition.inputs, make)
    return arranged(definition.arrangement, tensors, definition.inputs_in_list)


def further_inputs(definition: ModelDefinition, *, empty: bool = False) -> Arguments:
    """The inputs of an iteration other than those of forward, on the CPU: labels of a loss, or
    cached tokens; with random tensors from the model's seed, unless `empty`.
    """
    specs = definition.further_inputs
    if not (specs or definition.trains):
        return Arguments((), {})
    training = definition.training
    arrangement = training.target_arrangement if training else definition.arrangement
    make = _empty if empty else _drawn(definition.seed + 1)
    return arranged(arrangement, _tensors(definition, specs, make))


def arranged(arrangement: Any, tensors: Sequence[Any], in_list: bool = False) -> Arguments:
    """The arguments with these tensors in an arrangement.

    Without one, each is a positional argument, or all are one list.
    """
    if arrangement is None:
        return Arguments([list(tensors)] if in_list else list(tensors), {})

    def build(node: Mapping[str, Any]) -> Any:
        [(kind, content)] = node.items()
        return _BUILT[kind](content, build) if kind in _BUILT else tensors[content]

    found = build(arrangement)
    return Arguments((), found) if isinstance(found, dict) else Arguments(found, {})


_BUILT: Mapping[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "value": lambda content, _: content,
    "list": lambda content, build: [build(each) for each in content],
    "tuple": lambda content, build: tuple(build(each) for each in content),
    "dict": lambda content, build: {key: build(each) for key, each in content.items()},
}


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


def _tensors(
    definition: ModelDefinition, specs: Iterable[InputSpec], make: _Make
) -> list[torch.Tensor]:
    tensors = []
    for spec in specs:
        bytes_of_input(definition, spec)
        tensor = make(spec, _dtype(definition, spec))
        if definition.memory_format == "channels_last" and tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        tensors.append(tensor)
    return tensors


def _dtype(definition: ModelDefinition, spec: InputSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype or definition.dtype or "float32")
    return dtype
