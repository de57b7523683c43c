"""One run at a time in a results folder, by a lock that ends with its holder.

Snakemake's own lock survives a kill, after which the next run needs --unlock: the profiles turn it
off.
"""

import fcntl
import os
import re
import socket
import sys
import time
from pathlib import Path

from opcost.errors import OpcostError
from opcost.results_folder import RESULTS

LOCK = RESULTS / ".opcost.lock"
"""In the results folder itself, which the folders of several runs may link to."""

_SHOWN = 200


class RunLock:
    """The lock of the current folder. The file names its holder, and is empty once released."""

    def __init__(self, path: Path = LOCK) -> None:
        self._path = path
        self._descriptor: int | None = None

    def hold(self, purpose: str) -> str | None:
        """Take the lock. Returns the last holder if that process was killed.

        Raises OpcostError, which names the holder, if another process holds it.
        """
        descriptor = self._open()
        killed = None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            killed = _holder(descriptor)
        except BlockingIOError:
            holder = _holder(descriptor) or "another process"
            os.close(descriptor)
            raise OpcostError(
                f"this folder is in use by {holder}. Wait for it or end it, then run again. A dry "
                "run (snakemake --dry-run) works meanwhile"
            ) from None
        except OSError as error:  # some network file systems; the holder may be alive
            print(
                f"opcost: {self._path} cannot be locked ({error.strerror}): do not start a second "
                "run in this folder meanwhile",
                file=sys.stderr,
            )
        text = f"process {os.getpid()} on {socket.gethostname()} ({purpose}, since {time.ctime()})"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        self._descriptor = descriptor
        return killed

    def close(self) -> None:
        """Release the lock if it is held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        self._path.parent.mkdir(exist_ok=True)
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise OpcostError(f"{self._path} is not a file: move it away, and run again")
        mask = os.umask(0)  # other users of the folder must be able to lock the file
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OpcostError(
                f"{self._path} cannot be opened ({error.strerror}): a run of another user may be "
                "using this folder. Ask the file's owner whether it runs, or use a folder of your "
                "own"
            ) from None
        finally:
            os.umask(mask)


def _holder(descriptor: int) -> str | None:
    text = os.pread(descriptor, _SHOWN, 0).decode(errors="replace")
    return text if re.fullmatch(r"process \d+ [ -~]*", text) else None
