"""Operators and models as workloads, iterated in a cache state."""

import itertools
import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from opcost.devices.device import Device
from opcost.errors import OpcostError
from opcost.measuring.operand_values import VALUES_REMEDY
from opcost.measuring.operands import MEMORY_SHARE, OperandSets, Rotation, operand_sets
from opcost.models.definition import FORWARD
from opcost.models.inputs import Arguments
from opcost.models.iteration import Runnable, copied, held_tensors, prepare
from opcost.models.training import TrainingStep
from opcost.models.user_code import message
from opcost.tuples.replay import ReplayCall, check_outputs, tensors_in_tree
from opcost.tuples.tuple_record import IN_CORE, RESULTS, TupleRecord
from opcost.tuples.work import BAGS, TABLES

CACHES_PER_FOOTPRINT = 3
"""Data that rotates through this many last-level caches is evicted between two uses."""

_RESULTS_BETWEEN_USES = 10
_LEAST_BETWEEN_USES_BYTES = 7 * 2**20
"""Memory that models on a processor use between two uses of a result's memory, which operators
allocate and free in turn: about ten times its size, and at least these bytes, which are weights.
docs/explanation/time.md describes the experiments."""

_LEAST_SHARE_OF_RESULTS = 1 / 64
"""Relative to the bytes that a call reads of arguments that stay. The place of smaller results is
irrelevant; keeping them would fragment the memory of temporaries, which would need new pages in
each call."""

_ASSUMED_CACHE_BYTES = 64 * 2**20
_MAX_INPUT_SETS = 2**12
_MAX_COPIES = 2**8


class UnsuitableOperands(OpcostError):
    """An operator refuses the generated values, or returns other sizes with them."""


class OperatorWorkload:
    """A replayed operator, iterated over its operand sets."""

    in_use = False

    def __init__(self, operands: OperandSets) -> None:
        self.operands = operands
        self.rotation = len(operands.calls)
        self._operator = operands.calls[0].operator
        self._results: deque[Any] = deque(operands.result_memory(), operands.kept_results)
        self._next = itertools.cycle([(call.args, call.kwargs) for call in operands.calls])

    def run(self, iterations: int) -> None:
        """Call the operator on the next sets."""
        operator, keep = self._operator, self._results.append
        for args, kwargs in itertools.islice(self._next, iterations):
            keep(operator(*args, **kwargs))


class ModelWorkload:
    """A model or its training step, iterated over copies of it and of its inputs."""

    in_use = True

    def __init__(
        self,
        copies: Sequence[Runnable],
        inputs: Sequence[Arguments],
        call: Callable[..., Any] = operator.call,
    ) -> None:
        self.rotation = len(copies)
        self.trained = isinstance(copies[0], TrainingStep)
        self._sets, self._call = (copies, inputs), call
        self._once = copies[0], inputs[0]
        self.footprint_bytes = len(copies) * _held_bytes(copies[0]) + len(inputs) * sum(
            tensor.nbytes for tensor in tensors_in_tree(inputs[0])
        )
        self._next = zip(itertools.cycle(copies), itertools.cycle(inputs), strict=False)

    def run(self, iterations: int) -> None:
        """Run the next copies of the model on the next inputs."""
        for run, (args, kwargs) in itertools.islice(self._next, iterations):
            self._call(run, *args, **kwargs)

    @contextmanager
    def noting(self, clock: Callable[[str], None]) -> Iterator[None]:
        """Let training steps report the phases that they enter."""
        steps = [each for each in self._sets[0] if isinstance(each, TrainingStep)]
        for step in steps:
            step.entered = clock
        yield
        clock(FORWARD)  # ends the last phase
        for step in steps:
            step.entered = None

    def called_by(self, call: Callable[..., Any]) -> "ModelWorkload":
        """The same workload, with copies called by a function."""
        return ModelWorkload(*self._sets, call)

    def output(self) -> Any:
        """The model's output, or the loss of a training step."""
        run, (args, kwargs) = self._once
        return run(*args, **kwargs)


def operator_workload(
    record: TupleRecord,
    device: Device,
    cache_state: str,
    seed: int,
    values: Sequence[torch.Tensor] = (),
) -> OperatorWorkload:
    """The workload of an operator tuple in a cache state.

    In state `model`, as inside a model, weights come from memory, because they were last used a
    whole pass ago; activations were written by the previous operator, and results go to memory that
    other operators have used. `values` are those of its tensors, if not drawn. Raises what
    `operand_sets` raises, and UnsuitableOperands.
    """
    rotation = _rotation(record, device, cache_state)
    operands = operand_sets(record.operator_tuple, device, rotation, seed, record.outputs, values)
    _try_out(operands.calls[0], record)
    return OperatorWorkload(operands)


def _try_out(call: ReplayCall, record: TupleRecord) -> None:
    """Call an operator once. Raises UnsuitableOperands."""
    # For bags, fake tensors return other integers beside the sums than kernels do.
    counted = 1 if record.operator_tuple.name in BAGS else None
    try:
        check_outputs(tensors_in_tree(call())[:counted], record.outputs[:counted])
    except (NotImplementedError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        said = message(error).splitlines()[0].rstrip(".")
        raise UnsuitableOperands(
            f"{record.operator_tuple.name}, on the values that opcost generates for it: {said}. "
            f"{VALUES_REMEDY}"
        ) from error


def model_workload(
    run: Runnable, inputs: Arguments, device: Device, cache_state: str
) -> ModelWorkload:
    """The workload of a model or its training step in the cache state of its operators.

    Except in state `warm`, the model has so many copies that weights come from memory each time, as
    those of operators do: a model that fits the last-level cache would otherwise keep them there,
    and be faster than the estimate from its operators.
    """
    footprint_bytes = 0 if cache_state == "warm" else footprint(device)
    sets = _input_sets(inputs, device, footprint_bytes if cache_state == "cold" else 0)
    prepare(run, sets[0])
    return ModelWorkload(_copies(run, device, footprint_bytes), sets)


def footprint(device: Device) -> int:
    """Bytes through which data must rotate to be evicted from the device's caches."""
    return CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or _ASSUMED_CACHE_BYTES)


def caches_bytes(device: Device) -> int:
    """Size of the device's last-level cache, assumed if unknown."""
    return footprint(device) // CACHES_PER_FOOTPRINT


def _rotation(record: TupleRecord, device: Device, cache_state: str) -> Rotation:
    # Without private caches, there is no need for sets that all fit the last-level cache.
    least = 0 if device.core_cache_bytes else caches_bytes(device)
    match cache_state:
        case "cold":
            return Rotation(footprint(device), least_bytes=least)
        case "model":
            is_processor, parameters = device.kind.is_processor, record.parameters
            result_bytes = sum(spec.bytes for spec in record.outputs)
            read_bytes = min(_still_bytes(record), record.bytes)
            small = is_processor and result_bytes < _LEAST_SHARE_OF_RESULTS * read_bytes
            if small:
                parameters = tuple(name for name in parameters if name != RESULTS)
            if IN_CORE in parameters or not is_processor:
                return Rotation(footprint(device), parameters, least)
            from_table = TABLES.get(record.operator_tuple.name) in record.parameters
            call_bytes = max(1, record.bytes)
            selections = math.ceil(footprint(device) / call_bytes) if from_table else 1
            slots = 1 if small else _result_slots(record, device)
            return Rotation(footprint(device), parameters, least, selections, slots)
        case _:
            return Rotation(0)


def _result_slots(record: TupleRecord, device: Device) -> int:
    """The number of places that results use in turn, so that between two uses of a place calls use
    as much memory as other results and weights would, but no more than evicts it.
    """
    result_bytes = sum(spec.bytes for spec in record.outputs)
    between = max(_RESULTS_BETWEEN_USES * result_bytes, _LEAST_BETWEEN_USES_BYTES)
    call_bytes = max(1, result_bytes, record.bytes - _still_bytes(record))
    return math.ceil(min(between, footprint(device)) / call_bytes)


def _still_bytes(record: TupleRecord) -> int:
    """Bytes of the arguments that are not parameters, which stay in place."""
    tensors = record.operator_tuple.tensors
    return sum(spec.bytes for name, spec in tensors if name not in record.parameters)


def _copies(run: Runnable, device: Device, footprint_bytes: int) -> list[Runnable]:
    held_bytes = _held_bytes(run)
    if not held_bytes:
        return [run]
    room = int(device.free_memory_bytes() * MEMORY_SHARE) // held_bytes
    count = min(math.ceil(footprint_bytes / held_bytes), _MAX_COPIES, room + 1)
    return [run, *(copied(run) for _ in range(count - 1))]


def _held_bytes(run: Runnable) -> int:
    return sum(tensor.nbytes for tensor in held_tensors(run))


def _input_sets(inputs: Arguments, device: Device, footprint_bytes: int) -> list[Arguments]:
    """Copies of the arguments that share everything except tensors."""
    leaves, structure = tree_flatten(inputs)
    set_bytes = sum(tensor.nbytes for tensor in tensors_in_tree(leaves))
    count = max(1, min(footprint_bytes // max(1, set_bytes), _MAX_INPUT_SETS))
    columns = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            columns.append((leaf,) * count)
            continue
        block = device.allocate(count * leaf.numel(), leaf.dtype)
        copies = block.as_strided((count, *leaf.shape), (leaf.numel(), *leaf.stride()))
        copies.copy_(leaf.to(device.torch_device).expand_as(copies))
        columns.append(copies.unbind(0))
    return [tree_unflatten(row, structure) for row in zip(*columns, strict=True)]
