"""The tensors that a replayed operator works on: what they hold, and how they rotate.

Power depends on data (arXiv 2409.18324), and time may: values are drawn from a seed, normal where
the operator allows it, never zeros or uninitialised memory.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from opcost.device import Device, OutOfMemory
from opcost.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, tensors_in
from opcost.replay import ReplayCall, on_device, rebuild, storage_elements, strides

_ALIGNMENT_BYTES = 512  # what CUDA's allocator gives, and a multiple of a CPU's cache line
_MOST_SETS = 2**14
_MEMORY_SHARE = 0.7

Draw = Callable[[int, torch.dtype, torch.Generator], torch.Tensor]
"""Makes that many values of that type on the generator's device."""


@dataclass(frozen=True)
class OperandSets:
    """Calls of one tuple on distinct tensors of equal values, to be used in turn.

    `footprint_bytes` is the memory of all sets together.
    """

    calls: tuple[ReplayCall, ...]
    footprint_bytes: int


def operand_sets(
    operator_tuple: OperatorTuple, device: Device, footprint_bytes: int, seed: int
) -> OperandSets:
    """Sets of operands that together span `footprint_bytes`, or one set for a footprint of zero.

    The device's memory and the time to set up limit the number of sets: the result's footprint
    tells what was reached. Raises OutOfMemory if not even one set fits.
    """
    specs = list(operator_tuple.tensors)
    set_bytes = sum(_slot_elements(spec) * ELEMENT_BYTES[spec.dtype] for _, spec in specs)
    room = int(device.free_memory_bytes() * _MEMORY_SHARE)
    if set_bytes > room:
        raise OutOfMemory(
            f"the arguments need {set_bytes / 2**20:.0f} MiB; {device.name} has "
            f"{room / 2**20:.0f} MiB to spare"
        )
    count = 1
    if footprint_bytes and set_bytes:
        wanted = max(2, math.ceil(footprint_bytes / set_bytes))
        count = max(1, min(wanted, _MOST_SETS, room // set_bytes))
    generator = torch.Generator(device.torch_device).manual_seed(seed)
    columns = [
        _copies(spec, draw, count, device, generator)
        for (_, spec), draw in zip(specs, _draws(operator_tuple), strict=True)
    ]
    calls = []
    for row in range(count):
        call = rebuild(operator_tuple, [column[row] for column in columns])
        calls.append(on_device(call, device.torch_device))
    return OperandSets(tuple(calls), count * set_bytes)


def degenerate(call: ReplayCall) -> bool:
    """Whether an argument that the operator changes in place ran off to infinity or NaN."""
    return any(
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and not bool(torch.isfinite(value).all())
        for argument, value in zip(call.operator._schema.arguments, call.args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _slot_elements(spec: TensorSpec) -> int:
    """Elements that a tensor occupies when the next one starts on an aligned address."""
    alignment = _ALIGNMENT_BYTES // ELEMENT_BYTES[spec.dtype]
    return math.ceil(storage_elements(spec) / alignment) * alignment


def _copies(
    spec: TensorSpec, draw: Draw, count: int, device: Device, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """`count` tensors side by side in one block, all holding the same drawn values."""
    dtype = getattr(torch, spec.dtype)
    slot = _slot_elements(spec)
    if slot == 0:
        return (torch.empty(spec.shape, dtype=dtype, device=device.torch_device),) * count
    block = device.allocate(count * slot, dtype)
    block.view(count, slot).copy_(draw(slot, dtype, generator).expand(count, -1))
    return block.as_strided((count, *spec.shape), (slot, *strides(spec))).unbind(0)


def _draws(operator_tuple: OperatorTuple) -> Iterator[Draw]:
    """How to fill each tensor of a tuple, in the order of `OperatorTuple.tensors`."""
    arguments = dict(operator_tuple.arguments)
    base = operator_tuple.name.removesuffix("_")
    in_place = operator_tuple.name.endswith("_")
    for name, value in operator_tuple.arguments:
        for position, spec in enumerate(tensors_in(value)):
            limit = _index_limit(base, name, position, arguments)
            if limit is not None:
                yield _integers(limit)
            elif spec.dtype == "bool" or not spec.dtype.startswith(("float", "bfloat", "complex")):
                yield _integers(2)
            elif name in ("running_var", "var") or base in _POSITIVE_DOMAIN:
                yield _positive
            elif base == "grid_sampler" and name == "grid":
                yield _unit_interval
            elif in_place and base in _SHRINKING and name == "self":
                yield _far_from_zero
            elif in_place and base in ("mul", "div") and name == "other":
                yield _signs
            else:
                yield _normal


_POSITIVE_DOMAIN = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow"}

_SHRINKING = {"silu", "hardswish", "mish", "gelu", "elu", "celu"}
"""In place, these drive small values towards zero; far from zero they leave values as they are."""


def _index_limit(base: str, name: str, position: int, arguments: dict) -> int | None:
    """The number that an index argument must stay below, or None if it is no index."""
    match base, name:
        case "embedding", "indices":
            return arguments["weight"].shape[0]
        case (("index" | "index_put" | "_index_put_impl"), "indices"):
            # The list holds None for a dimension that is not indexed.
            axes = [axis for axis, value in enumerate(arguments["indices"]) if value is not None]
            return arguments["self"].shape[axes[position]]
        case (("gather" | "scatter" | "scatter_add" | "index_select" | "index_add"), "index"):
            return arguments["self"].shape[arguments["dim"]]
        case "take", "index":
            return arguments["self"].elements
    return None


def _normal(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    # Drawn in float32 at the narrowest: not every device draws in float16.
    drawn = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
    return torch.randn(count, dtype=drawn, device=generator.device, generator=generator).to(dtype)


def _positive(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).abs() + 0.5


def _unit_interval(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(count, device=generator.device, generator=generator)
    return (uniform * 2 - 1).to(dtype)


def _far_from_zero(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    drawn = _normal(count, dtype, generator)
    return drawn + 20 * drawn.sign()


def _signs(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).sign()


def _integers(limit: int) -> Draw:
    def draw(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        drawn = torch.randint(limit, (count,), device=generator.device, generator=generator)
        return drawn.to(dtype)

    return draw
