"""Run a command, or watch a process, within a window of a monitor."""

import errno
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
from opcost.text import seconds

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


def run_command(
    command: Sequence[str], monitor: Monitor, during: During | None = None, every_s: float = 0.0
) -> tuple[Window, int]:
    """Run a command with the streams of this process. Returns its window and its exit code.

    Signals are passed on. Raises OpcostError, with a `code`, if it cannot be started.
    """
    environment = {**os.environ, **environment_in(monitor.recording)}
    name = command[0] if command[0].isprintable() else ascii(command[0])
    window = start(name, monitor=monitor)
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or exit codes of children would be lost
    with _signals_passed_on() as to_child:  # before the child exists: it may end at once
        try:
            # Inherited descriptors may be its arguments, as of `<(...)`; opcost's own are closed.
            child = subprocess.Popen(command, env=environment, close_fds=False)
        except OSError as error:
            window.abandon()
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            raise CannotRun(_why_not(command, error), code) from error
        to_child(child)
        with _called(during, window, every_s):
            code = child.wait()
            window.stop()
    return window, code if code >= 0 else KILLED - code


def _why_not(command: Sequence[str], error: OSError) -> str:
    program, line = command[0], " ".join(command)
    of_shell = f"opcost measure -- sh -c {shlex.quote(line)}"
    exists = os.path.lexists(program)
    if not program.strip():
        return "the command is empty: name a program"
    if os.path.isdir(program):
        return f"{program} is a folder: name a program"
    if not exists and set(program) & _OF_A_SHELL:
        return f"{program} is a line of a shell, not a program: {of_shell}"
    why = error.strerror
    match error.errno:
        case errno.ENOENT if exists:
            why = "the interpreter that its first line names does not exist"
        case errno.ENOENT if os.sep not in program:
            why = f"it is in no folder of PATH. If it is of the shell: {of_shell}"
        case errno.EACCES:
            why = (
                f"it may not be executed: chmod +x {shlex.quote(program)}, or name its interpreter"
            )
        case errno.ENOEXEC:
            why = "it is no program for this machine, nor a script that begins as #!/bin/sh"
    return f"{program} cannot be run: {why}"


_OF_A_SHELL = set(" \t\n|&;<>$`*?")


class CannotRun(OpcostError):
    """A command that cannot be started, with the exit code that a shell would return."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


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
    with _called(during, window, every_s) as over, _signals_noted() as signals:
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


def ended_by_signal(window: Window, code: int, duration_s: float | None) -> str | None:
    """A message about the exit code of `watch`, if a signal ended the window early."""
    if not code:
        return None
    of = "" if duration_s is None else f" of {seconds(duration_s)}"
    return f"{signal.Signals(code - KILLED).name} ended it after {seconds(window.time_s)}{of}"


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
def _signals_noted() -> Iterator[list[int]]:
    """Yields a list of the received signals, each of which would have ended this process."""
    noted: list[int] = []
    before = _handled(_THAT_END_IT, lambda number, _frame: noted.append(number))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _runs(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def _signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Yields a function that sets the child, which then gets earlier signals, too."""
    children: list[subprocess.Popen[bytes]] = []
    waiting: list[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        if not children:
            waiting.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def name(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for missed in waiting:
            pass_on(missed, None)

    def pass_on_alone(number: int, frame: Any) -> None:
        if not _in_foreground():
            pass_on(number, frame)

    before = _handled(_PASSED_ON, pass_on) | _handled(_OF_A_TERMINAL, pass_on_alone)
    try:
        yield name
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _handled(
    signals: Sequence[signal.Signals], handler: Callable[[int, Any], None]
) -> dict[signal.Signals, Any]:
    """Handle signals, except ignored ones (`nohup`). Returns the previous handlers."""
    return {
        number: signal.signal(number, handler)
        for number in signals
        if signal.getsignal(number) != signal.SIG_IGN
    }
