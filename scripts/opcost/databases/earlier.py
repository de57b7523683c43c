"""Reuse rows of an earlier database whose files are unchanged.

Reading thousands of small files takes longer than all other work after one new measurement, and the
earlier database already has their rows. It records the identity of each row's file (size, times,
inode); the row is reused if the file still has that identity. A database written by another program
has no valid seal, and none of its rows are reused.
"""

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.fingerprint import identity
from opcost.results_folder import key_of
from opcost.rows import records, schemas
from opcost.rows.seal import is_sealed

FILES = "opcost.files"
"""Metadata of a database: the identity of each row's file, in order, or `-`."""

_KEY = ("target", "tuple_id")


class EarlierRows:
    """The rows of an earlier database for these files.

    `numbers` are row numbers by path, in ascending order. Files in `same` need not be read again.
    Both are empty if there is no earlier database, or if it has another schema version or was
    written by another program.
    """

    def __init__(self, database: Path, paths: Sequence[Path]) -> None:
        self._database = database
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._start = 0
        self.numbers: dict[Path, int] = {}
        self.same: set[Path] = set()
        rows = _rows_by_key(database)
        last = -1
        for path in paths:
            number, file = rows.get(key_of(path), (-1, ""))
            if number > last:
                self.numbers[path] = last = number
                if file == identity(path):
                    self.same.add(path)

    def take(self, paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        """The rows of these files, with the columns of a measurement. Call it in order of files."""
        numbers = [self.numbers[path] for path in paths]
        schema = schemas.OPERATOR
        position = 0
        while position < len(numbers):
            batch = self._batch_with(numbers[position])
            end = bisect.bisect_left(numbers, self._start + len(batch), position)
            offsets = [number - self._start for number in numbers[position:end]]
            chosen = batch.select(schema.names).take(pa.array(offsets, pa.int64()))
            yield chosen.replace_schema_metadata(schema.metadata)
            position = end

    def _batch_with(self, number: int) -> pa.RecordBatch:
        if self._batches is None:
            self._batches = records.stream(self._database, schemas.DATABASE)
        while self._batch is None or number >= self._start + len(self._batch):
            self._start += 0 if self._batch is None else len(self._batch)
            self._batch = next(self._batches)
        return self._batch


def stating(files: Sequence[str]) -> dict[str, str]:
    """The metadata of a database whose rows came from files of these identities."""
    return {FILES: " ".join(file or "-" for file in files)}


def _rows_by_key(database: Path) -> dict[tuple[str, str], tuple[int, str]]:
    """(target, tuple id) -> the row's number and the identity of its file."""
    metadata = records.metadata(database) if database.exists() else {}
    expected = schemas.DATABASE.metadata or {}
    if FILES not in metadata or any(
        metadata.get(key.decode()) != value.decode() for key, value in expected.items()
    ):
        return {}
    if not is_sealed(database):
        return {}
    rows = records.read(database, schemas.DATABASE, _KEY)
    files = metadata[FILES].split()
    if len(files) != rows.num_rows:
        return {}
    keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
    return dict(zip(keys, enumerate(files), strict=True))
