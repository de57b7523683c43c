"""A checksum of a Parquet file's footer: Parquet has one of each page, and none of the footer.

It lies between the last page and the footer, where no reader looks. A program that copies the rows
to another file leaves it out; a file without one, such as an older one, is read all the same.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

_MARK = b"opcost.footer.sha256"
_SEAL_BYTES = len(_MARK) + hashlib.sha256().digest_size
_TAIL_BYTES = 8
"""A Parquet file ends with the length of its footer and "PAR1"."""


class BrokenSeal(Exception):
    """A file is not as it was written; says which part."""


def seal(path: Path) -> None:
    """Put the checksum of its footer into a whole Parquet file that has none."""
    with path.open("r+b") as file:
        start, footer = _footer(file)
        file.seek(start)
        file.write(_MARK + hashlib.sha256(footer).digest() + footer)


def check_seal(path: Path) -> None:
    """Raises BrokenSeal if the file has such a checksum, and another footer than was written."""
    found, expected = _seals(path)
    if found.startswith(_MARK) and found != expected:
        raise BrokenSeal("its footer has changed since it was written")


def is_sealed(path: Path) -> bool:
    """Whether the file has the checksum of its footer: opcost wrote it, and nothing else since."""
    found, expected = _seals(path)
    return found == expected


def _seals(path: Path) -> tuple[bytes, bytes]:
    """What stands before a file's footer, and the checksum that belongs there."""
    with path.open("rb") as file:
        start, footer = _footer(file)
        file.seek(max(start - _SEAL_BYTES, 0))
        return file.read(_SEAL_BYTES), _MARK + hashlib.sha256(footer).digest()


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Where the footer begins, and all from there to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL_BYTES, 0))
    length = int.from_bytes(file.read(4), "little") + _TAIL_BYTES
    start = max(size - length, 0)
    file.seek(start)
    return start, file.read()
