"""Find the line of user code in a traceback: the last one outside Python, packages and opcost.

If there is none, it is the last one of an installed package other than PyTorch.
"""

import contextlib
import importlib.util
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

_PACKAGES = ("torch", "torchvision")
_INSTALLED = {"site-packages", "dist-packages"}
_INTERACTIVE = ("<stdin>", "<ipython-input-")
_WHERE_WORK_BEGINS = str(Path(__file__).with_name("isolation.py"))
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_UNNAMED = re.compile(r"(\.<locals>\.)?<\w+>$")


class _Call(NamedTuple):
    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{_shortened(Path(self.file))}:{self.line}"


def of_error(error: BaseException) -> str | None:
    """`FILE:LINE in FUNCTION` where an error, or one of its causes, was raised."""
    call = _of_user(_calls(error))
    if call is None:
        return None
    function = _UNNAMED.sub("", call.function).rpartition("<locals>.")[2]
    return f"{call} in {function}" if function else str(call)


def of_dump(text: str) -> str | None:
    """FILE:LINE from the output of `faulthandler`, the latest call first."""
    call = _of_user(_Call(file, int(line)) for file, line in _FRAME.findall(text))
    return None if call is None else str(call)


def _calls(error: BaseException) -> Iterator[_Call]:
    """The calls of an error and then those of its causes, the latest first."""
    if isinstance(error, SyntaxError) and error.filename:
        yield _Call(error.filename, error.lineno or 1)
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        yield _Call(frame.f_code.co_filename, line, frame.f_code.co_qualname)
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _calls(cause)


def _of_user(calls: Iterable[_Call]) -> _Call | None:
    """The first call of user code; ignores calls before the isolated work."""
    isolated = takewhile(lambda call: call.file != _WHERE_WORK_BEGINS, calls)
    others = [call for call in isolated if not _is_foreign(call.file)]
    own = (call for call in others if not _is_installed(Path(call.file)))
    return next(own, others[0] if others else None)


def _shortened(path: Path) -> Path:
    if _is_installed(path):
        start = max(path.parts.index(name) for name in _INSTALLED & {*path.parts})
        return Path(*path.parts[start + 1 :])
    with contextlib.suppress(FileNotFoundError, ValueError):  # the folder is gone, or another
        return path.relative_to(Path.cwd())
    return path


def _is_foreign(file: str) -> bool:
    """Whether a file is part of Python, PyTorch or opcost."""
    if file.startswith("<"):
        return not file.startswith(_INTERACTIVE)
    path = Path(file)
    return any(path.is_relative_to(folder) for folder in _foreign()) or (
        not _is_installed(path) and path.is_relative_to(sysconfig.get_path("stdlib"))
    )


def _is_installed(path: Path) -> bool:
    return not _INSTALLED.isdisjoint(path.parts)


@cache
def _foreign() -> list[Path]:
    """The folders of opcost and of PyTorch."""
    specs = [importlib.util.find_spec(name) for name in _PACKAGES]
    found = [folder for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    return [Path(__file__).parents[1], *map(Path, found)]
