"""What opcost says when it cannot go on: the cause, the value found and the remedy."""

import contextlib
import difflib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opcost.terminal import drop_output, show_any_text

_SPACE = "free some space, and run the same command again: what was measured is kept"
_RIGHTS = "give yourself the right to it, or use another folder"
_KIND = "name a file where a file is expected, and a folder where a folder is"
_MEMORY = "close other programs, or use a machine or a job with more memory"
_LIMITS = "raise the limit (ulimit -a), or end other programs"
_STORAGE = "check the disk or the network file system"
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: _SPACE,
    errno.EROFS: "use a folder that can be written",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: "check the path",
    errno.ENOTDIR: _KIND,
    errno.EISDIR: _KIND,
    errno.EEXIST: _KIND,
    errno.ENXIO: _KIND,
    errno.ELOOP: "check the symbolic links of the path",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: _LIMITS,
    errno.EMFILE: _LIMITS,
    errno.ENFILE: _LIMITS,
    errno.EIO: _STORAGE,
    errno.ESTALE: _STORAGE,
}
"""What to do about the errors of the operating system that a sound program can meet."""

_FAULT = "opcost: this is a fault of opcost: please report it with the lines above"


class OpcostError(Exception):
    """A problem that the user can fix; its text is shown without a traceback."""


def closest(value: str, allowed: Iterable[str]) -> str:
    """A sentence that names the allowed values most like `value`, or all of a short list."""
    names = sorted(allowed)
    matches = difflib.get_close_matches(value, names, n=5, cutoff=0.5)
    if matches:
        return f"Did you mean {' or '.join(repr(match) for match in matches)}?"
    return f"Allowed: {', '.join(names)}." if 0 < len(names) <= 40 else ""


def refusal(error: OSError) -> str:
    """What the operating system refused: the file or folder, its reason and the remedy."""
    remedy = _REMEDIES.get(error.errno or 0, _STORAGE)
    if error.filename is not None:
        place = os.fsdecode(error.filename)
    else:  # files of ours have a name by `files.replacing`
        place = "standard output" if remedy in (_SPACE, _STORAGE) else "the system"
    return f"{place}: {error.strerror}: {remedy}"


@contextmanager
def reported(log: str | None = None) -> Iterator[None]:
    """Show what could be foreseen as its text alone, also in the file `log`, and exit with 1.

    The traceback of any other exception ends with the request to report it. Standard output whose
    reader has left is no news.
    """
    show_any_text()
    try:
        yield
    except BrokenPipeError:
        drop_output()
        sys.exit(1)
    except Exception as error:
        text = _foreseen(error)
        if text is None:
            error.add_note(_FAULT)
            raise
        _show(f"opcost: {text}", log)
        sys.exit(1)


def _foreseen(error: Exception) -> str | None:
    """What to say of an exception that is no fault of opcost's, or None."""
    if isinstance(error, OpcostError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {_MEMORY}"
    if isinstance(error, UnicodeError):
        return f"text that is not in the encoding expected ({error}): save it as UTF-8"
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return refusal(error)
    return None


def _show(message: str, log: str | None) -> None:
    if log is not None:
        with contextlib.suppress(OSError):  # the disk may be full of which the message speaks
            Path(log).write_text(message + "\n", encoding="utf-8", errors="backslashreplace")
    print(message, file=sys.stderr)
