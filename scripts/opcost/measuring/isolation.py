"""A child process whose death is an answer."""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from opcost.errors import OpcostError, reported
from opcost.workers.child import be_the_child


def run_isolated(work: Callable[[], None], timeout_s: float) -> tuple[str, str] | None:
    """Run `work` in a forked child, and tell how it died: (status, message), or None if it did not.

    The status is "crashed" or "timeout". A child that raises exits with 1, and so does this
    process: that is a fault of the harness, not a result. Fork before torch has run anything.
    """
    child = os.fork()
    if child == 0:
        be_the_child(work)
    status = _wait(child, timeout_s)
    if status is None:
        return "timeout", f"gave up after {timeout_s:g} s"
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    if code > 0 or -code in (signal.SIGINT, signal.SIGTERM):
        sys.exit(code if code > 0 else 128 - code)
    hint = ": the system may have run out of memory" if -code == signal.SIGKILL else ""
    return "crashed", f"killed by {signal.Signals(-code).name}{hint}"


def answer_of(question: Callable[[], Any], timeout_s: float) -> Any:
    """What `question` returns in a forked child, as JSON data of at most some kilobytes.

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


def _wait(child: int, timeout_s: float) -> int | None:
    """The child's wait status, or None if it was killed for taking too long."""

    def expire(_signal: int, _frame: object) -> NoReturn:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        return os.waitpid(child, 0)[1]
    except BaseException as interruption:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if isinstance(interruption, TimeoutError):
            return None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
