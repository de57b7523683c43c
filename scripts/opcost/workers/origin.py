"""Find the line of user code in a traceback: the last one outside Python, PyTorch and opcost."""

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import FrameType

_PACKAGES = ("torch", "torchvision")
_WHERE_WORK_BEGINS = str(Path(__file__).with_name("isolation.py"))
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)


def of_error(error: BaseException) -> str | None:
    """FILE:LINE where an error, or one of its causes, was raised."""
    if isinstance(error, SyntaxError) and error.filename and _is_own(error.filename):
        return _text(error.filename, error.lineno or 1)
    frames = [(frame.f_code.co_filename, line) for frame, line in _walked(error)]
    cause = error.__cause__ or error.__context__
    return _first_own(reversed(frames)) or (of_error(cause) if cause is not None else None)


def of_frame(frame: FrameType | None) -> str | None:
    """FILE:LINE where a thread is now."""
    return _first_own((each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame))


def of_dump(text: str) -> str | None:
    """FILE:LINE from the output of `faulthandler`, the latest call first."""
    return _first_own((file, int(line)) for file, line in _FRAME.findall(text))


def _walked(error: BaseException) -> Iterable[tuple[FrameType, int]]:
    return traceback.walk_tb(error.__traceback__)


def _first_own(frames: Iterable[tuple[str, int]]) -> str | None:
    """FILE:LINE from calls, the latest first; ignores calls before the isolated work."""
    for file, line in frames:
        if file == _WHERE_WORK_BEGINS:
            return None
        if _is_own(file):
            return _text(file, line)
    return None


def _text(file: str, line: int) -> str:
    path = Path(file)
    with contextlib.suppress(FileNotFoundError, ValueError):  # no such folder any more, or another
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"


def _is_own(file: str) -> bool:
    if file.startswith("<") or os.path.realpath(file) == os.path.realpath(sys.argv[0]):
        return False
    path = Path(file)
    return not any(path.is_relative_to(folder) for folder in _foreign()) and (
        "site-packages" in path.parts or not path.is_relative_to(sysconfig.get_path("stdlib"))
    )


@cache
def _foreign() -> list[Path]:
    """The folders of opcost and of PyTorch."""
    specs = [importlib.util.find_spec(name) for name in _PACKAGES]
    found = [folder for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    return [Path(__file__).parents[1], *map(Path, found)]
