"""When two rows are measurements of the same thing, and which of them is the better.

They are if they agree in the tuple and in the conditions that they were measured under
(`rows.alike`). A result is better than a failure; with energy than without; converged than not;
without flags than with; then the newer one. The measured value itself has no say.

A processor has no serial number. What tells two studies on processors apart is the speed that each
found at its start (`quiet_sentinel_time_s`), so rows of two such studies are never the same thing.
A failure that does not even say what it ran on is the same only as a copy of itself.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from opcost.rows.alike import COLUMNS, conditions_id

JUDGED = (
    "tuple_id",
    "status",
    "energy_j",
    "converged",
    "power_converged",
    "flags",
    "measured_at",
    "target",
    *COLUMNS,
)
"""All columns that say which thing a row is about, and how good it is."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def thing(row: Mapping[str, Any]) -> bytes | None:
    """What was measured, under which conditions, on what: equal for measurements of the same.

    None for a row that does not say on which device it was measured.
    """
    conditions = conditions_id(row)
    return None if conditions is None else bytes.fromhex(row["tuple_id"] + conditions)


def quality(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Greater for a better row of the same thing."""
    return (
        row["status"] == "ok",
        row["energy_j"] is not None,
        bool(row["converged"]) and row["power_converged"] is not False,
        not row["flags"],
        row["measured_at"] or _EARLIEST,
    )


def digests(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A hash of each row's content."""
    for values in zip(*map(_texts, batch.columns), strict=True):
        yield hashlib.sha256(repr(values).encode()).digest()[:16]


def _texts(column: pa.Array) -> list[Any]:
    """Values whose text tells them apart; of raw values their bytes, which are faster to have."""
    if not pa.types.is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()
    values, offsets = np.asarray(column.values), column.offsets.to_pylist()
    limits = zip(offsets[:-1], offsets[1:], column.is_valid().to_pylist(), strict=True)
    return [values[start:end].tobytes() if valid else None for start, end, valid in limits]
