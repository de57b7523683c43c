"""The server that forks warm workers: it has imported everything and never touches a device.

Each request is a module whose `main` to call, with arguments, environment and standard streams. A
worker ends with its client, all workers end with their server, and the server ends with its run of
the workflow, or after an idle time.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from opcost import workers
from opcost.arrow import skip_pandas_import
from opcost.workers.child import run_child
from opcost.workers.folder import listen

_FOR_JOBS = (
    "pyarrow.parquet",
    "scipy.special",
    "torchvision",
    "opcost.rows.schemas",
    "opcost.measuring.benchmark",
    "opcost.tuples.extraction",
    "opcost.measuring.job",
    "opcost.measuring.overhead",
    "opcost.planning.progress",
    "opcost.devices.device",
)
_IDLE_S = 600.0
_REQUEST_TIMEOUT_S = 5.0


class Server:
    """Forks a worker for each client that connects to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = listen(path)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._workers = 0

    def serve(self, idle_s: float = _IDLE_S, run: int | None = None) -> None:
        """Serve until there has been no worker for `idle_s`, or the process `run` has ended."""
        self._idle_s = idle_s
        if run is not None:
            end = os.pidfd_open(run)
            self._selector.register(end, selectors.EVENT_READ, partial(self._over, end))
        while events := self._selector.select(None if self._workers else self._idle_s):
            for key, _ in events:
                if key.fd in self._selector.get_map():
                    key.data()
        self._path.unlink(missing_ok=True)

    def _over(self, end: int) -> None:
        """The run has ended: let the last workers finish."""
        self._selector.unregister(end)
        os.close(end)
        self._idle_s = 0.0

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            connection.settimeout(_REQUEST_TIMEOUT_S)
            request, streams = _receive(connection)
            connection.settimeout(None)
        except (OSError, ValueError):  # the client died during its request
            connection.close()
            return
        worker = os.fork()
        if worker == 0:
            self._listener.close()
            self._selector.close()
            run_child(partial(_work, request, streams))
        for stream in streams:
            os.close(stream)
        end = os.pidfd_open(worker)
        self._workers += 1
        for source, event in (
            (end, partial(self._ended, connection, end, worker)),
            (connection, partial(self._abandoned, connection, worker)),
        ):
            self._selector.register(source, selectors.EVENT_READ, event)

    def _abandoned(self, connection: socket.socket, worker: int) -> None:
        """The client has ended: kill its worker."""
        self._selector.unregister(connection)
        os.kill(worker, signal.SIGKILL)

    def _ended(self, connection: socket.socket, end: int, worker: int) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        self._selector.unregister(end)
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        os.close(end)
        self._workers -= 1
        with connection, contextlib.suppress(OSError):  # the client may have ended
            connection.sendall(str(status).encode())


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    message = b""
    while len(message) < int.from_bytes(size):
        part = connection.recv(int.from_bytes(size) - len(message))
        if not part:
            raise ValueError("the request ended early")
        message += part
    return json.loads(message), streams


def _work(request: dict[str, Any], streams: list[int]) -> None:
    """Do the requested job in this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Python's own streams refer to the server's log, which is seekable, unlike a pipe.
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, sys.stderr.encoding, "backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    workers.kind = "warm"
    importlib.import_module(request["module"]).main(request["words"])


def import_everything() -> None:
    """Import slow modules that jobs may need, so that no worker has to."""
    for module in _FOR_JOBS:
        importlib.import_module(module)
    import torch

    skip_pandas_import()
    assert not torch.cuda.is_initialized(), "a forked process could not use the GPU"


def main() -> None:
    """`python -m opcost.workers.server SOCKET FD RUN`: writes a byte to FD once the socket listens;
    RUN is the process of the workflow run.
    """
    path, announce, run = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    import_everything()
    server = Server(path)
    gc.collect()
    gc.freeze()  # permanent objects are not collected, and so not copied in workers
    os.write(announce, b"!")
    os.close(announce)
    server.serve(run=run)


if __name__ == "__main__":
    main()
