"""The private folder with the sockets of a user's servers.

Uses only the standard library, because every job imports it.
"""

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path


class NotOurs(OSError):
    """The folder cannot be trusted."""


def own_folder() -> Path:
    """This user's folder for sockets, in the temporary folder. Raises NotOurs."""
    folder = Path(tempfile.gettempdir()) / f"opcost-workers-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        reason = "is a link or a file"
    elif found.st_uid != os.getuid():
        reason = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        reason = f"is open to others ({stat.filemode(found.st_mode)})"
    else:
        return folder
    raise NotOurs(f"{folder} {reason}, and must be this user's alone: delete it, or set TMPDIR")


def connect(connection: socket.socket, path: Path) -> bool:
    """Connect to the server at `path`; False if none is listening."""
    try:
        with chdir(path.parent):  # a path to a socket has at most 107 bytes
            connection.connect(path.name)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, replacing an earlier socket."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with chdir(path.parent):
        listener.bind(path.name)
    listener.listen(64)
    return listener


@contextmanager
def starting(folder: Path) -> Iterator[None]:
    """Lock the folder for starting a server, after removing leftovers of dead servers."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _remove_leftovers(folder)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob("*.socket"):
        with socket.socket(socket.AF_UNIX) as connection:
            if not connect(connection, path):
                path.unlink(missing_ok=True)
