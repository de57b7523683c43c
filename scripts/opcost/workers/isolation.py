"""Run work in a forked child within limits; report how it died.

The child leads a process group, which ends with it. It writes notes for its parent into a file in
memory: that its work is done, and the Python traceback at a signal.
"""

import faulthandler
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from opcost.errors import MORE_MEMORY, OpcostError, reported
from opcost.memory import gib, resident_bytes
from opcost.terminal import flush_output, tell
from opcost.workers import origin
from opcost.workers.child import run_child
from opcost.workers.orphans import Orphans, adopted, children

Death = tuple[str, str]
"""Status and message."""

_WHERE = signal.SIGUSR1
"""Makes the child write its traceback to the notes."""
_NOTE_TIMEOUT_S = 1.0
_ORPHANS_GRACE_S = 1.0
_MEMORY_POLL_S = 0.05
_SILENT_S = 60.0
"""After this time, and then at doubling intervals, a message states that the child still runs."""

_HINTS: dict[int, str] = {
    signal.SIGKILL: f"the system may have run out of memory; {MORE_MEMORY}",
    signal.SIGALRM: "an alarm went off, as when the power meter does not answer",
}

_notes: int | None = None
_forked_at: str | None = None


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
    try:
        with adopted():
            before = children()
            flush_output()  # otherwise the child would flush the same output again
            child = os.fork()
            if child == 0:
                run_child(partial(_do, work, notes))
            return _outcome(child, notes, Orphans(before, child), timeout_s, memory_bytes)
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


def end_copy() -> NoReturn:
    """End this process, which the work forked from the child; leaves a note for the parent."""
    if _notes is not None:
        os.write(_notes, f"copied {_forked_at or ''}\n".encode())
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
    os.register_at_fork(after_in_child=_note_fork)
    try:
        work()
    finally:
        if os.getpid() != process:
            end_copy()
        with suppress(OSError):  # the work may have closed all files or limited their size
            os.write(notes, b"done\n")


def _note_fork() -> None:
    global _forked_at
    _forked_at = origin.of_frame(sys._getframe().f_back)


def _outcome(
    child: int, notes: int, orphans: Orphans, timeout_s: float, memory_bytes: float | None
) -> Death | None:
    status, running = None, set()
    try:
        with suppress(OSError):  # the child does the same; the first of both succeeds
            os.setpgid(child, child)
        limit = _reached_limit(child, timeout_s, memory_bytes)
        running = {child} if limit else orphans.after(_ORPHANS_GRACE_S)
        for process in running:
            _ask_where(process, notes)
    finally:
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        orphans.end()
    noted = _read(notes)
    line = origin.of_dump(noted)
    where = f" in {line}" if line else ""
    if limit:
        return limit[0], limit[1] + where
    death = _death(os.waitstatus_to_exitcode(status), noted, where)
    if death is None and running:
        kept = "a process" if len(running) == 1 else f"{len(running)} processes"
        return "error", f"left {kept} running{where}"
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
    copied = re.search("^copied (.*)$", noted, re.MULTILINE)
    if copied:
        where = f" in {copied[1]}" if copied[1] else ""
        return "error", f"forked a copy of its process, which went on as well{where}"
    return None


def killed_by(number: int, where: str = "") -> str:
    """The signal that killed a process, and its probable cause."""
    known = {each.value: each.name for each in signal.Signals}
    hint = f": {_HINTS[number]}" if number in _HINTS else ""
    return f"killed by {known.get(number, f'signal {number}')}{where}{hint}"
