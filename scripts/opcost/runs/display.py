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
_CYAN, _RED, _FAINT, _PLAIN, _CLEAR = "\x1b[36m", "\x1b[31m", "\x1b[2m", "\x1b[0m", "\r\x1b[K"
_MEASURED = re.compile(r"\[(\w+)\] ")
_WAITING = "waiting for the device"
_HEADER = re.compile(r'WorkflowError in file ".*", line \d+:')
_FRAME = re.compile(r'  File ".*(?:\.smk|Snakefile)", line \d+, in .*')
"""Lines that Snakemake prints around an error of opcost."""
_WRAPPED = re.compile(
    r"InputFunctionException in rule .*:\nError:\n  (?:OpcostError|WorkflowError): (.*)", re.DOTALL
)
_AFTER_WRAPPED = re.compile(r"|Wildcards:|\w+=.*|Traceback:|  File .*")
"""Lines around an error of opcost that an input function raises."""
_FAILED = re.compile(r"\[refused\] |\[\w+\] \w+ +[a-z_]+: ")


class Display:
    """Shows the lines of a workflow on a stream.

    Snakemake's output before the workflow begins is shown only if it never begins, for a reason
    other than an error of opcost.
    """

    def __init__(self, stream: TextIO, bar: bool = True) -> None:
        self._stream = stream
        self._counts = bar
        self._terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self._terminal and not os.environ.get("NO_COLOR")
        self._pace = Pace()
        self._before: list[str] | None = []
        self._progress = ""
        self._error_follows = False
        self._is_interrupted = False
        self._has_waited = False
        self._wrapped: list[str] = []
        self._follows_wrapped = False
        self.jobs = 0

    def show(self, line: str) -> None:
        """Show a line of the workflow, or update its progress."""
        if line.startswith(MARK):
            self._note(line.removeprefix(MARK))
        elif self._is_interrupted or (self._follows_wrapped and _AFTER_WRAPPED.fullmatch(line)):
            return
        elif self._wrapped or line.startswith("InputFunctionException"):
            self._unwrap(line)
        elif line.startswith(_WAITING) and self._has_waited:
            return  # repeated for each measurement while others measure
        elif _HEADER.fullmatch(line):
            self._before, self._error_follows = None, True
        elif _FRAME.fullmatch(line):
            return
        elif self._error_follows:
            self._error_follows = False
            self._print(f"opcost: {line}")
        elif self._before is not None:
            self._before.append(line)
        else:
            self._has_waited |= line.startswith(_WAITING)
            self._print(line)

    def _unwrap(self, line: str) -> None:
        """Show three lines that begin with an exception: only the reason if it is opcost's."""
        self._wrapped.append(line)
        if len(self._wrapped) < 3:
            return
        text, self._wrapped = "\n".join(self._wrapped), []
        match = _WRAPPED.fullmatch(text)
        self._before, self._follows_wrapped = None, match is not None
        self._print(f"opcost: {match[1]}" if match else text)

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
        self._stream.write(f"{self._shown(line)}\n")
        self._draw()

    def _shown(self, line: str) -> str:
        """A measurement shortened to one line; other lines unchanged."""
        match = _MEASURED.match(line)
        if match is None:
            wrong = line.startswith(("opcost: ", "WorkflowError"))
            return f"{_RED}{line}{_PLAIN}" if self._colours and wrong else line
        width = shutil.get_terminal_size((_WIDTH, 0)).columns if self._terminal else _WIDTH
        failed = _FAILED.match(line) is not None
        if not failed and match[1] != "plan" and len(line) >= width:
            line = f"{line[: width - 2]}…"
        if not self._colours:
            return line
        if failed:
            return f"{_RED}{line}{_PLAIN}"
        colour = _CYAN if match[1] == "model" else _FAINT
        return f"{colour}{match[0]}{_PLAIN}{line[match.end() :]}"

    def _draw(self) -> None:
        if self._terminal:
            self._stream.write(f"{_CLEAR}{self._progress}")
        self._stream.flush()


def _progress(done: int, total: int, left_s: float | None) -> str:
    filled = _BAR * done // total
    left = "" if left_s is None else f"  about {duration(left_s)} left"
    return f"{'━' * filled}{'─' * (_BAR - filled)}  {done}/{total}{left}"
