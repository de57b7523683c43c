"""Which machine this is, as a hash: records tell machines apart, and name none."""

import hashlib
from pathlib import Path

_LENGTH = 16
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_ROOTS = ("overlay", "fuse.fuse-overlayfs", "aufs")


def machine_id_hash() -> str | None:
    """The same for all users of a machine and after each start of it; None where nothing tells.

    It is made from /etc/machine-id, which a system gets when it is installed. In a container that
    file is the image's: all machines that run the image share it, and a new image changes it.
    There the firmware's UUID tells, which only root may read. Virtual machines that were copied
    without a new machine-id share theirs: two hashes mean two systems, one hash may mean two.
    """
    firmware = Path("/sys/class/dmi/id/product_uuid")
    identity = _text(firmware if _in_container() else Path("/etc/machine-id"))
    if not identity or identity == "uninitialized":
        return None
    return hashlib.sha256(identity.lower().encode()).hexdigest()[:_LENGTH]


def _in_container() -> bool:
    if any(mark.exists() for mark in _CONTAINER_MARKS):
        return True
    mounts = (line.split() for line in _text(Path("/proc/self/mounts")).splitlines())
    return any(mount[1:2] == ["/"] and mount[2] in _CONTAINER_ROOTS for mount in mounts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
