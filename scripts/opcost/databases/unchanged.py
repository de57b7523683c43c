"""Rows of an earlier database that are still those of their files.

To read thousands of small files takes longer than all else that follows one new measurement; the
earlier database has their rows. A row is taken from it if its file was neither written nor moved
since that database was begun, with a margin for clocks that differ.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.rows import records, schemas

BEGUN = "opcost.begun_ns"
"""Metadata of a database: when its writing began, in nanoseconds since 1970."""

_MARGIN_NS = 10 * 10**9
_KEY = ("target", "tuple_id")


def unchanged(earlier: Path, paths: Sequence[Path]) -> dict[Path, int]:
    """Which of the paths need not be read, and the number of each one's row in `earlier`.

    Paths are `TARGET/operators/TUPLE_ID.parquet`. Numbers rise in the order of the paths. Empty
    where there is no earlier database, or one of another schema version.
    """
    metadata = records.metadata(earlier) if earlier.exists() else {}
    expected = schemas.DATABASE.metadata or {}
    if BEGUN not in metadata or any(
        metadata.get(key.decode()) != value.decode() for key, value in expected.items()
    ):
        return {}
    rows = records.read(earlier, schemas.DATABASE, _KEY)
    keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
    numbers = {key: number for number, key in enumerate(keys)}
    if len(numbers) < rows.num_rows:
        return {}
    found: dict[Path, int] = {}
    last = -1
    for path in paths:
        number = numbers.get((path.parent.parent.name, path.stem), -1)
        if number > last and _is_older(path, int(metadata[BEGUN]) - _MARGIN_NS):
            found[path] = last = number
    return found


class RowsByNumber:
    """The rows of a database, with the columns of a schema, read once from its begin to its end."""

    def __init__(self, database: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches = records.stream(database, schemas.DATABASE)
        self._batch: pa.RecordBatch | None = None
        self._start = 0

    def take(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows of these numbers, which rise, and are above all that were taken before."""
        position = 0
        while position < len(numbers):
            batch = self._batch_with(numbers[position])
            end = bisect.bisect_left(numbers, self._start + len(batch), position)
            offsets = [number - self._start for number in numbers[position:end]]
            chosen = batch.select(self._schema.names).take(pa.array(offsets, pa.int64()))
            yield chosen.replace_schema_metadata(self._schema.metadata)
            position = end

    def _batch_with(self, number: int) -> pa.RecordBatch:
        while self._batch is None or number >= self._start + len(self._batch):
            self._start += 0 if self._batch is None else len(self._batch)
            self._batch = next(self._batches)
        return self._batch


def begun_at(schema: pa.Schema, begun_ns: int) -> pa.Schema:
    """The schema of a database whose writing began then."""
    stated: Mapping[bytes, bytes] = schema.metadata or {}
    return schema.with_metadata({**stated, BEGUN.encode(): str(begun_ns).encode()})


def _is_older(path: Path, moment_ns: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return max(status.st_mtime_ns, status.st_ctime_ns) < moment_ns
