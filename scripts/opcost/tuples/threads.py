"""Notice operators that a model executes in other threads: a recorder sees only its own thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from opcost.models.operator_calls import OperatorCalls

_recorded: list[list[str]] = []
"""The operators of other threads, for each trace in progress."""


class _Notice(OperatorCalls):
    """Adds the names of operators to the traces in progress."""

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for names in _recorded:
            names.append(str(func))
        return func(*args, **kwargs)


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def threads_noticed() -> Iterator[set[threading.Thread]]:
    """Record the operators of threads that this one starts in this block, and of threads that these
    start. Yields the threads.

    Only one thread at a time runs a model in such a block, which patches the whole process.
    """
    with _ONE_AT_A_TIME:
        ours, started = threading.current_thread(), set[threading.Thread]()
        start = threading.Thread.start

        def start_noticed(thread: threading.Thread) -> None:
            if threading.current_thread() in {ours, *started}:
                started.add(thread)
                run = thread.run

                def run_noticed() -> None:
                    with _Notice():
                        run()

                thread.run = run_noticed  # type: ignore[method-assign]
            start(thread)

        with mock.patch.object(threading.Thread, "start", start_noticed):
            yield started


@contextmanager
def operators_of_threads() -> Iterator[list[str]]:
    """Yields a list of the operators that other threads execute during this block."""
    names: list[str] = []
    _recorded.append(names)
    try:
        with threads_noticed():
            yield names
    finally:
        _recorded.remove(names)
