"""Measure a subject, and describe the result or the failure in a row."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from opcost import statistics
from opcost.devices.device import Device, OutOfMemory
from opcost.devices.disturbance import Watch
from opcost.measuring.checkpoint import Checkpoint
from opcost.measuring.in_context import time_in_context
from opcost.measuring.phase_times import phase_times
from opcost.measuring.station import Station
from opcost.measuring.subjects import SetUp, Subject
from opcost.measuring.timing import TimeMeasurement
from opcost.measuring.trial import Trial, run_trial
from opcost.models.conditions import conditions
from opcost.models.source import ChangedSource
from opcost.models.user_code import reason, user_code
from opcost.rows.flags import ABOVE_ROOF, POINT_CHANGED
from opcost.rows.quantities import ENERGY, PHASE_TIMES, POWER, TIME
from opcost.target import POINT_COLUMNS
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.replay import UnsupportedOperator

_OF_END_TO_END = 2
"""The phases of a training step, and calls in context, are each timed for this fraction of the time
of an end-to-end measurement."""

_WINOGRAD = 4
"""Convolution algorithms may save multiplications up to this factor."""

_INDICES = {"bool", "int32", "int64"}


def measure(
    subject: Subject, station: Station, checkpoint: Checkpoint | None = None
) -> dict[str, Any]:
    """The row of one subject; a failure is a row, too.

    Raises ChangedSource if the model no longer matches its definition.
    """
    row = {**station.columns(), **subject.columns()}
    with station.device.within_free_memory():
        try:
            with conditions(subject.trained), user_code():
                found = _measured(subject, station, row, checkpoint)
                now = station.device.setup()
                points = POINT_COLUMNS & now.keys() & row.keys()
                changed = any(row[name] != now[name] for name in points)
                further = [POINT_CHANGED] if changed else []
                if _is_above_roof(found, station.device):
                    further.append(ABOVE_ROOF)
                return found | {"flags": [*found["flags"], *further]}
        except ChangedSource:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {reason(error)}"
            return {**row, "status": _status(error), "error": text}


def _measured(
    subject: Subject, station: Station, row: Mapping[str, Any], checkpoint: Checkpoint | None
) -> dict[str, Any]:
    set_up = subject.set_up(station)

    def columns(trial: Trial) -> dict[str, Any]:
        flags = set_up.find_flags()
        return {**row, **set_up.columns, **trial_columns(trial, station.watch, flags)}

    settings = subject.settings(station.conditions.measurement)
    if checkpoint is not None:
        checkpoint.describe(columns, subject.schema)
    trial = run_trial(set_up.workload, station, settings, checkpoint)
    measured = columns(trial)
    if set_up.model is None:
        return measured
    least_s = settings.min_time_s / _OF_END_TO_END
    if set_up.model.trained and station.device.kind.host_sets_pace:
        phases = phase_times(set_up.model, station.watch, trial.time, least_s)
        for phase, taken in phases.items():
            measured |= PHASE_TIMES[phase].columns(taken)
    return measured | _in_context(set_up, station, trial.time, least_s)


def _is_above_roof(row: Mapping[str, Any], device: Device) -> bool:
    """Whether the device cannot compute the FLOPs of a row in its time."""
    if not row.get("flops"):
        return False
    measured = OperatorTuple.from_json(row["canonical_json"])
    dtypes = {spec.dtype for _, spec in measured.tensors} - _INDICES
    most = max((device.most_flops_per_s(each) for each in dtypes), default=math.inf)
    saved = _WINOGRAD if "conv" in measured.name else 1
    return bool(row["flops"] > saved * most * row[TIME.value])


def _in_context(
    set_up: SetUp, station: Station, timing: TimeMeasurement, least_s: float
) -> dict[str, Any]:
    """The columns of a model's calls in context; a failure leaves the rest of the row valid."""
    assert set_up.model is not None
    device, watch = station.device, station.watch
    try:
        return time_in_context(set_up.model, set_up.calls, device, watch, timing, least_s)
    except Exception as error:
        return {"in_context_reason": f"{type(error).__name__}: {reason(error)}"}


def _status(error: BaseException) -> str:
    """The status of a row with an error, from the error or else its cause."""
    found = [_own_status(each) for each in (error, error.__cause__) if each is not None]
    return next((each for each in found if each != "error"), "error")


def _own_status(error: BaseException) -> str:
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
    """The columns of a trial. `flags` maps flags of the subject to whether they hold."""
    power, energy = trial.power, trial.energy
    sentinel = watch.sentinel_times_s()
    columns: dict[str, Any] = {
        "status": "ok",
        **trial.time.columns(),
        "sentinel_time_s": statistics.median(sentinel).value if sentinel else None,
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
