"""The seal: a checksum of a whole Parquet file. Parquet itself has checksums of page data only.

It lies between the last page and the footer, which readers ignore. Files without one, such as
copies by other programs, are read without this check.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

_MARK = b"opcost.file.sha256"
_SEAL_BYTES = len(_MARK) + hashlib.sha256().digest_size
_TAIL_BYTES = 8
"""The end of a Parquet file: the length of its footer, and "PAR1"."""


class BrokenSeal(Exception):
    """A file has changed since it was written."""


def seal(path: Path) -> None:
    """Insert the checksum into a complete Parquet file without one."""
    with path.open("r+b") as file:
        start = _footer_start(file)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(start)
        footer = file.read()
        file.seek(start)
        file.write(_MARK + digest + footer)


def check_seal(file: BinaryIO) -> bool:
    """Whether the file has a checksum, as opcost wrote it. Raises BrokenSeal if it has one and has
    changed since it was written.
    """
    found, expected = _seals(file)
    had_one = found.startswith(_MARK) or found.endswith(expected.removeprefix(_MARK))
    if had_one and found != expected:
        raise BrokenSeal("it has changed since it was written")
    return had_one


def _seals(file: BinaryIO) -> tuple[bytes, bytes]:
    """The bytes before a file's footer, and the seal that belongs there."""
    end = max(_footer_start(file) - _SEAL_BYTES, 0)
    digest = hashlib.sha256()
    file.seek(0)
    remaining = end
    while chunk := file.read(min(remaining, 2**18)):
        digest.update(chunk)
        remaining -= len(chunk)
    found = file.read(_SEAL_BYTES)
    while chunk := file.read(2**18):
        digest.update(chunk)
    return found, _MARK + digest.digest()


def _footer_start(file: BinaryIO) -> int:
    """The offset of the footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL_BYTES, 0))
    length = int.from_bytes(file.read(4), "little") + _TAIL_BYTES
    return max(size - length, 0)
