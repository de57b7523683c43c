"""What a table was made from: noted when it is made, checked each time that Snakemake starts.

Snakemake compares times of modification. By these, a file that was moved or copied here keeps its
age, an output that was restored is new, and a clock that was ahead leaves tables that stay newer
than any measurement. So each table has a note beside it: what the study asked of it, what its
inputs were (known by size, times and inode), and its content.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opcost.files import replacing


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
    """16 digits that change with the bytes of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
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
    with replacing(Path(note)) as temporary:
        temporary.write_text(
            json.dumps({"asked": asked, "inputs": before, "outputs": made}), encoding="utf-8"
        )


def is_current(note: Path, asked: str, inputs: Iterable[Path] | None = None) -> bool:
    """Whether a table would come out as it is: the same was asked of the same inputs.

    `inputs` are those that there are now; without them, those of the note are meant. A note that
    is missing or damaged says nothing.
    """
    try:
        document = json.loads(note.read_text(encoding="utf-8"))
        paths = document["inputs"] if inputs is None else map(str, inputs)
        return bool(
            document["asked"] == asked
            and document["inputs"] == {path: identity(Path(path)) for path in paths}
            and document["outputs"] == {path: content(Path(path)) for path in document["outputs"]}
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
