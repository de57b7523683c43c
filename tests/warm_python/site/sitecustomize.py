"""Imported by every process of Python in a run: it has some forked that would import PyTorch or
pandas, which takes longer than all that the process does.
"""

import os
import sys

ADDRESS = "OPCOST_TESTS_FORKER"


def ask(address, request, streams):
    """Request a process whose file descriptors, by their numbers, are those; a connection to it.

    The connection answers with the process's status. If its other end closes, the process is
    killed.
    """
    import json
    import socket

    message = json.dumps({**request, "numbers": [*streams]}).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    socket.send_fds(connection, [len(message).to_bytes(4)], [*streams.values()])
    connection.sendall(message)
    return connection


def _hand_over(address, extra):
    """Be the process that is forked in place of this one, as far as others can see."""
    streams = {number: number for number in (0, 1, 2, *extra)}
    request = {"command": sys.orig_argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    with ask(address, request, streams) as connection:
        status = int(connection.recv(8) or 1)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


if ADDRESS in os.environ:
    if sys.orig_argv[1:3] == ["-m", "opcost.workers.server"]:
        _hand_over(os.environ[ADDRESS], [int(sys.orig_argv[3])])
    elif "/.snakemake/scripts/" in sys.orig_argv[1]:
        _hand_over(os.environ[ADDRESS], [])
