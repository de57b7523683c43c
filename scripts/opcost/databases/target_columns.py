"""Columns that are equal in all rows of a target: its spread and its call overhead."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost import statistics
from opcost.databases.measured import Damages, Measured
from opcost.devices.device_file import Sample
from opcost.results_folder import key_of
from opcost.rows import comparability, records, schemas
from opcost.rows.overhead_samples import overhead_columns, read_samples

_TIME = ("time_s", "status", "target", *comparability.MUST_AGREE)


def columns_of_targets(measured: Measured, damages: Damages) -> dict[str, dict[str, Any]]:
    """These columns by target: the `spread`, from replicates, and the call overheads."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for path in measured.overheads:
        with damages.tolerated(path):
            samples[path.parent.name] += read_samples(path)
    known = {target: overhead_columns(found) for target, found in samples.items()}
    for target, spread in _spreads(measured, damages).items():
        known.setdefault(target, {})["spread"] = spread
    return known


def with_columns(batch: pa.RecordBatch, known: Mapping[str, Mapping[str, Any]]) -> pa.RecordBatch:
    """Measurements as rows of a database."""
    targets = batch["target"].to_pylist()
    for name in schemas.DATABASE.names[len(schemas.OPERATOR.names) :]:
        values = [known.get(target, {}).get(name) for target in targets]
        batch = batch.append_column(name, pa.array(values, schemas.DATABASE.field(name).type))
    return batch.cast(schemas.DATABASE)


def _spreads(measured: Measured, damages: Damages) -> dict[str, float | None]:
    """The spread between replicates on each target."""
    names = set(map(key_of, measured.replicates))
    first = _times([path for path in measured.operators if key_of(path) in names], damages)
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, row in _times(measured.replicates, damages).items():
        rows = [first[key], row] if key in first else []
        times = [row["time_s"] for row in rows if row["time_s"] is not None]
        if len(times) == 2 and comparability.conflict(rows) is None:
            pairs[key[0]].append((times[0], times[1]))
    return {target: statistics.spread_of_pairs(values) for target, values in pairs.items()}


def _times(paths: Iterable[Path], damages: Damages) -> dict[tuple[str, str], comparability.Row]:
    """Times in these files, with the columns that must agree for a comparison."""
    found = {}
    for path in paths:
        with damages.tolerated(path):
            table = records.read(path, schemas.OPERATOR, _TIME, damages.remedy(path))
            for row in table.to_pylist():
                found[key_of(path)] = row
    return found
