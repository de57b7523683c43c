"""Reuse rows of an earlier database whose files are unchanged.

Reading thousands of small files takes longer than all other work after one new measurement, and the
earlier database already has their rows. It records the identity of each row's files (size, times,
inode); the row is reused if they still have it. A database written by another program
has no valid seal, and none of its rows are reused.
"""

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.fingerprint import identity
from opcost.results_folder import key_of
from opcost.rows import records, schemas

Key = tuple[str, str]
"""Target and tuple id."""

FILES = "opcost.files.4"
"""Metadata of a database: the identities of each row's files, in order, or `-`. The number is that
of the rule by which executions are joined: rows by another one are read from their files again."""

_KEY = ("target", "tuple_id")


class EarlierRows:
    """The rows of an earlier database for these subjects, each with the files of its executions.

    `numbers` are row numbers by key, in ascending order; the files of keys in `same` need not be
    read again. Both are empty if there is no earlier database, or if it has another schema version
    or was written by another program.
    """

    def __init__(self, database: Path, subjects: Sequence[Sequence[Path]]) -> None:
        self._database = database
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._start = 0
        self.numbers: dict[Key, int] = {}
        self.same: set[Key] = set()
        rows = _rows_by_key(database)
        last = -1
        for paths in subjects:
            key = key_of(paths[0])
            number, files = rows.get(key, (-1, ""))
            if number > last:
                self.numbers[key] = last = number
                if files == identity_of(paths):
                    self.same.add(key)

    def take(self, keys: Sequence[Key], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of these keys, with the columns of a schema. Call it in order of keys."""
        numbers = [self.numbers[key] for key in keys]
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


def identity_of(paths: Sequence[Path]) -> str:
    """Changes with any of a subject's files."""
    return "+".join(map(identity, paths))


def stating(files: Sequence[str]) -> dict[str, str]:
    """The metadata of a database whose rows came from files of these identities."""
    return {FILES: " ".join(file or "-" for file in files)}


def stated_files(database: Path) -> dict[Key, tuple[int, set[str]]]:
    """Key -> the row's number and the identities of its files."""
    rows = _rows_by_key(database).items()
    return {key: (number, set(files.split("+"))) for key, (number, files) in rows}


def _rows_by_key(database: Path) -> dict[Key, tuple[int, str]]:
    """Key -> the row's number and the identities of its files."""
    metadata = records.metadata(database) if database.exists() else {}
    expected = schemas.DATABASE.metadata or {}
    if FILES not in metadata or any(
        metadata.get(key.decode()) != value.decode() for key, value in expected.items()
    ):
        return {}
    if not records.is_sealed(database):
        return {}
    rows = records.read(database, schemas.DATABASE, _KEY)
    files = metadata[FILES].split()
    if len(files) != rows.num_rows:
        return {}
    keys = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
    return dict(zip(keys, enumerate(files), strict=True))
