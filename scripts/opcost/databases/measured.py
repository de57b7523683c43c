"""What was measured, as it lies in the folder of results: by any study, on any target."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opcost.errors import OpcostError


@dataclass(frozen=True)
class Measured:
    """Files of which a database is made, in the order of their paths.

    `operators`: `TARGET/operators/TUPLE_ID.parquet`; `again`: `TARGET/again/TUPLE_ID.parquet`;
    `overheads`: `TARGET/device.json` and `TARGET/overhead_again.json`.
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
    for target in sorted(results.glob("*/")):
        found.operators.extend(sorted(target.glob("operators/[!.]*.parquet")))
        found.again.extend(sorted(target.glob("again/[!.]*.parquet")))
        names = ("device.json", "overhead_again.json")
        if (target / names[0]).is_file():
            found.overheads.extend(path for name in names if (path := target / name).is_file())
    return found


def target_of(path: Path) -> str:
    """The target of a row's file: of `TARGET/operators/TUPLE_ID.parquet`, for example."""
    return path.parent.parent.name


def place(path: Path) -> tuple[str, str]:
    """The target and the tuple id of a measurement, by its path."""
    return target_of(path), path.stem


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
