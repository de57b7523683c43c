"""`python forker.py LISTENER LIFE MODULE ...`: imports the modules, and forks on request.

LISTENER is the socket of the requests (site/sitecustomize.py); this process ends when the other end
of the pipe LIFE is closed.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from functools import partial
from typing import NoReturn

_HIGH = 200
"""No file descriptor that is asked for has such a number."""


def serve(listener: socket.socket, life: int) -> None:
    """Fork on request until the other end of `life` is closed."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(life, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == life:
                return
            if key.fd not in selector.get_map():
                continue
            if key.fileobj is listener:
                connection, _ = listener.accept()
                request, streams = _receive(connection)
                process = os.fork()
                if process == 0:
                    for opened in (connection, listener, selector):
                        opened.close()
                    _end(partial(_be, request, streams))
                for stream in streams:
                    os.close(stream)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, connection)
                selector.register(connection, selectors.EVENT_READ, process)
            elif isinstance(key.data, int):
                selector.unregister(key.fileobj)
                os.kill(key.data, signal.SIGKILL)
            else:
                _ended(selector, key)


def _receive(connection: socket.socket):
    size, streams, *_ = socket.recv_fds(connection, 4, 8)
    message = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
    return json.loads(message), streams


def _ended(selector, key) -> None:
    """Tell who asked for a process that it has ended."""
    connection = key.data
    ended = os.waitid(os.P_PIDFD, key.fd, os.WEXITED)
    status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    selector.unregister(key.fd)
    os.close(key.fd)
    if connection.fileno() in selector.get_map():
        selector.unregister(connection)
    with connection:
        try:
            connection.sendall(str(status).encode())
        except OSError:  # nobody waits for it
            return


def _end(work) -> NoReturn:
    """Do the work and end as Python does, but without half a second of taking PyTorch apart."""
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _be(request, streams) -> None:
    """Do what a process of Python does that was started by the request's command."""
    moved = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, _HIGH) for stream in streams]
    for stream in streams:
        os.close(stream)
    for stream, number in zip(moved, request["numbers"], strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.orig_argv[:] = request["command"]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first, *rest = request["command"][1:]
    if first == "-m":
        sys.path[:0] = [request["folder"], *filter(None, paths)]
        sys.argv[:] = rest
        if rest[0] == "opcost.workers.server":
            _shorten_overhead()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[:0] = [os.path.dirname(first), *filter(None, paths)]
        sys.argv[:] = [first, *rest]
        if first.endswith("report.py") and "OPCOST_TESTS_CHARTS" not in os.environ:
            _leave_out_the_charts()
        runpy.run_path(first, run_name="__main__")


def _shorten_overhead() -> None:
    """For jobs that measure what calls cost: at full length, it takes half a minute."""
    from opcost.devices import disturbance
    from opcost.measuring import overhead, target_identity

    disturbance.find_baseline_s.__defaults__ = (0.5,)
    overhead._REPETITIONS = 5
    target_identity._PROCESSES = 3


def _leave_out_the_charts() -> None:
    """The report reads all results and writes empty files: drawing takes longer than a study."""
    from opcost.report import page, picture

    page.write_report = lambda _, path: path.touch()
    picture.draw = lambda path, *_: path.touch()


def main() -> None:
    listener, life, *modules = sys.argv[1:]
    if "PYTEST_XDIST_WORKER" in os.environ:
        cores = sorted(os.sched_getaffinity(0))
        worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # nothing of it is copied because a forked process looks for garbage
    serve(socket.socket(fileno=int(listener)), int(life))


if __name__ == "__main__":
    main()
