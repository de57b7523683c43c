"""Duplicate rows in several databases, and which of them to prefer.

Rows are duplicates if they agree in tuple and conditions (`rows.comparability`). Preferred are
results over failures, rows with energy, rows of more executions, converged rows, rows without
flags, and newer rows, in this order. The measured value plays no role.

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

from opcost.rows.comparability import COLUMNS, conditions_id

COMPARED = (
    "tuple_id",
    "status",
    "energy_j",
    "converged",
    "power_converged",
    "flags",
    "executions",
    "measured_at",
    "target",
    *COLUMNS,
)
"""The columns that decide which rows are duplicates and which of them is preferred."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def measurement_key(row: Mapping[str, Any]) -> bytes | None:
    """A key of tuple and conditions, equal for duplicates; None for a row without a device."""
    conditions = conditions_id(row)
    return None if conditions is None else bytes.fromhex(row["tuple_id"] + conditions)


def preference(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A rank among duplicates; the merge keeps the row with the greatest."""
    return (
        row["status"] == "ok",
        row["energy_j"] is not None,
        row["executions"] or 0,
        bool(row["converged"]) and row["power_converged"] is not False,
        not row["flags"],
        row["measured_at"] or _EARLIEST,
    )


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
