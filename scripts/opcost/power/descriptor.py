"""A file descriptor that a measured program may close, and whose number it may reuse."""

import os


class Descriptor:
    """An open file of opcost. Daemons close inherited descriptors."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _identity(number)

    @property
    def is_open(self) -> bool:
        """Whether the number still refers to the same file."""
        return self._file is not None and _identity(self.number) == self._file

    def close(self) -> None:
        """Close it, unless something else has."""
        if self.is_open:
            os.close(self.number)
        self._file = None


def _identity(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
