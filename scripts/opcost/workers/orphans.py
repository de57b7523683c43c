"""Processes that a child leaves running when it ends: they come to this process, and end here."""

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
    """The children of this process that are none of those it had `before`, nor `child`."""

    def __init__(self, before: set[int], child: int) -> None:
        self._known = before | {child}

    def after(self, grace_s: float) -> set[int]:
        """Those that still run after so many seconds, which some need to notice the child's end."""
        deadline = time.monotonic() + grace_s
        while (running := self._running()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return running

    def end(self) -> None:
        """Kill them, and what they leave behind in turn."""
        while running := self._running():
            for process in running:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _running(self) -> set[int]:
        return {process for process in children() - self._known if not _has_ended(process)}


@contextmanager
def adopted() -> Iterator[None]:
    """Meanwhile this process, and not init, becomes the parent of orphans below it."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def children() -> set[int]:
    """The children of this process; none are known without /proc."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(process) for path in lists for process in path.read_text().split()}


def _has_ended(process: int) -> bool:
    """Whether a child has ended; it is then buried."""
    try:
        return os.waitpid(process, os.WNOHANG)[0] == process
    except ChildProcessError:
        return True
