"""What was measured, as it lies in the folder of results: by any study, on any target."""

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
    """Files of which a database is made, in the order of their paths.

    `again` are replicates of operators; `overheads` are the replicates of what calls cost, where
    the device's file is one.
    """

    operators: list[Path] = field(default_factory=list)
    again: list[Path] = field(default_factory=list)
    overheads: list[Path] = field(default_factory=list)

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [*self.operators, *self.again, *self.overheads]


def find_measured(results: Path) -> Measured:
    """All measurements in the folder of results."""
    found = Measured()
    for folder in target_folders(results):
        found.operators.extend(measurements(folder, OPERATORS))
        found.again.extend(measurements(folder, OPERATORS, replicate=1))
        if device_file(folder).is_file():
            paths = (overhead_file(folder, replicate) for replicate in REPLICATES)
            found.overheads.extend(path for path in paths if path.is_file())
    return found


@dataclass
class Damages:
    """Files that cannot be read: an error if the study asks for them, else left out and named.

    `asked` are the files that it asks for; None stands for all.
    """

    asked: Collection[Path] | None = None
    left_out: dict[Path, str] = field(default_factory=dict)

    @contextmanager
    def tolerated(self, path: Path) -> Iterator[None]:
        """For the reading of a file: what is wrong with it ends the block."""
        try:
            yield
        except OpcostError as error:
            if self.asked is None or path in self.asked:
                raise
            self.left_out[path] = str(error)
