"""The files and conditions of a target, known before its device is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from opcost.results_folder import device_file, sensor_file
from opcost.study import Conditions


@dataclass(frozen=True)
class TargetFiles:
    """A target's name and conditions, and the files of its device and of its power sensor."""

    target: str
    conditions: Conditions
    device_file: Path
    sensor_file: Path | None = None

    @classmethod
    def of(cls, folder: Path, conditions: str) -> Self:
        """The target of a results folder, with its conditions as JSON."""
        return cls(
            folder.parent.name,
            Conditions.from_json(conditions),
            device_file(folder),
            sensor_file(folder),
        )
