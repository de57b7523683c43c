"""Columns of a database that follow from all rows of a target: its call overhead, how its
executions scatter, the results that combine them, and the method's own error.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from opcost.databases.measured import Damages, Measured
from opcost.databases.rounds import Scatters
from opcost.devices.device_file import Sample
from opcost.rows import schemas
from opcost.rows.columns import COMBINED, EXECUTIONS, METHOD, OVERHEAD, SCATTERS
from opcost.rows.executed import result_of, scatter_columns
from opcost.rows.overhead_samples import overhead_columns, read_samples
from opcost.rows.quantities import ENERGY, EXECUTED

_RESULTS = (
    "flags",
    *(name for quantity in (*EXECUTED, ENERGY) for name in quantity.names),
    *(column.name for column in COMBINED),
)
"""The columns that combine executions."""


def columns_of_targets(
    measured: Measured, damages: Damages, scatters: Scatters
) -> dict[str, dict[str, Any]]:
    """The call overhead by target, at the usual speed of its core."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for path in measured.overheads:
        with damages.tolerated(path):
            found = read_samples(path)
            known = samples[measured.target_in(path.parent)]
            if found and found[0] in known:  # no two processes agree to the last digit
                damages.copies.append(path)
            else:
                known += found
    return {
        target: overhead_columns(found, scatters.usual_speed_per_s(target))
        for target, found in samples.items()
    }


def with_results(
    batch: pa.RecordBatch, overheads: Mapping[str, Mapping[str, Any]], scatters: Scatters
) -> pa.RecordBatch:
    """Joined rows as rows of a database, without the method's own error."""
    names = {*_RESULTS, "target", *(column.name for column in EXECUTIONS)}
    held = [name for name in batch.schema.names if name in names]
    rows = batch.select(held).to_pylist()
    for row in rows:
        of_target = scatters.of(row["target"])
        row |= dict(overheads.get(row["target"], {})) | scatter_columns(of_target)
        row |= result_of(row, of_target)
    written = [*_RESULTS, *(column.name for column in (*OVERHEAD, *SCATTERS, *METHOD))]
    return _written(batch, rows, written)


def with_methods(batch: pa.RecordBatch, methods: Mapping[str, Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows of a database with the method's own error on their targets."""
    rows = [methods.get(target, {}) for target in batch["target"].to_pylist()]
    return _written(batch, rows, [column.name for column in METHOD])


def _written(
    batch: pa.RecordBatch, rows: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> pa.RecordBatch:
    """Rows of a database: these columns are those of `rows`, the others those of the batch."""
    arrays = [
        pa.array([row.get(field.name) for row in rows], field.type)
        if field.name in names
        else batch[field.name]
        for field in schemas.DATABASE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schemas.DATABASE)
