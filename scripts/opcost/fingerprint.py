"""Fingerprints of tables: recorded when a table is made, compared when Snakemake starts.

Modification times, which Snakemake compares, mislead: a moved or copied file keeps its age, a
restored output looks new, and a table written while the clock was ahead stays newer than any
measurement. So each table has a note beside it: what the study requested, the identity of its
inputs (size, times and inode), and a hash of its content.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError
from opcost.files import opened, read_json, write_json


def identity(path: Path) -> str:
    """16 hex digits that change when a file is written, moved, copied, replaced or deleted."""
    try:
        status = path.stat()
    except OSError:
        return ""
    known = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return of(known)


def of(value: Any) -> str:
    """16 hex digits that change with a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def content(path: Path) -> str:
    """16 hex digits that change with a file's bytes; "" for a pipe, a device or a folder."""
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except (OSError, OpcostError):
        return ""


@contextmanager
def noted(
    note: str, asked: str, inputs: Iterable[str | Path], outputs: Iterable[str]
) -> Iterator[None]:
    """Write the note of the tables that the block makes, after it has made them.

    Inputs are identified before the block reads them, so that later changes are noticed. `asked`
    is the fingerprint of all other dependencies. The note may be among the outputs.
    """
    before = {str(path): identity(Path(path)) for path in inputs}
    yield
    made = {path: content(Path(path)) for path in outputs if path != note}
    write_json(Path(note), {"asked": asked, "inputs": before, "outputs": made})


def is_current(note: Path, asked: str, inputs: Iterable[Path] | None = None) -> bool:
    """Whether a table is up to date: same request, same inputs, content unchanged.

    `inputs` are the present ones, by default those that the note lists. False if the note is
    missing or damaged, or names a table outside the folder that holds the notes' folder.
    """
    try:
        document = read_json(note, "delete it")
        paths = document["inputs"] if inputs is None else map(str, inputs)
        outputs = document["outputs"]
        tables = os.path.abspath(note.parent.parent)
        return bool(
            document["asked"] == asked
            and document["inputs"] == {path: identity(Path(path)) for path in paths}
            and all(Path(os.path.abspath(path)).is_relative_to(tables) for path in outputs)
            and all(outputs.values())
            and outputs == {path: content(Path(path)) for path in outputs}
        )
    except (OpcostError, OSError, ValueError, KeyError, TypeError):
        return False


def forget(note: Path) -> None:
    """Delete a note if it exists. Raises OpcostError if it cannot be deleted."""
    if note.is_dir() and not note.is_symlink():
        raise OpcostError(f"{note} is a folder, not a file: move it away, and run again")
    try:
        note.unlink(missing_ok=True)
    except OSError as error:
        raise OpcostError(
            f"{note} cannot be deleted ({error.strerror}): a run writes into {note.parent.parent}; "
            "make it writable for this user, or run in a copy"
        ) from None


def clamp_future_times(folder: Path) -> None:
    """Set modification times in the future, left when the clock is set back, to the present.

    Snakemake refuses to make tables from such files. Links are not followed: their targets may lie
    outside the folder.
    """
    now = time.time()
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime > now + 1:
                os.utime(path, (now, now), follow_symlinks=False)
