"""Files of rows, changed as no opcost would: by pyarrow alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return pq.ParquetFile(path).read().to_pylist()


def change(path: Path, **values: Any) -> None:
    """Give columns of all rows of a file these values; a function makes them from the old ones."""
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    for row in rows:
        for name, value in values.items():
            row[name] = value(row[name]) if isinstance(value, Callable) else value
    write(path, pa.Table.from_pylist(rows, schema=table.schema))


def slower(factor: float) -> dict[str, Callable[[Any], Any]]:
    """Changes that make all times of a row longer by a factor."""

    def longer(value: Any) -> Any:
        if isinstance(value, list):
            return [factor * each for each in value]
        return value and factor * value

    return dict.fromkeys(("time_s", "time_ci_low_s", "time_ci_high_s", "block_time_s"), longer)


def write(path: Path, table: pa.Table, **metadata: str) -> None:
    """Replace a file, with its metadata and these entries of the same."""
    stated = dict(table.schema.metadata or {})
    stated |= {f"opcost.{key}".encode(): value.encode() for key, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata(stated), path)


def table(path: Path) -> pa.Table:
    """A file as a table, metadata included."""
    return pq.ParquetFile(path).read()
