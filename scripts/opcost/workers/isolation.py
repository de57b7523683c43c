"""Run work in a forked child within limits; report how it died.

The child leads a process group, which ends with it. It writes notes for its parent into a file in
memory: that its work is done, and the Python traceback at a signal.
"""

import ctypes
import faulthandler
import fcntl
import json
import os
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil

from opcost.errors import MORE_MEMORY, OpcostError, reported
from opcost.memory import gib, resident_bytes
from opcost.terminal import flush_output, tell
from opcost.workers import origin

Death = tuple[str, str]
"""Status and message."""

_WHERE = signal.SIGUSR1
"""Makes the child write its traceback to the notes."""
_NOTE_TIMEOUT_S = 1.0
_GRACE_S = 1.0
"""In which processes that the work started may notice the child's end, and end as well."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MEMORY_POLL_S = 0.05
_SILENT_S = 60.0
"""After this time, and then at doubling intervals, a message states that the child still runs."""

_HINTS: dict[int, str] = {
    signal.SIGKILL: f"the system may have run out of memory; {MORE_MEMORY}",
    signal.SIGALRM: "an alarm went off, as when the power meter does not answer",
}

_notes: int | None = None


def run_isolated(
    work: Callable[[], None], timeout_s: float, memory_bytes: float | None = None
) -> Death | None:
    """Run `work` in a forked child; return (status, message) if it died, otherwise None.

    The status is "crashed", "timeout", "out_of_memory", "terminated" (by SIGTERM, which ends the
    whole job), or "error" for processes left running. If the work raises, the child exits with 1,
    and so does this process: this is a bug in opcost, not a result. Processes that the child
    started end with it. Fork before torch has run anything.
    """
    notes = os.memfd_create("notes")
    fcntl.fcntl(notes, fcntl.F_SETFL, os.O_APPEND)  # copies of the child write to it at once
    try:
        with _adopting_orphans():
            before = _children()
            flush_output()  # otherwise the child would flush the same output again
            child = os.fork()
            if child == 0:
                run_child(partial(_do, work, notes))
            return _outcome(child, notes, before, timeout_s, memory_bytes)
    finally:
        os.close(notes)


def answer_of(question: Callable[[], Any], timeout_s: float) -> Any:
    """The return value of `question` in a forked child: JSON data of at most a few kilobytes.

    Raises OpcostError if the child dies. Fork before torch has run anything.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as answers, os.fdopen(writer, "wb") as answer:

        def work() -> None:
            with reported():
                answer.write(json.dumps(question()).encode())
                answer.flush()

        death = run_isolated(work, timeout_s)
        answer.close()
        if death is not None:
            raise OpcostError(": ".join(death))
        return json.load(answers)


def run_child(work: Callable[[], None]) -> NoReturn:
    """Do `work` in this forked process and exit with the status that a script would have.

    The process is killed with its parent, so that it does not interfere with later measurements.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    code = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):  # the work may have closed or replaced them
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def end_copy() -> NoReturn:
    """End this process, which the work forked from the child; leaves a note for the parent."""
    if _notes is not None:
        os.write(_notes, b"copied\n")
    os._exit(0)


def _do(work: Callable[[], None], notes: int) -> None:
    """Do the work in the child, without a terminal: Ctrl-C is for the parent."""
    global _notes
    _notes, process = notes, os.getpid()
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable(notes, all_threads=False)
    faulthandler.register(_WHERE, notes, all_threads=False)
    try:
        work()
    finally:
        if os.getpid() != process:
            end_copy()
        with suppress(OSError):  # the work may have closed all files or limited their size
            os.write(notes, b"done\n")


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """In this block, this process adopts orphans below it instead of init."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _children() -> set[int]:
    """The children of this process; empty without /proc."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(process) for path in lists for process in path.read_text().split()}


def _outcome(
    child: int, notes: int, before: set[int], timeout_s: float, memory_bytes: float | None
) -> Death | None:
    left: list[psutil.Process] = []
    try:
        with suppress(OSError):  # the child does the same; the first of both succeeds
            os.setpgid(child, child)
        limit = _reached_limit(child, timeout_s, memory_bytes)
        if limit:
            _ask_where(child, notes)
        else:
            orphans = map(psutil.Process, _children() - before - {child})
            _, left = psutil.wait_procs(orphans, timeout=_GRACE_S)
    finally:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        while killed := _children() - before:  # those below them are then children
            for process in map(psutil.Process, killed):
                process.kill()
                process.wait()
    noted = _read(notes)
    line = origin.of_dump(noted)
    where = f" in {line}" if line else ""
    if limit:
        return limit[0], limit[1] + where
    death = _death(os.waitstatus_to_exitcode(status), noted, where)
    if death is None and left:
        kept = "a process" if len(left) == 1 else f"{len(left)} processes"
        return "error", f"left {kept} running"
    return death


def _reached_limit(child: int, timeout_s: float, memory_bytes: float | None) -> Death | None:
    """Wait for the child to end; return the limit that it reached, or None."""
    ended, start, silent_s = os.pidfd_open(child), time.monotonic(), _SILENT_S
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while (waited_s := time.monotonic() - start) < timeout_s:
            if waited_s >= silent_s:
                tell(
                    f"opcost: no result yet after {waited_s:.0f} s; gives up after {timeout_s:g} s"
                )
                silent_s *= 2
            wait_s = min(timeout_s, silent_s) - waited_s
            if poll.poll(1000 * (wait_s if memory_bytes is None else min(wait_s, _MEMORY_POLL_S))):
                return None
            if memory_bytes is not None and resident_bytes(child) > memory_bytes:
                return "out_of_memory", f"used more than {gib(memory_bytes)} of memory"
        return "timeout", f"gave up after {timeout_s:g} s"
    finally:
        os.close(ended)


def _ask_where(process: int, notes: int) -> None:
    """Make a process write its traceback to the notes, if it can."""
    before, deadline = os.fstat(notes).st_size, time.monotonic() + _NOTE_TIMEOUT_S
    with suppress(OSError):
        os.kill(process, _WHERE)
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.01)
        if before < size == os.fstat(notes).st_size:
            return
        size = os.fstat(notes).st_size


def _read(notes: int) -> str:
    return os.pread(notes, os.fstat(notes).st_size, 0).decode(errors="replace")


def _death(code: int, noted: str, where: str) -> Death | None:
    """The meaning of the child's exit code and notes. Exits if opcost itself failed."""
    if code < 0:
        status = "terminated" if -code == signal.SIGTERM else "crashed"
        return status, killed_by(-code, where)
    if not re.search("^done$", noted, re.MULTILINE):
        how = (
            f"ended itself with exit status {code}" if code else "closed its files, or ended itself"
        )
        return "crashed", f"its process {how}{where}"
    if code > 0:
        sys.exit(code)
    if re.search("^copied$", noted, re.MULTILINE):
        return "error", "forked a copy of its process, which went on as well"
    return None


def killed_by(number: int, where: str = "") -> str:
    """The signal that killed a process, and its probable cause."""
    known = {each.value: each.name for each in signal.Signals}
    hint = f": {_HINTS[number]}" if number in _HINTS else ""
    return f"killed by {known.get(number, f'signal {number}')}{where}{hint}"
