"""What opcost says when it cannot go on: the cause, the value found and the remedy."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class OpcostError(Exception):
    """A problem that the user can mend; its text is shown without a traceback."""


def closest(value: str, allowed: Iterable[str]) -> str:
    """A sentence that names the allowed values most like `value`, or all of a short list."""
    names = sorted(allowed)
    matches = difflib.get_close_matches(value, names, n=5, cutoff=0.5)
    if matches:
        return f"Did you mean {' or '.join(repr(match) for match in matches)}?"
    return f"Allowed: {', '.join(names)}." if 0 < len(names) <= 40 else ""


@contextmanager
def reported(log: str | None = None) -> Iterator[None]:
    """Show an OpcostError as its text alone, also in the file `log`, and exit with 1."""
    try:
        yield
    except OpcostError as error:
        message = f"opcost: {error}"
        if log is not None:
            Path(log).write_text(message + "\n", encoding="utf-8")
        print(message, file=sys.stderr)
        sys.exit(1)
