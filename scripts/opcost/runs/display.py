"""The terminal output of a run: a line for each measurement, above a bar with the remaining time.

The bar is drawn when a job has ended, and not by a clock, which would disturb a measurement.
"""

import os
import re
import shutil
import time
from typing import TextIO

from opcost.planning.progress import Pace
from opcost.text import duration

MARK = "\x1e"
"""Prefix of the workflow's lines for this display: the number of jobs done, and their total."""

_WIDTH = 100
_BAR = 24
_CLEAR = "\r\x1b[K"
_WAITING = "waiting for the device"
_MEASURED = re.compile(r"\[(?!plan|refused)\w+\] ")
_FAILED = re.compile(r"\[\w+\] \w+ +[a-z_]+: ")
_ERROR_FOLLOWS = re.compile(r"WorkflowError in file .*:")
_INPUT_ERROR = re.compile(r"  (?:OpcostError|WorkflowError): (.*)")
"""An error of opcost that an input function raises."""
_ABOVE_INPUT_ERROR = re.compile(r"InputFunctionException in rule .*:|Error:")
_BELOW_ERROR = re.compile(r'|Wildcards:|\w+=.*|Traceback:|  File ".*", line \d+, in .*')
"""Lines that Snakemake prints below an error of opcost."""


class Display:
    """Shows the lines of a workflow on a stream.

    Snakemake's output before the workflow begins is shown only if it never begins, for a reason
    other than an error of opcost.
    """

    def __init__(self, stream: TextIO, bar: bool = True) -> None:
        self._stream = stream
        self._counts = bar
        self._terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._pace = Pace()
        self._before: list[str] | None = []
        self._progress = ""
        self._prefix = ""
        self._has_failed = False
        self._is_interrupted = False
        self._has_waited = False
        self.jobs = 0

    def show(self, line: str) -> None:
        """Show a line of the workflow, or update its progress."""
        if line.startswith(MARK):
            self._note(line.removeprefix(MARK))
            return
        is_repeated = line.startswith(_WAITING) and self._has_waited  # while others measure
        if self._is_interrupted or is_repeated:
            return
        self._has_waited |= line.startswith(_WAITING)
        if _ERROR_FOLLOWS.fullmatch(line):
            self._before, self._prefix, self._has_failed = None, "opcost: ", True
        elif _ABOVE_INPUT_ERROR.fullmatch(line):
            self._before = None
        elif match := _INPUT_ERROR.fullmatch(line):
            self._has_failed = True
            self._print(f"opcost: {match[1]}")
        elif self._has_failed and _BELOW_ERROR.fullmatch(line):
            return
        elif self._before is not None:
            self._before.append(line)
        else:
            self._print(f"{self._prefix}{line}")
            self._prefix = ""

    def interrupt(self) -> None:
        """Show nothing more: Snakemake's messages about an interruption are long."""
        self._is_interrupted = True

    def close(self) -> None:
        """Remove the bar."""
        for line in () if self._is_interrupted else self._before or ():
            self._print(line)
        self._before, self._progress = None, ""
        self._draw()

    def _note(self, text: str) -> None:
        self._before = None
        if not text:
            return
        done, total = map(int, text.split())
        self.jobs, now_s = done, time.monotonic()
        if not self._counts:
            return
        if self._terminal:
            self._progress = _progress(done, total, self._pace.left_s(done, total, now_s))
            self._draw()
        elif line := self._pace.line(done, total, now_s):
            self._print(line)

    def _print(self, line: str) -> None:
        if self._terminal:
            self._stream.write(_CLEAR)
        width = shutil.get_terminal_size((_WIDTH, 0)).columns if self._terminal else _WIDTH
        is_cut = _MEASURED.match(line) and not _FAILED.match(line) and len(line) >= width
        self._stream.write(f"{line[: width - 2]}…\n" if is_cut else f"{line}\n")
        self._draw()

    def _draw(self) -> None:
        if self._terminal:
            self._stream.write(f"{_CLEAR}{self._progress}")
        self._stream.flush()


def _progress(done: int, total: int, left_s: float | None) -> str:
    filled = _BAR * done // total
    left = "" if left_s is None else f"  about {duration(left_s)} left"
    return f"{'━' * filled}{'─' * (_BAR - filled)}  {done}/{total}{left}"
