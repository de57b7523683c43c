"""From an operator tuple or a model to its row: set up, measure, describe what came of it."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from opcost import statistics
from opcost.devices.device import Device, OutOfMemory
from opcost.devices.disturbance import Watch
from opcost.devices.environment import describe_environment
from opcost.energy.device_meter import open_meter
from opcost.energy.meter import sensor_of
from opcost.energy.sensor import read_document
from opcost.errors import OpcostError
from opcost.measuring import protocol
from opcost.measuring.operands import degenerate
from opcost.measuring.protocol import Trial
from opcost.measuring.supervision import Supervision, check_inputs_fit
from opcost.measuring.workload import (
    CACHES_PER_FOOTPRINT,
    footprint,
    model_workload,
    operator_workload,
)
from opcost.models import construction
from opcost.models.user_code import message, place_of, user_code
from opcost.rows import records
from opcost.study import Conditions, MeasurementSettings, ModelDefinition
from opcost.tuples.replay import UnsupportedOperator, tensors_in_tree
from opcost.tuples.tuple_record import TupleRecord


def benchmark_operator(
    record: TupleRecord,
    device: Device,
    watch: Watch,
    conditions: Conditions,
    target: str,
    sensor: Path | None = None,
) -> dict[str, Any]:
    """The row of one operator tuple; a failure is a row too.

    `sensor` is the file that the characterisation of the device's power sensor left. Raises
    OpcostError where it cannot be read: then every row would fail.
    """
    _check_sensor(sensor)
    circumstances = _circumstances(device, watch, conditions, target)
    row = {**records.operator_columns(record), **circumstances}
    settings = conditions.measurement

    def measure() -> dict[str, Any]:
        workload = operator_workload(record, device, settings.cache_state, settings.seed)
        operands = workload.operands
        trial = _run_trial(workload, device, watch, settings, sensor)
        cache_bytes = footprint(device) // CACHES_PER_FOOTPRINT
        if settings.cache_state == "cold" and operands.footprint_bytes < cache_bytes:
            trial.flags.append("footprint_within_cache")
        if degenerate(operands.calls[0]):
            trial.flags.append("degenerate_values")
        if record.value_dependent:
            trial.flags.append("value_dependent")
        return {
            "footprint_bytes": operands.footprint_bytes,
            "operand_sets": len(operands.calls),
            "parameters": list(record.parameters),
            **trial_columns(trial, watch),
        }

    with device.within_free_memory():
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
    _check_sensor(sensor)
    circumstances = _circumstances(device, watch, conditions, target)
    row = {**records.model_columns(definition), **circumstances}
    settings = conditions.measurement

    def measure() -> dict[str, Any]:
        check_inputs_fit(definition, device)
        supervision = Supervision(definition.name)
        module = construction.build(definition, search_path).to(device.torch_device)
        supervision.settle()
        inputs = construction.example_inputs(definition)
        workload = model_workload(module, inputs, device, settings.cache_state)
        supervision.before_timing(workload.output)
        longer = dataclasses.replace(
            settings,
            min_time_s=settings.model_time_s,
            max_time_s=max(settings.max_time_s, 2 * settings.model_time_s),
        )
        trial = _run_trial(workload, device, watch, longer, sensor)
        output, flags = supervision.after_timing(workload.output)
        trial.flags.extend(flags)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors_in_tree(output)):
            trial.flags.append("degenerate_values")
        return {
            "footprint_bytes": workload.footprint_bytes,
            "operand_sets": workload.rotation,
            **trial_columns(trial, watch),
        }

    with device.within_free_memory():
        return {**row, **_attempt(measure)}


def _check_sensor(path: Path | None) -> None:
    if path is not None:
        read_document(path)


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


def _circumstances(
    device: Device, watch: Watch, conditions: Conditions, target: str
) -> dict[str, Any]:
    return {
        **records.condition_columns(conditions, target),
        **describe_environment(device),
        "quiet_sentinel_time_s": watch.quiet_s,
    }


def _attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The columns of a measurement, or those of its failure."""
    try:
        with construction.inference_conditions(), user_code():
            return measure()
    except Exception as error:
        place = "" if isinstance(error, OpcostError) else place_of(error)
        text = f"{type(error).__name__}: {message(error)}{place}"
        return {"status": _status(error.__cause__ or error), "error": text}


def _status(error: BaseException) -> str:
    if isinstance(error, (OutOfMemory, MemoryError, torch.OutOfMemoryError)):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
        return "out_of_memory"
    if isinstance(error, (UnsupportedOperator, NotImplementedError)):
        return "unsupported"
    return "error"


def trial_columns(trial: Trial, watch: Watch) -> dict[str, Any]:
    """The columns of a record that say what was measured, and how sure it is."""
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
        "converged": time.converged,
        "stop_reason": time.stop_reason,
        "flags": trial.flags,
        "repeats": trial.repeats,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
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
