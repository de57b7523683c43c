"""Processes that a child leaves running: this process adopts and ends them."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.01


class Orphans:
    """The children of this process, except those it had `before` and `child`."""

    def __init__(self, before: set[int], child: int) -> None:
        self._known = before | {child}

    def after(self, grace_s: float) -> set[int]:
        """Orphans that still run after a grace period, in which they may detect the child's end."""
        deadline = time.monotonic() + grace_s
        while (running := self._running()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return running

    def end(self) -> None:
        """Kill the orphans and the processes that they leave behind."""
        while running := self._running():
            for process in running:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _running(self) -> set[int]:
        return {process for process in children() - self._known if not _has_ended(process)}


@contextmanager
def adopted() -> Iterator[None]:
    """In this block, this process adopts orphans below it instead of init."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def children() -> set[int]:
    """The children of this process; empty without /proc."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(process) for path in lists for process in path.read_text().split()}


def _has_ended(process: int) -> bool:
    """Whether a child has ended; if so, reaps it."""
    try:
        return os.waitpid(process, os.WNOHANG)[0] == process
    except ChildProcessError:
        return True
