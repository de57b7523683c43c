"""Runs of Snakemake, forked from a process that has imported it: most of a small run are imports.

That process has not imported opcost: each run finds the package of its own folder.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

_PRELOADED = ("snakemake.cli", "jsonschema.validators", "pyarrow.parquet")


def run(arguments, folder: Path, environment, timeout_s=300) -> subprocess.CompletedProcess:
    """What `python -m snakemake` with these arguments does and prints; killed after that time."""
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    request = json.dumps([str(folder), dict(environment), arguments]).encode()
    server = _server()
    socket.send_fds(server, [len(request).to_bytes(4)], [its_out, its_err])
    server.sendall(request)
    os.close(its_out)
    os.close(its_err)
    process = int.from_bytes(server.recv(4))
    killer = threading.Timer(timeout_s, os.kill, (process, signal.SIGKILL))
    killer.start()
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(_read, (out, err)))
    code = int.from_bytes(server.recv(4), signed=True)
    killer.cancel()
    return subprocess.CompletedProcess(arguments, code, *texts)


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as stream:
        return stream.read()


@cache
def _server() -> socket.socket:
    """One for this process, on a core of its own if this is a worker of pytest-xdist.

    Otherwise, the runs of all workers would measure on one core, and do all else on another.
    """
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", __file__, str(number)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[number], env=environment)
    theirs.close()
    return ours


def _serve(connection: socket.socket) -> None:
    """Until whoever asks has ended."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        cores = sorted(os.sched_getaffinity(0))
        worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})
    for name in _PRELOADED:
        importlib.import_module(name)
    while True:
        size, streams, *_ = socket.recv_fds(connection, 4, 2)
        if not size:
            return
        request = json.loads(connection.recv(int.from_bytes(size), socket.MSG_WAITALL))
        process = os.fork()
        if process == 0:
            connection.close()
            return _be_snakemake(*request, *streams)
        for stream in streams:
            os.close(stream)
        connection.sendall(process.to_bytes(4))
        _, status = os.waitpid(process, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def _be_snakemake(folder: str, environment, arguments, out: int, err: int) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[1:] = arguments
    sys.orig_argv[1:] = ["-m", "snakemake", *arguments]
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
