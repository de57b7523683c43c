"""What a command brings home, and the next one goes on from: an archive in parts.

It holds `results/`, `logs/` and the campaign's own record.
"""

import gzip
import io
import tarfile
import zlib
from pathlib import Path

from campaign import RECORD
from opcost.errors import OpcostError

KEPT = ("results", "logs", str(RECORD))
NEEDED = ("results", str(RECORD))
"""What a piece continues from. Copying `campaign/` to a host again deletes the record there."""

PARTS = "archive.tar.gz."
_TABLES = "results/.made"
"""Notes of the files that tables were made of, which are other files once they have travelled."""


def pack(root: Path, there: Path, largest_bytes: int) -> list[Path]:
    """Write what is kept below `root` into parts of at most that size, instead of earlier ones,
    which stay until all are written.
    """
    packed = io.BytesIO()
    # Links travel as what they lead to.
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6, dereference=True) as archive:
        for name in KEPT:
            if (root / name).exists():
                archive.add(root / name, name, filter=_kept)
    data = packed.getbuffer()
    written = []
    for number, start in enumerate(range(0, len(data), largest_bytes)):
        written.append(there / f"new.{PARTS}{number:02d}")
        written[-1].write_bytes(data[start : start + largest_bytes])
    for path in there.glob(f"{PARTS}*"):
        path.unlink()
    return [path.rename(there / path.name.removeprefix("new.")) for path in written]


def unpack(there: Path, root: Path) -> str:
    """Put what a command has brought home below `root`; files that are newer there stay.

    Says how many came and how many stayed. Raises OpcostError if it cannot be read, or if a target
    there is another device.
    """
    parts = sorted(there.glob(f"{PARTS}*"), key=lambda path: (len(path.name), path.name))
    data = b"".join(path.read_bytes() for path in parts)
    if not data:
        raise OpcostError(f"{there} has no {PARTS}00: copy there what the last command wrote")
    with _opened(data, there) as archive:
        for member in archive:
            path = Path(member.name)
            ours = ".." not in path.parts and any(path.is_relative_to(each) for each in KEPT)
            if not ours or not (member.isfile() or member.isdir()):
                raise OpcostError(
                    f"{there}/{PARTS}* hold {member.name}, which no campaign writes: copy there "
                    "what the last command wrote, and nothing else"
                )
            if path.name == "device.json" and (root / member.name).exists():
                packed = archive.extractfile(member)
                if packed is None or packed.read() != (root / member.name).read_bytes():
                    raise OpcostError(
                        f"{root / member.name} is of another device or study than {there}. Rename "
                        f"{root / 'results'}, or unpack in another copy of the repository"
                    )
        brought = [each for each in archive if not _is_newer(root / each.name, each)]
        try:
            archive.extractall(root, brought, filter="data")
        except tarfile.TarError as error:
            raise OpcostError(
                f"{there} cannot be unpacked in {root.resolve()}: {error}. If a folder there is a "
                "link, unpack in another copy of the repository"
            ) from error
        came = sum(each.isfile() for each in brought)
        stayed = len(archive.getmembers()) - len(brought)
    return f"{came} files unpacked, {stayed} newer ones left as they are"


def _opened(data: bytes, there: Path) -> tarfile.TarFile:
    """The archive, all of which could be read."""
    try:
        archive = tarfile.TarFile(fileobj=io.BytesIO(gzip.decompress(data)))
        archive.getmembers()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise OpcostError(
            f"{there}/{PARTS}* are not a complete archive ({error}): delete them, and copy "
            "there all that the last command wrote"
        ) from error
    return archive


def _is_newer(there: Path, member: tarfile.TarInfo) -> bool:
    return member.isfile() and there.is_file() and there.stat().st_mtime > member.mtime


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name == _TABLES else member
