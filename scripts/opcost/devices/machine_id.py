"""Hashes that identify this machine and its devices: rows distinguish them without naming them."""

import hashlib
from pathlib import Path

_LENGTH = 16
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_ROOTS = ("overlay", "fuse.fuse-overlayfs", "aufs")


def machine_id_hash() -> str | None:
    """A hash that is equal for all users and after each boot; None without an identifier.

    The identifier is /etc/machine-id, created when a system is installed; in a container, where it
    belongs to the image, it is the firmware's UUID, which only root can read. Copied virtual
    machines may share a machine-id: different hashes mean different systems, but not conversely.
    """
    firmware = Path("/sys/class/dmi/id/product_uuid")
    identity = _text(firmware if _in_container() else Path("/etc/machine-id"))
    if not identity or identity == "uninitialized":
        return None
    return hashlib.sha256(identity.lower().encode()).hexdigest()[:_LENGTH]


def hashed_uuid(uuid: str) -> str:
    """A hash of a device's UUID."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:_LENGTH]


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
