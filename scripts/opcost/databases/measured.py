"""The files of all measurements in a results folder, of any study and target."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    device_file,
    folder_of,
    overhead_files,
    runs_by_subject,
    target_folders,
)
from opcost.rows.runs import is_copy
from opcost.text import some

_NAMED = 10


@dataclass(frozen=True)
class Measured:
    """The files that a database is made from.

    `operators` are the runs of each tuple in the order of rounds, `models` the end-to-end runs of
    each model, `overheads` the files with call overhead. The name of a target is its name in the
    study for `shown` folders; for others, the folder's name follows.
    """

    operators: list[list[Path]] = field(default_factory=list)
    models: list[list[Path]] = field(default_factory=list)
    overheads: list[Path] = field(default_factory=list)
    shown: Collection[Path] = ()

    @property
    def files(self) -> list[Path]:
        """All files."""
        measured = chain.from_iterable([*self.operators, *self.models])
        return [*measured, *self.overheads]

    def target_in(self, folder: Path) -> str:
        """The name of the target of a folder."""
        target = folder.parent.name
        return target if folder in self.shown else f"{target}/{folder.name}"


def find_measured(results: Path, shown: Collection[Path] | None = None) -> Measured:
    """All measurements in a results folder. `shown` is by default the folder of each target whose
    device was identified last.
    """
    folders = target_folders(results)
    found = Measured(shown=_newest(folders) if shown is None else shown)
    for folder in sorted(folders, key=lambda each: found.target_in(each)):
        found.operators.extend(runs_by_subject(folder, OPERATORS).values())
        found.models.extend(runs_by_subject(folder, MODELS).values())
        if device_file(folder).is_file():
            found.overheads.extend(overhead_files(folder))
    return found


def _newest(folders: Iterable[Path]) -> list[Path]:
    def identified(folder: Path) -> float:
        return device_file(folder).stat().st_mtime if device_file(folder).is_file() else 0.0

    return list({each.parent: each for each in sorted(folders, key=identified)}.values())


@dataclass
class Damages:
    """Files that cannot be read: an error if the study asks for them, else left out and named.

    `asked` are the files of the study; None stands for all. `copies` are files with the content of
    a file of another round.
    """

    asked: Collection[Path] | None = None
    found: dict[Path, str] = field(default_factory=dict)
    copies: list[Path] = field(default_factory=list)

    def once(self, rows: Mapping[Path, dict[str, Any]]) -> dict[Path, dict[str, Any]]:
        """The runs of a subject by file, without copies of other files."""
        left_out = [
            path for path, row in zip(rows, is_copy(list(rows.values())), strict=True) if row
        ]
        self.copies += left_out
        return {path: row for path, row in rows.items() if path not in left_out}

    @contextmanager
    def tolerated(self, path: Path) -> Iterator[None]:
        """Collect an OpcostError from this block, which reads `path`, instead of raising it."""
        try:
            yield
        except OpcostError as error:
            self.found[path] = str(error)

    def remedy(self, path: Path) -> str:
        """The remedy for a damaged file."""
        if self._is_asked(path):
            return f"delete {path} and run again to measure it again"
        target = folder_of(path).parent.name
        return f"delete it, or run a study with target {target!r} to measure it again"

    def left_out(self) -> list[str]:
        """Messages about damaged files that the study does not ask for, and about copies.

        Raises OpcostError with the damaged files that it asks for, if any.
        """
        texts = (text for path, text in self.found.items() if self._is_asked(path))
        wanted = list(dict.fromkeys(texts))
        if len(wanted) > 1:
            more = [f"and {len(wanted) - _NAMED} more"] if len(wanted) > _NAMED else []
            listed = "\n  ".join([*wanted[:_NAMED], *more])
            raise OpcostError(f"{len(wanted)} files cannot be used:\n  {listed}")
        if wanted:
            raise OpcostError(wanted[0])
        copies = list(map(str, dict.fromkeys(self.copies)))
        text = (
            f"copies of files of other rounds, which count once: {some(copies, _NAMED)}. Delete "
            "them, and run again to measure these rounds"
        )
        return [*self.found.values(), *([text] if copies else [])]

    def _is_asked(self, path: Path) -> bool:
        return self.asked is None or path in self.asked
