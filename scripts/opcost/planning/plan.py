"""Plan round 1 of a target from its measured rows: what remains, how long it takes, and the
selection under a budget.

The time of an operator is first guessed from FLOPs and bytes, then predicted from measured rows.
Here, predictions determine order and plan, never a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opcost.addresses import Addresses
from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.launch_modes import EAGER
from opcost.prediction.predictor import Predictor, drawn
from opcost.results_folder import MODELS, OPERATORS, device_file, measurements, model_of
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.study import MeasurementSettings
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.traces import calls_on
from opcost.tuples.tuple_record import TupleRecord

Row = Mapping[str, Any]

_COLUMNS = ("status", "flags", *TIME.names, "started_at", "device_time_s")

_GUESSED_RATES = (5e-6, 1e-11, 1e-10)
"""Approximate seconds per call, FLOP and byte on one core; only their ratios affect the order."""

_MIN_ROWS = 8
_JOB_S = 1.0
_GPU_START_S = 1.0
_SETTLING_S = 1.5
"""Time for a power sensor to settle, three times in a trial."""


def models_on(addresses: Addresses, target: str) -> list[ModelTuples]:
    """The models of the study that could be extracted, with their calls on the target.

    Raises OpcostError for a damaged file.
    """
    found = read_extractions(map(addresses.extraction, addresses.study.models))
    return calls_on(addresses.folders[target], [each for each in found if each.refusal is None])


def device_of(addresses: Addresses, target: str) -> str:
    """The target's device, as far as it is known: its settings may be `auto`."""
    path = device_file(addresses.folders[target])
    return read_device(path).device if path.is_file() else addresses.device(target)


def measured_tuples(folder: Path, number: int = 1) -> Sequence[Row]:
    """The rows of all tuples in a round, of this study or another. Raises OpcostError for a damaged
    file.
    """
    paths = measurements(folder, OPERATORS, number)
    return records.read_all(paths, schemas.OPERATOR, ("tuple_id", *_COLUMNS)).to_pylist()


def measured_end_to_end(
    addresses: Addresses, target: str, number: int = 1, launch_mode: str = EAGER
) -> Sequence[Row]:
    """The end-to-end rows of all models in a round or launch mode, except models that the study
    defines differently. Raises OpcostError for a damaged file.
    """
    own = addresses.study.models
    paths = [
        path
        for path in measurements(addresses.folders[target], MODELS, number, launch_mode)
        if model_of(path) not in own or addresses.definition(model_of(path)) == path.stem
    ]
    return records.read_all(paths, schemas.MODEL, ("model", *_COLUMNS)).to_pylist()


@dataclass(frozen=True)
class Plan:
    """The tuples of one target in order of importance, and the measuring time.

    `known` are measured, `chosen` remain to be measured in round 1, `beyond` exceed the budget.
    `models` is the number of models that remain to be measured in round 1. `times_s` are the times
    of all tuples, measured or predicted. `explained` is the expected share of the models' time that
    each explains, averaged over the models. `needed_s` is the expected measuring time: `job_s` for
    each tuple, and `model_s` for each model, both means over previous jobs, including other
    studies, or assumptions based on the settings.
    """

    known: tuple[str, ...]
    chosen: tuple[str, ...]
    beyond: tuple[str, ...]
    models: int
    times_s: Mapping[str, float]
    explained: Mapping[str, float]
    needed_s: float
    job_s: float
    job_s_is_measured: bool
    model_s: float

    def expected_coverage(self) -> float:
        """The expected share of the models' time that known and chosen tuples explain."""
        return sum(self.explained[tuple_id] for tuple_id in (*self.known, *self.chosen))

    def beyond_s(self) -> float:
        """The expected measuring time of the tuples that exceed the budget."""
        return len(self.beyond) * self.job_s


def plan(
    models: Sequence[ModelTuples],
    tuples: Mapping[str, TupleRecord],
    rows: Sequence[Row],
    settings: MeasurementSettings,
    max_device_time_s: float | None,
    models_to_measure: int = 0,
    device: str = "auto",
    end_to_end: Sequence[Row] = (),
) -> Plan:
    """Select the `tuples` to measure on a target with existing `rows` of tuples and `end_to_end`.

    `device` is the target's. With `max_device_time_s`, the most important tuples come first, after
    the remaining models, until the time is used up: one of each operator, without which none of its
    others can be predicted, then all by the time that they explain. Nothing is reserved for later
    rounds: an estimate with a wide interval is better than none.
    """
    known = {row["tuple_id"]: row for row in rows if row["tuple_id"] in tuples}
    times_s = predicted_times_s(tuples, known.values())
    explained = explained_shares(models, tuples, times_s)
    mean_s, mean_model_s = _mean_device_time_s(rows), _mean_device_time_s(end_to_end)
    job_s = _guessed_job_s(settings, device) if mean_s is None else mean_s
    model_s = job_s + _guessed_timing_s(settings, device) if mean_model_s is None else mean_model_s
    for_models_s = models_to_measure * model_s
    new = sorted(tuples.keys() - known.keys(), key=lambda name: (-explained[name], name))
    operators = {name: record.operator_tuple.operator for name, record in tuples.items()}
    measured = {operators[name] for name in known}
    first = {operators[name]: name for name in reversed(new) if operators[name] not in measured}
    new.sort(key=lambda name: name not in first.values())
    count = len(new)
    if max_device_time_s is not None:
        count = min(count, max(0, int((max_device_time_s - for_models_s) / job_s)))
    return Plan(
        tuple(sorted(known)),
        tuple(new[:count]),
        tuple(new[count:]),
        models_to_measure,
        times_s,
        explained,
        for_models_s + count * job_s,
        job_s,
        mean_s is not None,
        model_s,
    )


def _mean_device_time_s(rows: Sequence[Row]) -> float | None:
    held_s = [row["device_time_s"] for row in rows if row["device_time_s"] is not None]
    return float(np.mean(held_s)) if held_s else None


def explained_shares(
    models: Sequence[ModelTuples],
    tuples: Mapping[str, TupleRecord],
    times_s: Mapping[str, float],
) -> dict[str, float]:
    """The share of the models' time that each tuple accounts for, averaged over the models."""
    shares: dict[str, float] = dict.fromkeys(tuples, 0.0)
    for model in models:
        costs = {
            tuple_id: calls * times_s[tuple_id]
            for tuple_id, calls in model.call_counts().items()
            if tuple_id in tuples
        }
        total = sum(costs.values())
        for tuple_id, cost in costs.items():
            shares[tuple_id] += cost / total / len(models)
    return shares


def predicted_times_s(tuples: Mapping[str, TupleRecord], rows: Iterable[Row]) -> dict[str, float]:
    """Seconds of each tuple: measured; or as predicted from those that are, however unlike it; or
    guessed from FLOPs and bytes while few are measured.
    """
    measured = {
        row["tuple_id"]: row
        for row in rows
        if row["tuple_id"] in tuples and row[TIME.value] is not None
    }
    times_s = {tuple_id: row[TIME.value] for tuple_id, row in measured.items()}
    missing = {tuple_id: each for tuple_id, each in tuples.items() if tuple_id not in measured}
    if len(measured) < _MIN_ROWS or not missing:
        per_call_s, per_flop_s, per_byte_s = _GUESSED_RATES
        guessed = {
            tuple_id: per_call_s + per_flop_s * (each.flops or 0) + per_byte_s * each.bytes
            for tuple_id, each in missing.items()
        }
        return guessed | times_s
    known = [
        {
            "tuple_id": tuple_id,
            "canonical_json": tuples[tuple_id].operator_tuple.canonical_json,
            "flops": tuples[tuple_id].flops,
            "bytes": tuples[tuple_id].bytes,
            "flags": row.get("flags"),
            TIME.value: row[TIME.value],
        }
        for tuple_id, row in measured.items()
    ]
    expected = Predictor(drawn(known), TIME, {}).expected(list(missing.values()))
    return dict(zip(missing, expected, strict=True)) | times_s


def memory_bytes(record: TupleRecord) -> int:
    """The minimum memory of a call on its device: arguments and results, without workspaces."""
    arguments = sum(spec.bytes for _, spec in record.operator_tuple.tensors if spec.memory is None)
    return arguments + sum(spec.bytes for spec in record.outputs)


def _guessed_job_s(settings: MeasurementSettings, device: str) -> float:
    """Measuring time of a job. A GPU gets a narrow interval at once, and has a start-up time and a
    power meter; a processor is assumed to be noisy and to have no meter, so that a budget suffices.
    """
    kind = kind_of(device)
    if kind is None or kind.host_sets_pace:
        return _JOB_S + settings.warm_up_s + settings.max_time_s
    power_s = settings.power_min_s + 2 * settings.idle_s + _SETTLING_S
    return _GPU_START_S + settings.warm_up_s + settings.min_time_s + power_s


def _guessed_timing_s(settings: MeasurementSettings, device: str) -> float:
    """Timing of a model: on a processor, usually for the maximum, and then in context."""
    kind = kind_of(device)
    if kind is None or kind.host_sets_pace:
        return settings.of_end_to_end().max_time_s + settings.model_time_s
    return settings.model_time_s
