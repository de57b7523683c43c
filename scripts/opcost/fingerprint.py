"""What a table was made from: noted when it is made, checked each time that Snakemake starts.

Snakemake compares times of modification. By these, a file that was moved or copied here keeps its
age, an output that was restored is new, and a clock that was ahead leaves tables that stay newer
than any measurement. So each table has a note beside it: what the study asked of it, what its
inputs were (known by size, times and inode), and its content.
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
from opcost.files import check_readable, read_json, write_json


def identity(path: Path) -> str:
    """16 digits that change when a file is written, moved, copied, replaced or deleted."""
    try:
        status = path.stat()
    except OSError:
        return ""
    known = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return of(known)


def of(value: Any) -> str:
    """16 digits that change with a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def content(path: Path) -> str:
    """16 digits that change with the bytes of a file; none of a pipe, a device or a folder."""
    try:
        check_readable(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except (OSError, OpcostError):
        return ""


@contextmanager
def noted(
    note: str, asked: str, inputs: Iterable[str | Path], outputs: Iterable[str]
) -> Iterator[None]:
    """Write the note of the tables that the block makes, once they are made.

    Inputs are looked at before the block reads them: one that changes meanwhile will differ.
    `asked` is the fingerprint of all else that they depend on. The note may be among the outputs.
    """
    before = {str(path): identity(Path(path)) for path in inputs}
    yield
    made = {path: content(Path(path)) for path in outputs if path != note}
    write_json(Path(note), {"asked": asked, "inputs": before, "outputs": made})


def is_current(note: Path, asked: str, inputs: Iterable[Path] | None = None) -> bool:
    """Whether a table would come out as it is: the same was asked of the same inputs.

    `inputs` are those that there are now; without them, those of the note are meant. A note that
    is missing or damaged says nothing, nor does one that names tables of another folder than that
    which holds the folder of the notes.
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
    """Delete a note, if there is one. Raises OpcostError if it cannot be deleted."""
    if note.is_dir() and not note.is_symlink():
        raise OpcostError(f"{note} is a folder, not a file: move it away, and run again")
    try:
        note.unlink(missing_ok=True)
    except OSError as error:
        raise OpcostError(
            f"{note} cannot be deleted ({error.strerror}): a run writes into {note.parent.parent}; "
            "make it writable for this user, or run in a copy"
        ) from None


def end_future(folder: Path) -> None:
    """Files that are newer than the clock get its time.

    Snakemake refuses to make a table of such files, as were written before the clock was set back.
    No link is followed: what lies elsewhere is not ours.
    """
    now = time.time()
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime > now + 1:
                os.utime(path, (now, now), follow_symlinks=False)
