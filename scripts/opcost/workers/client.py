"""Run a job in this process or in a warm worker, as its command line says.

Uses only the standard library, because every job imports it.
"""

import hashlib
import json
import os
import select
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from opcost.workers.folder import connect, own_folder, starting

_PACKAGE = Path(__file__).resolve().parents[1]

_WITHOUT_EFFECT = {"_", "PWD", "OLDPWD", "SHLVL", "_RJEM_MALLOC_CONF"}
"""Set by shells for each command, or by polars on import, which Snakemake may do."""

_ATTEMPTS = 2
_END_TIMEOUT_S = 10.0
_CREDENTIALS = "3i"  # struct ucred, unix(7): process, user, group


class Lost(Exception):
    """The server ended before it answered."""


def run(module: str, main: Callable[[list[str]], None]) -> None:
    """Call `main` of a module with the arguments of the command line, here, or after the option
    `--warm PROCESS` in a warm worker, whose server ends when that process does.

    With a warm worker, exits with its status, or with 1 and a message if none is available.
    """
    words = sys.argv[1:]
    if words[:1] != ["--warm"]:
        main(words)
        return
    for _ in range(_ATTEMPTS):
        try:
            sys.exit(_ask(module, words[1], words[2:]))
        except (Lost, OSError) as lost:
            reason = str(lost)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)
    print(
        f"opcost: no warm worker: {reason}. To run without warm workers, set `workers: plain`",
        file=sys.stderr,
    )
    sys.exit(1)


def _ask(module: str, life: str, words: list[str]) -> int:
    """The exit status of the job in a worker. Raises Lost."""
    request = {
        "module": module,
        "words": words,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }
    message = json.dumps(request).encode()
    with _connect(life) as connection:
        try:
            socket.send_fds(connection, [len(message).to_bytes(4)], [0, 1, 2])
            connection.sendall(message)
            answer = connection.recv(64)
            if not answer:
                raise ConnectionError("its server was killed")
        except OSError as error:
            _await_end_of_server(connection)
            raise Lost(str(error)) from error
    status = int(answer)
    if status < 0:
        from opcost.workers.isolation import killed_by  # rarely needed

        print(f"opcost: the worker was {killed_by(-status)}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _await_end_of_server(connection: socket.socket) -> None:
    """Wait for the server's last thread: until then, a killed process listens without answering."""
    size = struct.calcsize(_CREDENTIALS)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, _, _ = struct.unpack(_CREDENTIALS, credentials)
    try:
        end = os.pidfd_open(process)
    except ProcessLookupError:
        return
    select.select([end], [], [], _END_TIMEOUT_S)
    os.close(end)


def _connect(life: str) -> socket.socket:
    """A connection to the server of this kind; starts it if there is none. Raises Lost."""
    path = own_folder() / f"{_kind(life)}.socket"
    connection = socket.socket(socket.AF_UNIX)
    if connect(connection, path):
        return connection
    with starting(path.parent):
        if not connect(connection, path):  # another client may have started it
            _start_server(path, life)
            connect(connection, path)
    return connection


def _start_server(path: Path, life: str) -> None:
    import subprocess  # one job in many starts a server

    ready, announce = os.pipe()
    with tempfile.TemporaryFile() as output:
        subprocess.Popen(
            [sys.executable, "-m", "opcost.workers.server", str(path), str(announce), life],
            env=os.environ | {"PYTHONPATH": _python_path()},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[announce],
            start_new_session=True,  # Ctrl-C ends the jobs; an idle server ends itself
        )
        os.close(announce)
        with os.fdopen(ready, "rb") as pipe:
            if not pipe.read():
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise Lost(f"its server did not start: {said}")


def _python_path() -> str:
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_PACKAGE.parent)]))


def _kind(life: str) -> str:
    """A digest of the interpreter, its packages, this code, the environment variables, and the
    process that limits the server's life.
    """
    code = [(str(path), path.stat().st_mtime_ns) for path in sorted(_PACKAGE.rglob("*.py"))]
    packages = Path(sysconfig.get_path("purelib"))
    environment = {key: os.environ[key] for key in sorted(os.environ.keys() - _WITHOUT_EFFECT)}
    kind = [sys.executable, sys.version, packages.stat().st_mtime_ns, code, environment, life]
    return hashlib.sha256(json.dumps(kind).encode()).hexdigest()[:16]
