"""From an operator tuple or a model to its row: set up, measure, describe what came of it."""

import copy
import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost import models, protocol, records, statistics
from opcost.device import Device, OutOfMemory
from opcost.disturbance import Watch
from opcost.energy.meter import open_meter, sensor_of
from opcost.environment import describe_environment
from opcost.heap import Spacers
from opcost.manifest import TupleRecord
from opcost.operands import MEMORY_SHARE, OperandSets, Rotation, degenerate, operand_sets
from opcost.protocol import Trial
from opcost.replay import UnsupportedOperator, check_outputs, tensors_in_tree
from opcost.study import Conditions, MeasurementSettings, ModelDefinition

CACHES_PER_FOOTPRINT = 3
"""A footprint of that many last-level caches leaves nothing in the cache between two uses."""

CORE_CACHES_PER_ACTIVATION = 2
"""Activations that rotate through twice the core's own cache are found in the next one, as they are
inside a model: docs/context.md has the experiment."""

CORE_CACHES_PER_WORKSPACE = 64
"""Workspaces move through that many of the core's own caches; from there on, times grow no more."""

_LONG_CALL_S = 2e-4
_ASSUMED_CACHE_BYTES = 64 * 2**20
_MOST_INPUT_SETS = 2**12
_MOST_COPIES = 2**8


class OperatorWorkload:
    """A replayed operator, iterated over its operand sets."""

    _spacers: Spacers | None = None

    def __init__(self, operands: OperandSets) -> None:
        self.rotation = len(operands.calls)
        self._operator = operands.calls[0].operator
        self._results: deque[Any] = deque(maxlen=operands.kept_results)
        self._next = itertools.cycle([(call.args, call.kwargs) for call in operands.calls])

    def move_workspaces(self, span_bytes: int) -> None:
        """From now on, let each call find other memory for results and workspaces than the last."""
        self._results = deque(maxlen=0)  # kept ones would stand in the way
        self._spacers = Spacers(span_bytes)

    def run(self, iterations: int) -> None:
        """Call the operator, each time on the next set."""
        operator, keep = self._operator, self._results.append
        sets = itertools.islice(self._next, iterations)
        if self._spacers is None:
            for args, kwargs in sets:
                keep(operator(*args, **kwargs))
            return
        sizes = self._spacers.sizes
        for args, kwargs in sets:
            spacer = torch.empty(next(sizes), dtype=torch.uint8)
            keep(operator(*args, **kwargs))
            del spacer


class ModelWorkload:
    """A whole model, iterated over copies of it, and over copies of its inputs."""

    def __init__(
        self, modules: Sequence[nn.Module], inputs: Sequence[Sequence[torch.Tensor]]
    ) -> None:
        self.rotation = len(modules)
        self._next = zip(itertools.cycle(modules), itertools.cycle(inputs), strict=False)

    def run(self, iterations: int) -> None:
        """Run the model, each time the next copy on the next inputs."""
        for module, inputs in itertools.islice(self._next, iterations):
            module(*inputs)


def benchmark_operator(
    record: TupleRecord,
    device: Device,
    watch: Watch,
    conditions: Conditions,
    target: str,
    sensor: Path | None = None,
) -> dict[str, Any]:
    """The row of one operator tuple; a failure is a row too.

    `sensor` is the file that the characterisation of the device's power sensor left.
    """
    row = {**records.operator_columns(record), **_circumstances(device, conditions, target)}
    settings = conditions.measurement

    def measure() -> dict[str, Any]:
        rotation = _rotation(record, device, settings.cache_state)
        operands = operand_sets(
            record.operator_tuple, device, rotation, settings.seed, record.outputs
        )
        check_outputs(operands.calls[0](), record.outputs)
        workload = operator_workload(operands, device, settings.cache_state)
        trial = _run_trial(workload, device, watch, settings, sensor)
        cache_bytes = rotation.footprint_bytes // CACHES_PER_FOOTPRINT
        if settings.cache_state == "cold" and operands.footprint_bytes < cache_bytes:
            trial.flags.append("footprint_within_cache")
        if degenerate(operands.calls[0]):
            trial.flags.append("degenerate_values")
        return {
            "footprint_bytes": operands.footprint_bytes,
            "operand_sets": len(operands.calls),
            "parameters": list(record.parameters),
            **_trial_columns(trial, watch),
        }

    return {**row, **_attempt(measure)}


def benchmark_model(
    definition: ModelDefinition,
    device: Device,
    watch: Watch,
    conditions: Conditions,
    target: str,
    search_path: Path | None = None,
    sensor: Path | None = None,
) -> dict[str, Any]:
    """The row of one whole model; a failure is a row too. `sensor` as for an operator."""
    row = {**records.model_columns(definition), **_circumstances(device, conditions, target)}
    settings = conditions.measurement

    def measure() -> dict[str, Any]:
        torch.manual_seed(settings.seed)
        module = models.build(definition, search_path).to(device.torch_device)
        inputs = models.example_inputs(definition, settings.seed)
        footprint = 0 if settings.cache_state == "warm" else _footprint(device)
        modules = _copies(module, device, footprint)
        sets = _input_sets(inputs, device, footprint if settings.cache_state == "cold" else 0)
        longer = dataclasses.replace(
            settings,
            min_time_s=settings.model_time_s,
            max_time_s=max(settings.max_time_s, 2 * settings.model_time_s),
        )
        trial = _run_trial(ModelWorkload(modules, sets), device, watch, longer, sensor)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors_in_tree(module(*sets[0]))):
            trial.flags.append("degenerate_values")
        return {
            "footprint_bytes": len(modules) * _held_bytes(module)
            + len(sets) * sum(tensor.nbytes for tensor in inputs),
            "operand_sets": len(modules),
            **_trial_columns(trial, watch),
        }

    return {**row, **_attempt(measure)}


def operator_workload(operands: OperandSets, device: Device, cache_state: str) -> OperatorWorkload:
    """The workload of operands that rotate as the cache state asks for, workspaces included.

    Workspaces larger than a core's own cache belong to calls that take long; there a microsecond
    for moving them is no matter.
    """
    workload = OperatorWorkload(operands)
    if cache_state != "warm" and device.core_cache_bytes:
        workload.run(1)
        if device.time(lambda: workload.run(1)).device_s > _LONG_CALL_S:
            span_bytes = CORE_CACHES_PER_WORKSPACE * device.core_cache_bytes
            room_bytes = int(device.free_memory_bytes() * MEMORY_SHARE)
            workload.move_workspaces(min(span_bytes, room_bytes))
    return workload


def _run_trial(
    workload: protocol.Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    sensor: Path | None,
) -> Trial:
    return protocol.run_trial(
        workload, device, watch, settings, open_meter, partial(sensor_of, path=sensor)
    )


def _circumstances(device: Device, conditions: Conditions, target: str) -> dict[str, Any]:
    return {**records.condition_columns(conditions, target), **describe_environment(device)}


def _attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The columns of a measurement, or those of its failure."""
    try:
        with models.inference_conditions():
            return measure()
    except Exception as error:
        return {"status": _status(error), "error": f"{type(error).__name__}: {error}"}


def _status(error: Exception) -> str:
    if isinstance(error, (OutOfMemory, MemoryError, torch.OutOfMemoryError)):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
        return "out_of_memory"
    if isinstance(error, (UnsupportedOperator, NotImplementedError)):
        return "unsupported"
    return "error"


def _rotation(record: TupleRecord, device: Device, cache_state: str) -> Rotation:
    """What a cache state means for the memory that a tuple's tensors use.

    In state model a call finds what it would find inside a model: weights were last used a whole
    pass ago, and activations by an operator or two before, since when the core's own cache has
    seen other data.
    """
    match cache_state:
        case "cold":
            return Rotation(_footprint(device))
        case "model":
            recent = CORE_CACHES_PER_ACTIVATION * device.core_cache_bytes
            return Rotation(_footprint(device), record.parameters, recent)
        case _:
            return Rotation(0)


def _footprint(device: Device) -> int:
    return CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or _ASSUMED_CACHE_BYTES)


def _copies(module: nn.Module, device: Device, footprint_bytes: int) -> list[nn.Module]:
    """The module, with so many copies that its weights come from memory each time.

    So do those of an operator. A model that fits the last-level cache would keep them there, as far
    as other tenants of the cache let it, and be faster than the sum over its operators.
    """
    held_bytes = _held_bytes(module)
    if not held_bytes:
        return [module]
    room = int(device.free_memory_bytes() * MEMORY_SHARE) // held_bytes
    count = min(math.ceil(footprint_bytes / held_bytes), _MOST_COPIES, room + 1)
    return [module, *(copy.deepcopy(module) for _ in range(count - 1))]


def _held_bytes(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])


def _input_sets(
    inputs: Sequence[torch.Tensor], device: Device, footprint_bytes: int
) -> list[list[torch.Tensor]]:
    set_bytes = sum(tensor.nbytes for tensor in inputs)
    count = max(1, min(footprint_bytes // set_bytes, _MOST_INPUT_SETS))
    columns = []
    for tensor in inputs:
        block = device.allocate(count * tensor.numel(), tensor.dtype)
        strides = (tensor.numel(), *tensor.stride())
        copies = block.as_strided((count, *tensor.shape), strides)
        copies.copy_(tensor.to(device.torch_device).expand_as(copies))
        columns.append(copies.unbind(0))
    return [list(row) for row in zip(*columns, strict=True)]


def _trial_columns(trial: Trial, watch: Watch) -> dict[str, Any]:
    time, power, energy = trial.time, trial.power, trial.energy
    sentinel = watch.sentinel_times_s()
    columns: dict[str, Any] = {
        "status": "ok",
        "time_s": time.estimate.value,
        "time_ci_low_s": time.estimate.low,
        "time_ci_high_s": time.estimate.high,
        "enqueue_time_s": time.enqueue_s,
        "batch_time_s": list(time.batch_times_s),
        "batch_undisturbed": list(time.undisturbed),
        "batch_iterations": time.batch_iterations,
        "sentinel_time_s": statistics.median(sentinel).value if sentinel else None,
        "quiet_sentinel_time_s": watch.quiet_s,
        "converged": time.converged,
        "stop_reason": time.stop_reason,
        "flags": trial.flags,
        "repeats": trial.repeats,
        "energy_reason": trial.power_reason,
    }
    if power is None or energy is None:
        return columns
    return columns | {
        "power_w": power.estimate.value,
        "power_ci_low_w": power.estimate.low,
        "power_ci_high_w": power.estimate.high,
        "energy_j": energy.value,
        "energy_ci_low_j": energy.low,
        "energy_ci_high_j": energy.high,
        **power.columns(),
    }
