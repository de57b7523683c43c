"""Duplicate rows in several databases, and which of them to prefer.

Rows are duplicates if they agree in tuple and conditions (`rows.comparability`). Each row repeats
the state of its target, such as the call overhead. Of several states under the same conditions, a
merge keeps the state of the newest measurement, with its rows, so that all rows of a target agree.
Of other duplicates, it keeps the newer row. Rows of a sealed file come first: a file without a seal
may have been altered. The measured value plays no role.

A processor has no serial number. The sentinel's baseline (`quiet_sentinel_time_s`) distinguishes
studies on processors, so rows of two such studies are never duplicates. Failures without a recorded
device are duplicates only of exact copies.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from opcost.rows.columns import OVERHEAD
from opcost.rows.comparability import COLUMNS

STATE = [column.name for column in OVERHEAD]
"""The columns that are the same in all rows of a target."""

COMPARED = (
    *("tuple_id", "status", "measured_at", "ended_at", "schema_version", "target"),
    *COLUMNS,
)
"""The columns that decide which rows are duplicates and which of them is preferred."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def preference(row: Mapping[str, Any], sealed: bool) -> tuple[Any, ...]:
    """A rank among duplicates; the merge keeps the row with the greatest."""
    times = [row[name] for name in ("ended_at", "measured_at") if row[name] is not None]
    return sealed, max(times, default=_EARLIEST), row["schema_version"] or 0, row["status"] == "ok"


def digests(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A hash of the content of each row."""
    for values in zip(*map(_texts, batch.columns), strict=True):
        yield hashlib.sha256(repr(values).encode()).digest()[:16]


def _texts(column: pa.Array) -> list[Any]:
    """Values with distinct representations; for raw values their bytes, which is faster."""
    if not pa.types.is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()
    values, offsets = np.asarray(column.values), column.offsets.to_pylist()
    limits = zip(offsets[:-1], offsets[1:], column.is_valid().to_pylist(), strict=True)
    return [values[start:end].tobytes() if valid else None for start, end, valid in limits]
