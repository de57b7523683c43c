"""The results of a study that never took place: made-up measurements of made-up devices.

Times follow a roofline with noise, power follows how busy the device is, and some operators fail,
do not converge or are flagged: enough for a report to have something to show. Drawn from one seed,
so that equal arguments give equal numbers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from opcost import __version__
from opcost.costs import comparison
from opcost.costs.answers import all_answers
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows import records, schemas
from opcost.rows.runs import noise_of
from opcost.tuples import manifest, model_table
from opcost.tuples.model_tuples import ModelCall, ModelTuples
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

NO_SENSOR = "synthetic: this target has no power sensor"


@dataclass(frozen=True)
class SyntheticTarget:
    """A made-up device; without `idle_power_w` it has no power sensor."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    launch_s: float
    idle_power_w: float | None = None
    full_power_w: float = 0.0


TARGETS = (
    SyntheticTarget("large_gpu", 50e12, 3e12, 6e-6, 80.0, 600.0),
    SyntheticTarget("small_gpu", 15e12, 0.6e12, 8e-6, 20.0, 160.0),
    SyntheticTarget("processor", 0.2e12, 0.02e12, 1e-6),
)


def record(number: int) -> TupleRecord:
    """An operator tuple that no other number has."""
    kind, size = number % 5, number // 5 + 1
    channels, side = 8 + size, 7 * 2 ** (size % 4)
    image = TensorSpec((2 ** (size % 7), channels, side, side), "float32")
    if kind == 0:
        weight = TensorSpec((64, channels, 3, 3), "float32")
        arguments = (("input", image), ("padding", (1, 1)), ("weight", weight))
        flops, moved = 2 * 64 * 9 * image.elements, image.bytes + weight.bytes
        return _record("conv2d", arguments, flops, moved, ("weight",))
    if kind == 1:
        matrix, rows = TensorSpec((4096, 64 + size), "float32"), 4 ** (size % 6)
        arguments = (("input", TensorSpec((rows, 64 + size), "float32")), ("weight", matrix))
        return _record("linear", arguments, 2 * rows * matrix.elements, matrix.bytes, ("weight",))
    name = ("batch_norm", "relu_", "add_")[kind - 2]
    return _record(name, (("self", image),), 0, 2 * image.bytes)


def _record(
    name: str, arguments: Any, flops: int, moved: int, parameters: tuple[str, ...] = ()
) -> TupleRecord:
    identity = OperatorTuple(f"aten.{name}.default", arguments)
    return TupleRecord(identity, (arguments[0][1],), True, flops, moved, parameters)


def models_of(names: Sequence[str], tuples: Sequence[TupleRecord]) -> list[ModelTuples]:
    """Models that share the tuples out among themselves; each is called twice."""
    definition = ModelDefinition("synthetic", (InputSpec((1, 3, 224, 224)),), model="resnet18")
    size = len(tuples) // len(names)
    return [
        ModelTuples(
            name,
            part := tuple(tuples[index * size : (index + 1) * size]),
            tuple(
                ModelCall(call % size, f"stage{8 * call // (2 * size)}.block{call % 4}", "Conv2d")
                for call in range(2 * len(part))
            ),
            1_000_000,
            "2.15.0",
            definition,
            0.5,
        )
        for index, name in enumerate(names)
    ]


class Measurements:
    """Rows as a study would have written them."""

    def __init__(self, seed: int, batches: int, samples: int, faulty: int) -> None:
        self._random = np.random.default_rng(seed)
        self._batches, self._samples, self._faulty = batches, samples, faulty
        self._when = datetime(2026, 1, 1, tzinfo=UTC)

    def operator(self, number: int, target: SyntheticTarget, subject: TupleRecord) -> dict:
        """One operator's row; of the first `faulty`, one in fifty fails and one in ten drifts."""
        row = records.operator_columns(subject) | self._circumstances(target)
        if number < self._faulty and number % 50 == 7:
            error = "synthetic: tried to allocate 80 GiB"
            return {**row, "status": "out_of_memory", "error": error, "flags": []}
        work_s = max(subject.flops / target.flops_per_s, subject.bytes / target.bytes_per_s)
        time_s = float(max(work_s / self._random.uniform(0.4, 0.95), target.launch_s))
        row |= self.result(target, time_s, min(work_s / time_s, 1.0))
        if target.idle_power_w is not None and time_s <= 1.2 * target.launch_s:
            row["flags"].append("launch_bound")
        if number < self._faulty and number % 10 == 3:
            row["flags"].append("drifting")
            row["converged"] = False
        return row

    def model(self, target: SyntheticTarget, model: ModelTuples, rows: Mapping[str, dict]) -> dict:
        """A whole model's row: about what its operators take, failed ones left out."""
        counts = model.call_counts()
        time_s = sum((rows[key].get("time_s") or 0) * count for key, count in counts.items())
        energy_j = sum((rows[key].get("energy_j") or 0) * count for key, count in counts.items())
        idle_w = target.idle_power_w or 0.0
        busy = (energy_j / time_s - idle_w) / (target.full_power_w - idle_w) if energy_j else 0.0
        whole_s = time_s * float(self._random.normal(1, 0.02))
        assert model.definition is not None
        row = records.model_columns(model.definition) | self._circumstances(target)
        return {**row, **self.result(target, whole_s, busy), "model": model.model}

    def result(self, target: SyntheticTarget, time_s: float, busy: float) -> dict:
        """The measured columns."""
        undisturbed = self._random.random(self._batches) > 0.05
        batches = time_s * self._random.normal(1, 0.01, self._batches)
        batches[~undisturbed] *= 1.2
        return {
            "status": "ok",
            **_interval("time", "s", time_s, 0.003 * float(self._random.lognormal(0, 0.6))),
            "block_time_s": batches.tolist(),
            "block_undisturbed": undisturbed.tolist(),
            "block_iterations": max(1, int(0.01 / time_s)),
            "converged": True,
            "stop_reason": "converged",
            "flags": [],
            "repeats": 0,
            **(_interval("host_time", "s", target.launch_s, 0.02) if target.idle_power_w else {}),
            **self._energy(target, time_s, busy),
        }

    def _energy(self, target: SyntheticTarget, time_s: float, busy: float) -> dict:
        if target.idle_power_w is None:
            return {"energy_reason": NO_SENSOR}
        power_w = target.idle_power_w + (target.full_power_w - target.idle_power_w) * busy
        refreshes = 0.1 * np.arange(self._samples) + self._random.normal(0, 1e-3, self._samples)
        return {
            **_interval("power", "w", power_w, 0.01),
            **_interval("energy", "j", power_w * time_s, 0.011),
            "idle_power_w": target.idle_power_w,
            "power_sample_w": (power_w * self._random.normal(1, 0.02, self._samples)).tolist(),
            "power_sample_time_s": np.abs(refreshes).tolist(),
            "power_converged": True,
            "meter": "synthetic",
            "temperature_start_c": 45.0,
            "temperature_end_c": float(self._random.integers(45, 70)),
        }

    def _circumstances(self, target: SyntheticTarget) -> dict:
        self._when += timedelta(seconds=2)
        kind = "cpu" if target.idle_power_w is None else "cuda"
        conditions = {"target": {"device": kind}, "measurement": {"batch_s": 0.01, "seed": 0}}
        return {
            **_overheads(kind),
            "target": target.name,
            "protocol_version": 1,
            "conditions_json": json.dumps(conditions),
            "cache_state": "model",
            "launch_mode": "eager",
            "worker": "warm",
            "threads": 1,
            "device": kind,
            "device_name": f"synthetic {target.name}",
            "torch_version": "2.15.0",
            "opcost_version": __version__,
            "os": "synthetic",
            "core_cache_bytes": 2**21,
            "measured_at": self._when,
            "started_at": self._when,
            "ended_at": self._when + timedelta(seconds=2),
            "device_time_s": 2.0,
        }


def make_study(
    folder: Path,
    operators: int = 60,
    models: Sequence[str] = ("first", "second", "third"),
    targets: Sequence[SyntheticTarget] = TARGETS,
    faulty: bool = True,
    batches: int = 40,
    samples: int = 60,
    seed: int = 0,
) -> Path:
    """Write all result files that the report reads into `folder`, and return it."""
    tuples = [record(number) for number in range(operators)]
    parts = models_of(models, tuples)
    measurements = Measurements(seed, batches, samples, operators // 4 if faulty else 0)
    kept: list[dict] = []
    wholes: list[dict] = []

    def batches_of_rows() -> Iterator[pa.RecordBatch]:
        for target in targets:
            rows = [measurements.operator(*pair) for pair in _numbered(target, tuples)]
            kept.extend({name: row.get(name) for name in OPERATOR_COLUMNS} for row in rows)
            by_id = {row["tuple_id"]: row for row in rows}
            wholes.extend(measurements.model(target, model, by_id) for model in parts)
            yield from pa.Table.from_pylist(rows, schema=schemas.DATABASE).to_batches(500)

    records.write_batches(folder / "database.parquet", schemas.DATABASE, batches_of_rows())
    complete = [{**dict.fromkeys(schemas.MODEL.names), **row} for row in wholes]
    on_targets = {target.name: parts for target in targets}
    noises = {
        target.name: noise_of([row for row in kept if row["target"] == target.name])
        for target in targets
    }
    tables = comparison.compare_study(
        on_targets, kept, complete, manifest.collect(parts, None), noises
    )
    records.write(folder / "answers.parquet", schemas.ANSWERS, all_answers(tables))
    records.write(folder / "shares.parquet", schemas.SHARES, tables.shares)
    records.write(folder / "modules.parquet", schemas.MODULES, tables.modules)
    records.write(folder / "in_context.parquet", schemas.IN_CONTEXT, tables.in_context)
    records.write(folder / "launches.parquet", schemas.LAUNCHES, tables.launches)
    records.write(folder / "requests.parquet", schemas.REQUESTS, [])
    records.write(folder / "sweeps.parquet", schemas.SWEEPS, [])
    records.write(folder / "models.parquet", schemas.EXTRACTION, model_table.rows_of(parts))
    return folder


def _numbered(
    target: SyntheticTarget, tuples: Sequence[TupleRecord]
) -> Iterator[tuple[int, SyntheticTarget, TupleRecord]]:
    for number, subject in enumerate(tuples):
        yield number, target, subject


def _overheads(kind: str) -> dict[str, float]:
    """What calls cost their host beyond their operators."""
    costs = {"call": 2e-7, "view_call": 1e-7} | ({"cold_call": 4e-7} if kind == "cpu" else {})
    intervals = [_interval(f"{name}_overhead", "s", cost, 0.1) for name, cost in costs.items()]
    return {name: value for interval in intervals for name, value in interval.items()}


def _interval(name: str, unit: str, value: float, relative: float) -> dict[str, float]:
    return {
        f"{name}_{unit}": value,
        f"{name}_ci_low_{unit}": value * (1 - relative),
        f"{name}_ci_high_{unit}": value * (1 + relative),
    }
