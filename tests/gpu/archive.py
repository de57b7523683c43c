"""What a command measures, in files that travel: each file is appended as soon as it is complete.

python3 -m tests.gpu.archive HOME    puts what came home into this folder
"""

import os
import sys
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

MOST, LARGEST = 8, 16 * 2**20
"""Parts, and bytes of each, that come home."""

_HEADER = 4096


class Archive:
    """An archive in a folder: one compressed part, then parts without an end, so that the last,
    cut off at any moment, holds all files before.
    """

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._largest = folder, largest
        self._held: dict[Path, int] = {}

    def pack(self, paths: Iterable[Path]) -> None:
        """Hold these files, in one part, instead of all before."""
        new, *old = self._folder / "new", *parts_in(self._folder)
        self._held = {}
        with tarfile.open(new, "w:gz") as tar:
            self._append(tar, paths)
        new.replace(self._folder / "archive.0.tar")
        for part in old[1:]:
            part.unlink()

    def add(self, paths: Iterable[Path]) -> None:
        """Append the files that it does not hold as they are now, the oldest first.

        Raises SystemExit if they would need more parts than come home.
        """
        changed = {path: path.stat() for path in paths if path.exists()}
        for path, status in sorted(changed.items(), key=lambda each: each[1].st_mtime_ns):
            if self._held.get(path) == status.st_mtime_ns:
                continue
            parts = parts_in(self._folder)
            if (
                len(parts) < 2
                or parts[-1].stat().st_size + status.st_size + _HEADER > self._largest
            ):
                if len(parts) == MOST:
                    raise SystemExit(f"{self._folder} is full: begin a campaign without --home")
                parts.append(self._folder / f"archive.{len(parts)}.tar")
            with parts[-1].open("ab", buffering=0) as file:
                self._append(tarfile.TarFile(fileobj=file, mode="w"), [path])

    def _append(self, tar: tarfile.TarFile, paths: Iterable[Path]) -> None:
        for path in paths:
            with path.open("rb") as file:  # replaced meanwhile, it is the one that was opened
                tar.addfile(tar.gettarinfo(arcname=str(path), fileobj=file), file)
                self._held[path] = os.fstat(file.fileno()).st_mtime_ns


def parts_in(folder: Path) -> list[Path]:
    """The parts of an archive, in order."""
    return sorted(folder.glob("archive.*.tar"))


def unpack(folder: Path) -> None:
    """Put what came home into this folder: the last version of a file, or a newer row here. What
    cannot be read is named, and what follows in other parts is read.
    """
    if not parts_in(folder):
        raise SystemExit(f"{folder} has no archive.*.tar: copy there what the last command wrote")
    for part in parts_in(folder):
        try:
            with tarfile.open(part) as tar:  # until it was cut off
                for each in tar:
                    here, file = Path(each.name), tar.extractfile(each)
                    content = file.read() if file else b""
                    of_row = here.parts[0] != "campaign"
                    if not of_row or not here.exists() or here.stat().st_mtime < each.mtime:
                        here.parent.mkdir(parents=True, exist_ok=True)
                        here.write_bytes(content)
                        os.utime(here, (each.mtime, each.mtime))
        except (tarfile.ReadError, EOFError, zlib.error) as error:
            print(f"{part} ends early ({error}): what was read of it is kept")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
