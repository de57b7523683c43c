"""Run a command, or watch a process, within a window of a monitor."""

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from opcost.errors import OpcostError
from opcost.power.monitor import Monitor
from opcost.power.recording import environment_in
from opcost.power.windows import Window, start

NOT_FOUND, NOT_EXECUTABLE, KILLED = 127, 126, 128
"""Exit codes of a shell; `KILLED` plus the number of the signal."""

_POLL_S = 0.05
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal also sends these to the command if this process is in its foreground."""

_THAT_END_IT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a window, which still gets an energy."""

During = Callable[[Window], None]
"""Called periodically with a window that is not over."""

Handler = Callable[[int, Any], None]


class CannotRun(OpcostError):
    """A command that cannot be started, with the exit code that a shell would return."""

    def __init__(self, command: Sequence[str], error: OSError) -> None:
        of_shell = f"opcost measure -- sh -c {shlex.quote(' '.join(command))}"
        why = error.strerror or str(error)
        super().__init__(f"{command[0]} cannot be run: {why}. If it is of the shell: {of_shell}")
        self.code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def run_command(
    command: Sequence[str], monitor: Monitor, during: During | None = None, every_s: float = 0.0
) -> tuple[Window, int]:
    """Run a command with the streams of this process. Returns its window and its exit code.

    Signals are passed on. Raises CannotRun if it cannot be started.
    """
    name = command[0] if command[0].isprintable() else ascii(command[0])
    window = start(name, monitor=monitor)
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or exit codes of children would be lost
    children: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        if number in _OF_A_TERMINAL and _in_foreground():
            return
        if not children:
            waiting.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    with _handled((*_PASSED_ON, *_OF_A_TERMINAL), pass_on):  # the child may end at once
        try:
            # Inherited descriptors may be its arguments, as of `<(...)`; opcost has none open.
            environment = {**os.environ, **environment_in(monitor.recording)}
            children.append(subprocess.Popen(command, env=environment, close_fds=False))
        except OSError as error:
            raise CannotRun(command, error) from error
        for missed in waiting:
            pass_on(missed, None)
        with _called(during, window, every_s):
            code = children[0].wait()
            window.stop()
    return window, code if code >= 0 else KILLED - code


def watch(
    pid: int | None,
    duration_s: float | None,
    monitor: Monitor,
    during: During | None = None,
    every_s: float = 0.0,
) -> tuple[Window, int]:
    """Measure until a process ends, a time has passed, a signal comes, or `during` cannot write.
    Returns the window and an exit code: that of a shell if a signal ended it.

    Raises OpcostError if there is no such process.
    """
    if pid is not None and not _runs(pid):
        raise OpcostError(f"there is no process {pid}: name one that runs (ps lists them)")
    window = start("machine" if pid is None else f"process {pid}", monitor=monitor)
    signals: list[int] = []
    noting = _handled(_THAT_END_IT, lambda number, _frame: signals.append(number))
    with _called(during, window, every_s) as over, noting:
        while (
            not signals
            and not over.is_set()
            and (pid is None or _runs(pid))
            and (duration_s is None or window.time_s < duration_s)
        ):
            left_s = _POLL_S if duration_s is None else duration_s - window.time_s
            time.sleep(max(0.0, min(_POLL_S, left_s)))
        window.stop()
    return window, KILLED + signals[0] if signals else 0


@contextmanager
def _called(during: During | None, window: Window, every_s: float) -> Iterator[threading.Event]:
    """Call a function with a window periodically, in a thread, because it waits for the sensors.
    Yields an event that is set once the function can no longer write.
    """
    over = threading.Event()
    begun_s = time.monotonic()

    def periodically() -> None:
        try:
            # Aligned to the clock: a call that takes longer skips the ones that it misses.
            while during is not None and not over.wait(
                every_s - (time.monotonic() - begun_s) % every_s
            ):
                during(window)
        except OSError:  # as of `| head`; the program that is measured goes on
            over.set()

    thread = threading.Thread(target=periodically)
    if during is not None and every_s:
        thread.start()
    try:
        yield over
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


@contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    """Handle signals, except ignored ones (`nohup`)."""
    before = {
        number: signal.signal(number, handler)
        for number in signals
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _runs(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to this process and its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
