"""The files of all measurements in a results folder, of any study and target."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opcost.errors import OpcostError
from opcost.results_folder import (
    OPERATORS,
    REPLICATES,
    device_file,
    measurements,
    overhead_file,
    target_folders,
)


@dataclass(frozen=True)
class Measured:
    """The files that a database is made from, in the order of their paths.

    `replicates` are those of operators; `overheads` are the replicates of call overhead, of which
    the device's file is the first.
    """

    operators: list[Path] = field(default_factory=list)
    replicates: list[Path] = field(default_factory=list)
    overheads: list[Path] = field(default_factory=list)

    @property
    def files(self) -> list[Path]:
        """All files."""
        return [*self.operators, *self.replicates, *self.overheads]


def find_measured(results: Path) -> Measured:
    """All measurements in a results folder."""
    found = Measured()
    for folder in target_folders(results):
        found.operators.extend(measurements(folder, OPERATORS))
        found.replicates.extend(measurements(folder, OPERATORS, replicate=1))
        if device_file(folder).is_file():
            paths = (overhead_file(folder, replicate) for replicate in REPLICATES)
            found.overheads.extend(path for path in paths if path.is_file())
    return found


@dataclass
class Damages:
    """Unreadable files: an error if they belong to the study, otherwise skipped and listed.

    `asked` are the study's files; None stands for all files.
    """

    asked: Collection[Path] | None = None
    left_out: dict[Path, str] = field(default_factory=dict)

    @contextmanager
    def tolerated(self, path: Path) -> Iterator[None]:
        """Read a file in this block; an OpcostError of a tolerated file ends the block."""
        try:
            yield
        except OpcostError as error:
            if self.asked is None or path in self.asked:
                raise
            self.left_out[path] = str(error)
