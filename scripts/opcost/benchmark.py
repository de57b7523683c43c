"""From an operator tuple or a model to its row: set up, measure, describe what came of it."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost import models, protocol, records, statistics
from opcost.device import Device, OutOfMemory
from opcost.energy import open_meter, sensor_of
from opcost.environment import describe_environment
from opcost.manifest import TupleRecord
from opcost.operands import OperandSets, degenerate, operand_sets
from opcost.operator_tuple import OperatorTuple, TensorSpec
from opcost.protocol import Trial
from opcost.replay import UnsupportedOperator, check_outputs, tensors_in_tree
from opcost.study import Conditions, MeasurementSettings, ModelDefinition

CACHES_PER_FOOTPRINT = 3
"""A footprint of that many last-level caches leaves nothing in the cache between two uses."""

_ASSUMED_CACHE_BYTES = 64 * 2**20
_MOST_INPUT_SETS = 2**12

_SENTINEL = OperatorTuple(
    "aten.conv2d.default",
    (
        ("input", TensorSpec((1, 64, 28, 28), "float32")),
        ("padding", (1, 1)),
        ("weight", TensorSpec((64, 64, 3, 3), "float32")),
    ),
)
_SENTINEL_BATCHES = 15
_SENTINEL_BATCH_S = 0.003


class OperatorWorkload:
    """A replayed operator, iterated over its operand sets."""

    def __init__(self, operands: OperandSets) -> None:
        self._operator = operands.calls[0].operator
        self._next = itertools.cycle([(call.args, call.kwargs) for call in operands.calls])

    def run(self, iterations: int) -> None:
        """Call the operator, each time on the next set."""
        operator = self._operator
        for args, kwargs in itertools.islice(self._next, iterations):
            operator(*args, **kwargs)


class ModelWorkload:
    """A whole model, iterated over copies of its inputs."""

    def __init__(self, module: nn.Module, inputs: Sequence[Sequence[torch.Tensor]]) -> None:
        self._module = module
        self._next = itertools.cycle(inputs)

    def run(self, iterations: int) -> None:
        """Run the model, each time on the next inputs."""
        for inputs in itertools.islice(self._next, iterations):
            self._module(*inputs)


def benchmark_operator(
    record: TupleRecord,
    device: Device,
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
        footprint = _footprint(device, settings.cache_state)
        operands = operand_sets(record.operator_tuple, device, footprint, settings.seed)
        check_outputs(operands.calls[0](), record.outputs)
        trial = _run_trial(OperatorWorkload(operands), device, settings, sensor)
        cache_bytes = footprint // CACHES_PER_FOOTPRINT
        if operands.footprint_bytes < cache_bytes:
            trial.flags.append("footprint_within_cache")
        if degenerate(operands.calls[0]):
            trial.flags.append("degenerate_values")
        return {
            "footprint_bytes": operands.footprint_bytes,
            "operand_sets": len(operands.calls),
            **_trial_columns(trial),
        }

    return {**row, **_attempt(measure, device, settings.seed)}


def benchmark_model(
    definition: ModelDefinition,
    device: Device,
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
        sets = _input_sets(inputs, device, _footprint(device, settings.cache_state))
        trial = _run_trial(ModelWorkload(module, sets), device, settings, sensor)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors_in_tree(module(*sets[0]))):
            trial.flags.append("degenerate_values")
        return {
            "footprint_bytes": len(sets) * sum(tensor.nbytes for tensor in inputs),
            "operand_sets": len(sets),
            **_trial_columns(trial),
        }

    return {**row, **_attempt(measure, device, settings.seed)}


def _run_trial(
    workload: protocol.Workload, device: Device, settings: MeasurementSettings, sensor: Path | None
) -> Trial:
    return protocol.run_trial(
        workload, device, settings, open_meter, partial(sensor_of, path=sensor)
    )


def _circumstances(device: Device, conditions: Conditions, target: str) -> dict[str, Any]:
    return {**records.condition_columns(conditions, target), **describe_environment(device)}


def _attempt(measure: Callable[[], dict[str, Any]], device: Device, seed: int) -> dict[str, Any]:
    """The columns of a measurement, or those of its failure."""
    try:
        with models.inference_conditions():
            return {"sentinel_time_s": _sentinel_time_s(device, seed), **measure()}
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


def _footprint(device: Device, cache_state: str) -> int:
    if cache_state == "warm":
        return 0
    return CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or _ASSUMED_CACHE_BYTES)


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


def _sentinel_time_s(device: Device, seed: int) -> float:
    workload = OperatorWorkload(operand_sets(_SENTINEL, device, 0, seed))
    iteration_s = protocol.calibrate(workload, device, _SENTINEL_BATCH_S)
    iterations = max(1, round(_SENTINEL_BATCH_S / iteration_s))
    batches = [
        device.time(lambda: workload.run(iterations)).device_s for _ in range(_SENTINEL_BATCHES)
    ]
    return statistics.median(batches).value / iterations


def _trial_columns(trial: Trial) -> dict[str, Any]:
    time, power, energy = trial.time, trial.power, trial.energy
    columns: dict[str, Any] = {
        "status": "ok",
        "time_s": time.estimate.value,
        "time_ci_low_s": time.estimate.low,
        "time_ci_high_s": time.estimate.high,
        "enqueue_time_s": time.enqueue_s,
        "batch_time_s": list(time.batch_times_s),
        "batch_iterations": time.batch_iterations,
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
