"""The operands of a replayed operator, and their rotation through the memory of the device, or of
its host for a copy between the two.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from opcost.devices.device import Device, OutOfMemory
from opcost.measuring.operand_values import Draw, draws, hold_indices, steady
from opcost.memory import free_bytes
from opcost.tuples.host_memory import copy_of
from opcost.tuples.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, tensors_in
from opcost.tuples.replay import (
    ReplayCall,
    UnsupportedOperator,
    on_device,
    rebuild,
    storage_elements,
    strides,
    torch_dtype,
)
from opcost.tuples.tuple_record import RESULTS

_ALIGNMENT_BYTES = 512  # of CUDA's allocator, and a multiple of a CPU's cache line
_MAX_SETS = 2**14
MEMORY_SHARE = 0.7


@dataclass(frozen=True)
class Rotation:
    """The memory through which a call's tensors rotate between iterations, in bytes.

    Arguments named in `parameters` (None: all) rotate through `footprint_bytes`, and so do results
    if it contains RESULTS. Other arguments use the same memory in each call, and so do these if the
    largest number of sets has less than `least_bytes`, which evicts nothing. Indices alternate
    between `selections` of different entries. Other results alternate between `result_slots`
    places.
    """

    footprint_bytes: int
    parameters: Collection[str] | None = None
    least_bytes: int = 0
    selections: int = 1
    result_slots: int = 1


@dataclass(frozen=True)
class OperandSets:
    """Calls of one tuple on distinct tensors, to be used in turn. Their values are equal, except
    those of indices.

    `footprint_bytes` is the memory of all arguments. If the caller keeps the latest `kept_results`
    results, initially those of `result_memory`, calls write to the memory of as many in turn.
    """

    calls: tuple[ReplayCall, ...]
    footprint_bytes: int
    kept_results: int
    outputs: tuple[TensorSpec, ...]
    device: Device

    def result_memory(self) -> Iterator[list[torch.Tensor]]:
        """Memory of the size of each kept result, from the same allocator, already used once,
        because the first use of memory is slow.
        """
        zeros = partial(torch.zeros, dtype=torch.uint8, device=self.device.torch_device)
        for _ in range(self.kept_results):
            yield [zeros(spec.bytes) for spec in self.outputs]


def operand_sets(
    operator_tuple: OperatorTuple,
    device: Device,
    rotation: Rotation,
    seed: int,
    outputs: Sequence[TensorSpec] = (),
    values: Sequence[torch.Tensor] = (),
) -> OperandSets:
    """Operand sets with the requested rotation.

    `outputs` are the recorded results: their memory rotates, too, and values are chosen to give
    their sizes, unless `values` of all tensors are given. Free memory and a maximum number of sets
    may reduce the footprint. Raises OutOfMemory if not even one set fits, and UnsupportedOperator
    on a processor for operands in the memory of a host.
    """
    copy_of(operator_tuple)
    names = [name for name, value in operator_tuple.arguments for _ in tensors_in(value)]
    specs = [spec for _, spec in operator_tuple.tensors]
    sizes = [_slot_bytes(spec) for spec in specs]
    held = [rotation.parameters is None or name in rotation.parameters for name in names]
    room = _room(specs, sizes, device)
    result_bytes = 0 if operator_tuple.in_place else sum(map(_slot_bytes, outputs))
    kept = rotation.parameters is not None and RESULTS in rotation.parameters
    counts = _counts(rotation, sizes, held, list(hold_indices(operator_tuple)), room)
    generator = torch.Generator(device.torch_device).manual_seed(seed)
    columns = [
        _tensors(spec, draw, count, device, generator, other_values=not is_held)
        for spec, draw, count, is_held in zip(
            specs, draws(operator_tuple, outputs, values), counts, held, strict=True
        )
    ]
    first = [column[0] for column in columns]
    call = on_device(rebuild(steady(operator_tuple), first), device.torch_device)
    rows = zip(*map(itertools.cycle, columns), strict=True) if columns else itertools.repeat(())
    positions = [*map(id, first)]
    calls = [
        call.on(dict(zip(positions, row, strict=True)))
        for row in itertools.islice(rows, max(counts, default=1))
    ]
    footprint = sum(size * count for size, count in zip(sizes, counts, strict=True))
    slots = min(rotation.result_slots, _MAX_SETS // max(1, len(outputs)))
    through_bytes = slots * result_bytes
    beside = room - footprint - result_bytes  # a result lives while the next one is written
    result_sets = _sets(rotation.footprint_bytes if kept else through_bytes, result_bytes, beside)
    kept_results = result_sets if result_bytes and result_sets > 1 else 0
    return OperandSets(tuple(calls), footprint, kept_results, tuple(outputs), device)


def _counts(
    rotation: Rotation,
    sizes: Sequence[int],
    held: Sequence[bool],
    indices: Sequence[bool],
    room: int,
) -> list[int]:
    """The number of tensors of each argument, given which ones are held and which are indices."""
    held_bytes = sum(itertools.compress(sizes, held))
    held_sets = _sets(rotation.footprint_bytes, held_bytes, room)
    if held_sets * held_bytes < rotation.least_bytes:
        held_sets = 1
    select = [is_index and not is_held for is_index, is_held in zip(indices, held, strict=True)]
    beside = room - held_sets * held_bytes
    most = _sets(beside, sum(itertools.compress(sizes, select)), beside)
    selections = min(rotation.selections, most)
    return [
        held_sets if is_held else selections if selects else 1
        for is_held, selects in zip(held, select, strict=True)
    ]


def _room(specs: Sequence[TensorSpec], sizes: Sequence[int], device: Device) -> int:
    """Bytes that may be used of each memory that contains operands. Raises OutOfMemory."""
    on_host = [spec.memory is not None for spec in specs]
    if any(on_host) and device.kind.is_processor:
        raise UnsupportedOperator(
            "it copies between the memory of a GPU and that of its host, and this target is a "
            "processor, which has one memory: measure it on a GPU"
        )
    memories = {device.name: (device.free_memory_bytes(), [not each for each in on_host])}
    if any(on_host):
        memories["the host"] = (free_bytes(), on_host)
    rooms = []
    for name, (free, there) in memories.items():
        needed, room = sum(itertools.compress(sizes, there)), int(free * MEMORY_SHARE)
        if needed > room:
            raise OutOfMemory(
                f"the arguments need {needed / 2**20:.0f} MiB; {name} has "
                f"{room / 2**20:.0f} MiB available"
            )
        rooms.append(room)
    return min(rooms)


def _sets(footprint_bytes: int, set_bytes: int, room: int) -> int:
    """The number of sets that fill the footprint, within the available memory."""
    if not footprint_bytes or not set_bytes:
        return 1
    return max(1, min(math.ceil(footprint_bytes / set_bytes), _MAX_SETS, room // set_bytes))


def degenerate(call: ReplayCall) -> bool:
    """Whether an argument that the operator changes in place became infinite or NaN."""
    return any(
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and not bool(torch.isfinite(value).all())
        for argument, value in zip(call.operator._schema.arguments, call.args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _slot_bytes(spec: TensorSpec) -> int:
    return _slot_elements(spec) * ELEMENT_BYTES[spec.dtype]


def _slot_elements(spec: TensorSpec) -> int:
    """Elements that a tensor occupies, rounded up to the alignment."""
    alignment = _ALIGNMENT_BYTES // ELEMENT_BYTES[spec.dtype]
    return math.ceil(storage_elements(spec) / alignment) * alignment


def _tensors(
    spec: TensorSpec,
    draw: Draw,
    count: int,
    device: Device,
    generator: torch.Generator,
    *,
    other_values: bool,
) -> tuple[torch.Tensor, ...]:
    """`count` tensors in one block of memory, with equal or with different values, in random order
    to defeat prefetching.
    """
    dtype = torch_dtype(spec.dtype)
    slot = _slot_elements(spec)
    if slot == 0:
        return (torch.empty(spec.shape, dtype=dtype, device=device.torch_device),) * count
    if spec.memory is not None:
        block = torch.empty(count * slot, dtype=dtype, pin_memory=spec.memory == "pinned")
    else:
        block = device.allocate(count * slot, dtype)
    drawn = draw(slot * (count if other_values else 1), dtype, generator).to(block.device)
    block.view(count, slot).copy_(drawn.view(-1, slot).expand(count, -1))
    tensors = block.as_strided((count, *spec.shape), (slot, *strides(spec))).unbind(0)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(generator.initial_seed()))
    return tuple(tensors[index] for index in order.tolist())
