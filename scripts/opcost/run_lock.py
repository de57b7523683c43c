"""One run at a time in a folder, by a lock that the kernel releases when its holder ends.

Snakemake's own lock outlives a kill, after which the next run needs --unlock: the profiles turn it
off. Anybody who can write to the folder can replace the lock file: links are not followed, and its
content is shown only if it has opcost's form.
"""

import fcntl
import os
import re
import socket
import stat
import sys
import time
from pathlib import Path

from opcost.errors import OpcostError

LOCK = Path(".snakemake/opcost.lock")

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
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
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor) or "another process"
            os.close(descriptor)
            raise OpcostError(
                f"this folder is in use by {holder}. Wait for it or end it, then run again. A dry "
                "run (snakemake --dry-run) works meanwhile"
            ) from None
        except OSError as error:  # some network file systems
            print(
                f"opcost: {self._path} cannot be locked ({error.strerror}): do not start a second "
                "run in this folder meanwhile",
                file=sys.stderr,
            )
        killed = _holder(descriptor)
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
        try:
            descriptor = os.open(self._path, _FLAGS, 0o666)
        except OSError as error:
            raise self._unusable(os.strerror(error.errno or 0)) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._unusable("a pipe or a device, not a file")
        return descriptor

    def _unusable(self, reason: str) -> OpcostError:
        return OpcostError(f"{self._path} cannot be used ({reason}): delete it and run again")


def _holder(descriptor: int) -> str | None:
    text = os.pread(descriptor, _SHOWN, 0).decode(errors="replace")
    return text if re.fullmatch(r"process \d+ [ -~]*", text) else None
