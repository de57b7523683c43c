"""Parquet files with bits changed: pages have checksums, what describes the pages has none."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from opcost.databases.database import read_database
from opcost.rows import records, schemas

from tests.fuzz.tally import Case


def damage(content: bytes, generator: random.Random) -> bytes:
    """Flip bits or replace bytes: as often in what describes the pages as in the pages."""
    changed = bytearray(content)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for _ in range(generator.choice((1, 1, 1, 2, 8))):
        begin = len(content) - footer if generator.random() < 0.5 else 0
        position = generator.randrange(begin, len(content))
        if generator.random() < 0.8:
            changed[position] ^= 1 << generator.randrange(8)
        else:
            changed[position] = generator.randrange(256)
    return bytes(changed)


def _case(path: Path, read: Callable[[Path], pa.Table]) -> Case:
    content, whole = path.read_bytes(), read(path).to_pylist()
    names = list(whole[0])
    other = path.with_name(f"damaged_{path.name}")

    def case(generator: random.Random) -> str | None:
        other.write_bytes(damage(content, generator))
        rows = read(other).to_pylist()
        # As text: NaN equals nothing.
        if repr(rows) == repr(whole):
            return None
        if len(rows) != len(whole):
            return f"{len(rows)} rows instead of {len(whole)}"
        differing = [
            name
            for name in names
            if [repr(row.get(name)) for row in rows] != [repr(row[name]) for row in whole]
        ]
        return f"changed values of {', '.join(differing[:8])}"

    return case


def row_file_bits(path: Path) -> Case:
    """A file of one row."""
    return _case(path, lambda file: records.read(file, schemas.OPERATOR))


def database_bits(path: Path) -> Case:
    """A database."""
    return _case(path, read_database)
