"""Atomic writes, and validated reading of JSON."""

import contextlib
import errno
import glob
import json
import math
import os
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from opcost.errors import OpcostError, refusal

_MAX_BYTES = 2**30


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, and rename it to `path` when the block succeeds.

    A file at its final path is therefore complete, even after a kill or a power failure. A link
    stays, and the file that it names is replaced. Raises OSError with the name `path` if it cannot
    be written, and OpcostError for a pipe or a device, which a file must not replace.
    """
    with unwinding(), _replacing(path) as temporary:
        yield temporary


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `path`, and rename it to `path` when the block
    succeeds; the former folder is deleted. There is none for the moment between two renames.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with unwinding(), TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
        new, former = Path(scratch, "new"), Path(scratch, "former")
        new.mkdir()
        yield new
        for written in filter(Path.is_file, new.rglob("*")):
            _sync(written)
        try:
            if path.exists():
                path.rename(former)
            new.rename(path)
        except BaseException:
            if former.exists() and not path.exists():
                former.rename(path)
            raise


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # `..` and the root cannot have a temporary file beside them
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OpcostError(f"{path} is a pipe or a device, not a file: name another output")
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # libraries may write further files of this name
            for left in path.parent.glob(f"{glob.escape(temporary.name)}*"):
                left.unlink(missing_ok=True)


@contextmanager
def unwinding() -> Iterator[None]:
    """Let signals that end this process first end the block, which deletes its temporary file."""
    came: list[int] = []

    def unwind(number: int, _frame: object) -> NoReturn:
        came.append(number)
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    ends_by = (each for each in (signal.SIGTERM, signal.SIGHUP) if is_main)
    handled = [each for each in ends_by if signal.getsignal(each) == signal.SIG_DFL]
    try:
        for each in handled:
            signal.signal(each, unwind)
        yield
    finally:
        for each in handled:
            signal.signal(each, signal.SIG_DFL)
        for number in came:
            os.kill(os.getpid(), number)


def check_output(output: Path, sources: Iterable[Path]) -> None:
    """Raise OpcostError if writing `output` would replace one of its sources, links included, or a
    file in one that is a folder.
    """
    for source in sources:
        if output.exists() and source.exists() and output.samefile(source):
            raise OpcostError(f"the output {output} is also an input, {source}: name another file")
        if source.is_dir() and source.resolve() in output.resolve().parents:
            raise OpcostError(f"the output {output} is inside of an input, {source}: name another")


def opened(path: Path) -> BufferedReader:
    """A regular file, open for reading; opcost opens all files of others by this function.

    Raises OpcostError for anything else: a named pipe would block until something writes to it, and
    a device may have no end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise OpcostError(refusal(error)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise OpcostError(f"{path} is {kind}, not a file: move it away, and run again")
    return open(descriptor, "rb")


def content_of(path: Path) -> bytes:
    """The bytes of a regular file. Raises OpcostError like `opened`, and for a file that is too
    large.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise OpcostError(
                f"{path} has {size:,} bytes; allowed: at most {_MAX_BYTES:,}: opcost wrote no such "
                "file; move it away"
            )
        return file.read()


def lines_of(path: Path, **how: Any) -> TextIOWrapper:
    """A regular text file, open for reading. Raises OpcostError like `opened`."""
    return TextIOWrapper(opened(path), **{"encoding": "utf-8", **how})


def first_line(path: Path) -> str:
    """The first line of a file of the kernel, without white space; "" if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def version_of(path: Path) -> tuple[int, ...]:
    """Values that change when a file is written, moved, copied, replaced or deleted."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def clamp_future_times(folder: Path) -> None:
    """Set modification times in the future, left when the clock is set back, to the present.

    Snakemake refuses to make tables from such files. Links are not followed: their targets may be
    outside the folder.
    """
    now = time.time()
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime > now + 1:
                os.utime(path, (now, now), follow_symlinks=False)


def _sync(path: Path) -> None:
    """Wait until a file's content is on disk, because a rename may get there first.

    The folder is not synced: if the rename is lost, the file is made again.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write an object as indented JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(document, indent=2, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object from a file. Raises OpcostError that ends with `remedy`."""
    content = content_of(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise OpcostError(f"{path} is not UTF-8 text ({error}): {remedy}") from error
    return parse_json(text, path, remedy)


def parse_json(text: str, source: object, remedy: str) -> dict[str, Any]:
    """Parse a JSON object without NaN and infinity. `source` names its origin in messages.

    Raises OpcostError that ends with `remedy`.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        json.dumps(document, ensure_ascii=False).encode()  # refuses invalid Unicode
    except RecursionError:
        raise OpcostError(f"{source} nests lists or objects too deep: {remedy}") from None
    except ValueError as error:
        raise OpcostError(f"{source} is not valid JSON ({error}): {remedy}") from error
    if not isinstance(document, dict):
        found = {list: "a list", str: "a string", type(None): "null"}.get(type(document), "a value")
        raise OpcostError(f"{source} holds {found} where a JSON object is expected: {remedy}")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value
