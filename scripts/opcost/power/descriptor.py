"""A descriptor in a program that may close it, and then open another file by its number."""

import os


class Descriptor:
    """An open file of opcost. Programs that become daemons close all that they do not know."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _identity(number)

    @property
    def is_open(self) -> bool:
        """Whether it is still that of the same file."""
        return self._file is not None and _identity(self.number) == self._file

    def close(self) -> None:
        """Close it, unless somebody else has."""
        if self.is_open:
            os.close(self.number)
        self._file = None


def _identity(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
