"""Columns that are equal in all rows of a target: its spreads and its call overhead."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost import statistics
from opcost.databases.measured import Damages, Measured
from opcost.devices.device_file import Sample
from opcost.results_folder import key_of
from opcost.rows import comparability, records, schemas
from opcost.rows.overhead_samples import overhead_columns, read_samples

_SPREADS = {"spread": "time_s", "host_spread": "host_time_s"}
_TIMES = (*_SPREADS.values(), "status", "target", *comparability.MUST_AGREE)


def columns_of_targets(measured: Measured, damages: Damages) -> dict[str, dict[str, Any]]:
    """These columns by target: the spreads, from replicates, and the call overheads."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for path in measured.overheads:
        with damages.tolerated(path):
            samples[path.parent.name] += read_samples(path)
    known = {target: overhead_columns(found) for target, found in samples.items()}
    for target, spreads in _spreads(measured, damages).items():
        known.setdefault(target, {}).update(spreads)
    return known


def with_columns(batch: pa.RecordBatch, known: Mapping[str, Mapping[str, Any]]) -> pa.RecordBatch:
    """Measurements as rows of a database."""
    targets = batch["target"].to_pylist()
    for name in schemas.DATABASE.names[len(schemas.OPERATOR.names) :]:
        values = [known.get(target, {}).get(name) for target in targets]
        batch = batch.append_column(name, pa.array(values, schemas.DATABASE.field(name).type))
    return batch.cast(schemas.DATABASE)


def _spreads(measured: Measured, damages: Damages) -> dict[str, dict[str, float | None]]:
    """The spreads between replicates on each target."""
    names = set(map(key_of, measured.replicates))
    first = _times([path for path in measured.operators if key_of(path) in names], damages)
    pairs: dict[str, list[list[comparability.Row]]] = defaultdict(list)
    for key, row in _times(measured.replicates, damages).items():
        rows = [first[key], row] if key in first else []
        if rows and comparability.conflict(rows) is None:
            pairs[key[0]].append(rows)
    return {
        target: {name: _spread(found, column) for name, column in _SPREADS.items()}
        for target, found in pairs.items()
    }


def _spread(pairs: Iterable[Sequence[comparability.Row]], column: str) -> float | None:
    times = [(first[column], second[column]) for first, second in pairs]
    return statistics.spread_of_pairs([pair for pair in times if None not in pair])


def _times(paths: Iterable[Path], damages: Damages) -> dict[tuple[str, str], comparability.Row]:
    """Times in these files, with the columns that must agree for a comparison."""
    found = {}
    for path in paths:
        with damages.tolerated(path):
            table = records.read(path, schemas.OPERATOR, _TIMES, damages.remedy(path))
            for row in table.to_pylist():
                found[key_of(path)] = row
    return found
