"""One measurement at a time on a device, whoever asks."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opcost.errors import OpcostError


@contextmanager
def exclusive(device_key: str, purpose: str, timeout_s: float = 3600) -> Iterator[None]:
    """Hold the host-wide lock of a device; two Snakemake processes know nothing of each other.

    The kernel frees the lock with the process that holds it. While waiting, says for whom. Raises
    OpcostError after `timeout_s`.
    """
    path = Path(tempfile.gettempdir()) / f"opcost-{device_key}.lock"
    descriptor = _open(path)
    try:
        _wait(descriptor, path, timeout_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, {purpose}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:  # opening another user's file with O_CREAT fails in a sticky folder
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor


def _wait(descriptor: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(descriptor, 500, 0).decode(errors="replace") or "another process"
        if time.monotonic() > deadline:
            raise OpcostError(
                f"the device has been held for {timeout_s:.0f} s by {holder} (lock {path}): "
                "wait for it or end it, then run again"
            )
        if not said:
            print(f"waiting for the device, held by {holder}", flush=True)
            said = True
        time.sleep(0.2)
