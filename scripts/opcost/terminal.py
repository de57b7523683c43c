"""Standard output and error, for any encoding and after their reader has closed."""

import codecs
import io
import os
import sys

_ENCODING_ERRORS = "opcost.ascii"
_IN_ASCII = {"±": "+-", "µ": "u", "…": "..."}


def show_any_text() -> None:
    """Let standard output and error replace characters that their encoding lacks: ± by +-."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ENCODING_ERRORS)


def printable(text: str) -> str:
    """A text from a file, for example, as one line without effect on a terminal: characters that
    cannot be printed, such as line breaks, are escaped.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def show(text: str, err: bool = False) -> None:
    """Print lines to standard output or error; commands print their results by this function."""
    print(printable_lines(text), file=sys.stderr if err else sys.stdout, flush=True)


def announce(text: str) -> None:
    """Print lines about completed work, and ignore a closed or full standard output."""
    try:
        print(printable_lines(text))
    except OSError:
        drop_output()
    flush_output()


def tell(text: str) -> None:
    """Print to standard error, and ignore one that is closed or full."""
    try:
        if sys.stderr is not None:
            show(text, err=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open to the end


def flush_output() -> None:
    """Flush standard output, if it can be written."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()


def has_descriptor_files() -> bool:
    """Whether open files have names, `/dev/fd/N`, as process substitution in shells requires."""
    return os.path.isdir("/dev/fd")


def drop_output() -> None:
    """Replace standard output: flushing its buffer would fail again when Python exits."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open to the end


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    spelt = (_IN_ASCII.get(each) or ascii(each)[1:-1] for each in lacking)
    return "".join(spelt), error.end


codecs.register_error(_ENCODING_ERRORS, _spell)
