"""From an operator tuple or a model to its row: set up, measure, describe what came of it."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from opcost import statistics
from opcost.devices.device import Device, OutOfMemory
from opcost.devices.disturbance import Watch
from opcost.devices.environment import describe_environment
from opcost.energy.device_meter import open_meter
from opcost.energy.limited_meter import open_limited
from opcost.energy.meter import Meter, MeterUnavailable, sensor_of
from opcost.energy.sensor import meter_fault, read_document
from opcost.errors import OpcostError
from opcost.measuring import protocol
from opcost.measuring.kept import Kept
from opcost.measuring.operands import degenerate
from opcost.measuring.protocol import Listener, Trial
from opcost.measuring.supervision import Supervision, check_inputs_fit
from opcost.measuring.workload import (
    CACHES_PER_FOOTPRINT,
    footprint,
    model_workload,
    operator_workload,
)
from opcost.models import construction
from opcost.models.user_code import message, place_of, user_code
from opcost.rows import records, schemas
from opcost.rows.flags import DEGENERATE_VALUES, FOOTPRINT_WITHIN_CACHE, VALUE_DEPENDENT
from opcost.rows.quantities import ENERGY, POWER, TIME
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
    kept: Kept | None = None,
) -> dict[str, Any]:
    """The row of one operator tuple; a failure is a row too.

    `sensor` is the file that the characterisation of the device's power sensor left. Raises
    OpcostError where it cannot be read: then every row would fail. `kept` is told the row before
    power is measured; this process then ends if the meter does not answer.
    """
    _check_sensor(sensor)
    circumstances = _circumstances(device, watch, conditions, target)
    row = {**records.operator_columns(record), **circumstances}
    settings = conditions.measurement

    def measure() -> dict[str, Any]:
        workload = operator_workload(record, device, settings.cache_state, settings.seed)
        operands = workload.operands
        cache_bytes = footprint(device) // CACHES_PER_FOOTPRINT

        def columns(trial: Trial) -> dict[str, Any]:
            found = {
                FOOTPRINT_WITHIN_CACHE: settings.cache_state == "cold"
                and operands.footprint_bytes < cache_bytes,
                DEGENERATE_VALUES: degenerate(operands.calls[0]),
                VALUE_DEPENDENT: record.value_dependent,
            }
            return {
                **row,
                "footprint_bytes": operands.footprint_bytes,
                "operand_sets": len(operands.calls),
                "parameters": list(record.parameters),
                **trial_columns(trial, watch, found),
            }

        return _measured(workload, device, watch, settings, sensor, kept, columns)

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
    kept: Kept | None = None,
) -> dict[str, Any]:
    """The row of one whole model; a failure is a row too. The others are as for an operator."""
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

        def columns(trial: Trial) -> dict[str, Any]:
            output, flags = supervision.after_timing(workload.output)
            finite = all(bool(tensor.isfinite().all()) for tensor in tensors_in_tree(output))
            found = {**dict.fromkeys(flags, True), DEGENERATE_VALUES: not finite}
            return {
                **row,
                "footprint_bytes": workload.footprint_bytes,
                "operand_sets": workload.rotation,
                **trial_columns(trial, watch, found),
            }

        return _measured(workload, device, watch, longer, sensor, kept, columns)

    with device.within_free_memory():
        return {**row, **_attempt(measure)}


def _check_sensor(path: Path | None) -> None:
    if path is not None:
        read_document(path)


class _Keeper(Listener):
    """Keeps the row of each trial, as `columns` makes it, before power is measured."""

    def __init__(self, kept: Kept, columns: Callable[[Trial], dict[str, Any]]) -> None:
        self._kept, self._columns = kept, columns

    def opening_meter(self) -> None:
        self._kept.opening_meter()

    def timing(self) -> None:
        self._kept.timing()

    def timed(self, trial: Trial) -> None:
        row = self._columns(trial)
        self._kept.keep(row, schemas.OPERATOR if "tuple_id" in row else schemas.MODEL)


def _measured(
    workload: protocol.Workload,
    device: Device,
    watch: Watch,
    settings: MeasurementSettings,
    sensor: Path | None,
    kept: Kept | None,
    columns: Callable[[Trial], dict[str, Any]],
) -> dict[str, Any]:
    fault = (kept and kept.meter_fault) or (sensor and meter_fault(sensor))

    def open_unless_faulty(device: Device) -> Meter:
        if fault:
            raise MeterUnavailable(fault)
        return open_meter(device) if kept is None else open_limited(partial(open_meter, device))

    find_sensor = partial(sensor_of, path=sensor)
    keeper = None if kept is None else _Keeper(kept, columns)
    return columns(
        protocol.run_trial(
            workload, device, watch, settings, open_unless_faulty, find_sensor, listener=keeper
        )
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


def trial_columns(
    trial: Trial, watch: Watch, flags: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    """The columns of a record that say what was measured, and how sure it is.

    `flags` are those that the trial does not know, each with whether it holds.
    """
    time, power, energy = trial.time, trial.power, trial.energy
    sentinel = watch.sentinel_times_s()
    columns: dict[str, Any] = {
        "status": "ok",
        **TIME.columns(time.estimate),
        "enqueue_time_s": time.enqueue_s,
        "batch_time_s": list(time.batch_times_s),
        "batch_undisturbed": list(time.undisturbed),
        "batch_iterations": time.batch_iterations,
        "sentinel_time_s": statistics.median(sentinel).value if sentinel else None,
        "converged": time.converged,
        "stop_reason": time.stop_reason,
        "flags": [*trial.flags, *(flag for flag, holds in (flags or {}).items() if holds)],
        "repeats": trial.repeats,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "energy_reason": trial.power_reason,
    }
    if power is None or energy is None:
        return columns
    return columns | {
        **POWER.columns(power.estimate),
        **ENERGY.columns(energy),
        **power.columns(),
    }
