"""The server that forks warm workers: it has imported everything and never touches a device.

A run has one server, which its first job starts. Each request is a module whose `main` to call,
with arguments, environment and standard streams. A worker ends with its client, and all workers end
with their server, which ends with its run.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

from opcost import workers
from opcost.arrow import skip_pandas_import
from opcost.workers.isolation import run_child

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
_OF_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Libraries read these when they are imported: as Snakemake sets them for a job of one thread. A
measurement sets the threads of its target itself."""
_STARTS = 5
_LONGEST_FOLDER = 70
"""The path of a socket has at most 107 bytes."""
_REQUEST_TIMEOUT_S = 5.0


def offer_workers() -> str:
    """The path of a socket for the jobs of this run, in a folder that only this user can enter.

    The first job that connects starts the server.
    """
    usual = tempfile.gettempdir()
    where = usual if len(os.fsencode(usual)) < _LONGEST_FOLDER else "/tmp"
    folder = tempfile.mkdtemp(prefix="opcost-workers-", dir=where)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    threading.Thread(target=_start_when_needed, args=[listener], daemon=True).start()
    return path


def _start_when_needed(listener: socket.socket) -> None:
    """Start the server for the first job, and again for the next one if the server was killed."""
    number, run = listener.fileno(), os.getpid()
    with listener:  # no job waits for a server that cannot start
        for _ in range(_STARTS):
            select.select([listener], [], [])
            server = subprocess.Popen(
                [sys.executable, "-m", "opcost.workers.server", str(number), str(run)],
                env=os.environ | _OF_ONE_THREAD,
                cwd="/",  # imports nothing of the current folder
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C ends the jobs, and the end of the run the server
            )
            if server.wait() >= 0:
                return


class Server:
    """Forks a worker for each client that connects."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._workers = 0
        self._run_ended = False

    def serve(self, run: int) -> None:
        """Serve until the process `run` has ended, and then the last worker."""
        end = os.pidfd_open(run)
        self._selector.register(end, selectors.EVENT_READ, partial(self._finish, end))
        while self._workers or not self._run_ended:
            for key, _ in self._selector.select():
                if key.fd in self._selector.get_map():
                    key.data()

    def _finish(self, end: int) -> None:
        self._selector.unregister(end)
        self._run_ended = True

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
    """A request, which is a line of JSON, and its standard streams."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as lines:
        return json.loads(lines.readline()), streams


def _work(request: dict[str, Any], streams: list[int]) -> None:
    """Do the requested job in this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Python's own streams refer to the server's, whose buffering may differ.
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
    """`python -m opcost.workers.server LISTENER RUN`: a socket, and the process of the run."""
    listener, run = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    import_everything()
    gc.collect()
    gc.freeze()  # permanent objects are not collected, and so not copied in workers
    try:
        Server(listener).serve(run)
    finally:
        shutil.rmtree(Path(listener.getsockname()).parent, ignore_errors=True)
    os._exit(0)  # Triton prints what it still holds when Python ends


if __name__ == "__main__":
    main()
