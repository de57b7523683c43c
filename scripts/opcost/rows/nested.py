"""Rows for formats that know less than Parquet does: no lists, no maps, no times."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


def as_json(value: Any) -> str:
    """A plain value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows of plain values: maps are dictionaries, and times text in ISO 8601, sorting as time."""
    columns = [_plain_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with lists and maps as JSON text; null stays null."""
    columns = [
        _as_text(column) if pa.types.is_nested(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def write_csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of that schema as CSV: lists and maps are JSON text, null is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(schema.names)
        for batch in batches:
            writer.writerows(row.values() for row in plain_rows(flat(batch)))


def _as_text(column: pa.Array) -> pa.Array:
    values = [None if value is None else as_json(value) for value in _plain_values(column)]
    return pa.array(values, pa.string())


def _plain_values(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    if pa.types.is_timestamp(column.type):
        return [None if value is None else value.isoformat() for value in values]
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values
