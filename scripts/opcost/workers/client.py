"""Run a job in this process, or in a warm worker if its command line names a server.

Uses only the standard library, because every job imports it.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable


def run(module: str, main: Callable[[list[str]], None]) -> None:
    """Call `main` of a module with the arguments of the command line.

    After the option `--warm SOCKET`, a warm worker does so, and this process exits with its status;
    if the run's server does not answer, this process calls it.
    """
    words = sys.argv[1:]
    if words[:1] == ["--warm"]:
        _, path, *words = words
        try:
            status = _ask(path, module, words)
        except KeyboardInterrupt:
            status = -signal.SIGINT
        except OSError:
            status = None
        if status is not None:
            sys.exit(status if status >= 0 else 128 - status)
    main(words)


def _ask(path: str, module: str, words: list[str]) -> int | None:
    """The exit status of the job in a worker, negative for a signal; None if the server ended."""
    request = {
        "module": module,
        "words": words,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b" "], [0, 1, 2])
        connection.sendall(f"{json.dumps(request)}\n".encode())
        answer = connection.recv(64)
    if not answer:
        return None
    status = int(answer)
    if status < 0:
        from opcost.workers.isolation import killed_by  # rarely needed

        print(f"opcost: the worker was {killed_by(-status)}", file=sys.stderr)
    return status
