"""Errors for the user: each message gives the cause, the value found and a remedy."""

import contextlib
import difflib
import errno
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from opcost.terminal import drop_output, printable_lines, show, show_any_text

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SPACE = "free some space and run the same command again; all measurements are kept"
"""The remedy for a full disk."""

_RIGHTS = "change its permissions, or use another folder"
_KIND = "name a file where a file is expected, and a folder where a folder is expected"
MORE_MEMORY = (
    "close other programs, raise the limit (ulimit -v), or use a machine or a job with more memory"
)
_LIMITS = "raise the limit (ulimit -a), or end other programs"
_STORAGE = "check the disk or the network file system"
_REMEDIES = {
    **dict.fromkeys(FULL, SPACE),
    errno.EROFS: "use a writable folder",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: "check the path",
    errno.ENOTDIR: _KIND,
    errno.EISDIR: _KIND,
    errno.EEXIST: _KIND,
    errno.ENXIO: _KIND,
    errno.ELOOP: "check the symbolic links of the path",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ENOMEM: MORE_MEMORY,
    errno.EAGAIN: _LIMITS,
    errno.EMFILE: _LIMITS,
    errno.ENFILE: _LIMITS,
    errno.EIO: _STORAGE,
    errno.ESTALE: _STORAGE,
    errno.ENOLCK: "use a folder on a file system that has locks, such as a local disk",
}
"""Remedies for operating system errors that are not bugs of opcost."""

_FAULT = "opcost: this is a bug in opcost: please report it with the lines above"
_LIMITED = (
    "opcost: memory is limited (ulimit -v), which may be why: raise the limit. If it fails without "
    "one, this is a bug in opcost: please report it with the lines above"
)


class OpcostError(Exception):
    """A problem that the user can fix; its text is shown without a traceback."""


def closest(value: str, allowed: Iterable[str]) -> str:
    """A sentence with the allowed values closest to `value`, or with all of a short list."""
    names = sorted(allowed)
    matches = difflib.get_close_matches(value, names, n=5, cutoff=0.5)
    if matches:
        return f"Did you mean {' or '.join(repr(match) for match in matches)}?"
    return f"Allowed: {', '.join(names)}." if 0 < len(names) <= 40 else ""


def refusal(error: OSError) -> str:
    """A message for an operating system error: the file or folder, the reason and a remedy."""
    remedy = _REMEDIES.get(error.errno or 0, _STORAGE)
    if error.filename is not None:
        name = os.fsdecode(error.filename)
    else:  # `files.replacing` sets the names of opcost's own files
        name = "standard output, or a file" if remedy in (SPACE, _STORAGE) else "the system"
    return f"{name}: {error.strerror}: {remedy}"


@contextmanager
def reported(log: str | None = None) -> Iterator[None]:
    """Print expected errors without a traceback, also into the file `log`, and exit with 1.

    The traceback of any other exception ends with a request to report it. A closed standard output
    is not reported.
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
            limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
            error.add_note(_LIMITED if limited else _FAULT)
            raise
        _show(f"opcost: {text}", log)
        sys.exit(1)


def install_extra(extra: str) -> str:
    """The command that installs an extra of opcost."""
    return f"python -m pip install 'opcost[{extra}]'"


def need(package: str) -> None:
    """Raise OpcostError, with the command that installs it, without a package of an extra."""
    if find_spec(package) is None:
        raise OpcostError(f"this needs {package}: {install_extra(_EXTRAS[package])}")


_EXTRAS = {
    **dict.fromkeys(("torch", "torchvision", "snakemake"), "measure"),
    **dict.fromkeys(("altair", "jinja2", "vl_convert", "itables"), "report"),
}
"""Packages that only some commands need -> the extra that installs them."""


def _foreseen(error: Exception) -> str | None:
    """The message for an exception that is not a bug of opcost, or None."""
    if isinstance(error, OpcostError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return f"this needs {error.name}: {install_extra(_EXTRAS[error.name])}"
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        return f"there is not enough memory: {MORE_MEMORY}"
    if isinstance(error, UnicodeError):
        return f"a text file has an unexpected encoding ({error}): save it as UTF-8"
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return refusal(error)
    return None


def _show(message: str, log: str | None) -> None:
    if log is not None:
        with contextlib.suppress(OSError):  # the message may be about a full disk
            text = printable_lines(message) + "\n"
            Path(log).write_text(text, encoding="utf-8")
    show(message, err=True)
