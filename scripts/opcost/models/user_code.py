"""Run user code, and report how it ends and in which line."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager

from opcost.errors import OpcostError
from opcost.workers import origin
from opcost.workers.isolation import end_copy

_BUSY_SHARE = 0.1
_OBSERVED_S = 0.05


class Ended(Exception):
    """The user's code tried to end the process."""


@contextmanager
def user_code() -> Iterator[None]:
    """Run user code in this block: sys.exit does not end this process, and every error is an
    Exception.

    If the code forks this process, the copy ends at the end of this block.
    """
    process = os.getpid()
    try:
        yield
    except SystemExit as stop:
        # argparse exits with 2 if an argument is missing.
        why = ": it gets no arguments; read them where the file runs as a script"
        code = "" if stop.code is None else repr(stop.code)
        raise Ended(f"it called sys.exit({code}){why if stop.code == 2 else ''}") from stop
    except KeyboardInterrupt as interrupt:
        # If this process ignores Ctrl-C, the code itself raised it.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise
        raise Ended("it raised KeyboardInterrupt") from interrupt
    except Exception:
        raise
    except BaseException as other:  # GeneratorExit, or a class of the user
        raise Ended(f"it raised {type(other).__name__}") from other
    finally:
        if os.getpid() != process:
            end_copy()


@contextmanager
def errors_of(model: str) -> Iterator[None]:
    """Begin the messages of opcost's errors in this block with the model."""
    try:
        yield
    except OpcostError as error:
        prefix = f"model {model}: "
        if str(error).startswith(prefix):
            raise
        raise type(error)(f"{prefix}{error}") from error.__cause__ or error


def reason(error: BaseException) -> str:
    """The message of an error in user code after its line; opcost's own messages contain it."""
    text = message(error)
    return text if isinstance(error, OpcostError) else located(text, error)


def located(text: str, error: BaseException) -> str:
    """`FILE:LINE in FUNCTION: text`, or only the text if no line of user code raised the error."""
    line = origin.of_error(error)
    return f"{line}: {text}" if line else text


def message(error: BaseException) -> str:
    """The message of an error, or its class if the message is empty."""
    if isinstance(error, MemoryError):
        return f"out of memory {error}".strip()
    try:
        # The text of a SyntaxError repeats the line.
        text = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    except Exception:  # a user's exception class may fail here
        text = ""
    if isinstance(error, KeyError):  # its text is only the key
        return f"KeyError: {text}"
    if text.startswith("CUDA error:"):  # PyTorch's advice follows: a variable that opcost refuses
        text = text.splitlines()[0]
    return text or type(error).__name__


def check_threads(started: Set[threading.Thread], model: str) -> None:
    """Raise OpcostError if a thread of a model's code computes: it would be measured, too."""
    others = [thread for thread in started if thread.is_alive()]
    if not others:
        return
    before = {thread: _cpu_s(thread) for thread in others}
    time.sleep(_OBSERVED_S)
    for thread in others:
        if thread.is_alive() and _cpu_s(thread) - before[thread] > _BUSY_SHARE * _OBSERVED_S:
            raise OpcostError(
                f"model {model}: its code left a thread running that computes ({thread.name}): it "
                "would be measured together with the model. End the thread before the factory or "
                "forward returns"
            )


def _cpu_s(thread: threading.Thread) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
