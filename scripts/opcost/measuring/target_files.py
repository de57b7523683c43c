"""A target as a job knows it before opening the device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from opcost.errors import OpcostError
from opcost.files import content_of
from opcost.results_folder import device_file, sensor_file, settings_file
from opcost.study import Conditions


@dataclass(frozen=True)
class TargetFiles:
    """A target's name and conditions, and the files of its device and of its power sensor."""

    target: str
    conditions: Conditions
    device_file: Path
    sensor_file: Path | None = None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The target of a folder of results. Raises OpcostError for damaged settings."""
        path = settings_file(folder)
        try:
            conditions = Conditions.from_json(content_of(path).decode())
        except (ValueError, KeyError, TypeError) as error:
            raise OpcostError(
                f"{path} is damaged ({type(error).__name__}: {error}): delete it, and run again"
            ) from None
        return cls(folder.parent.name, conditions, device_file(folder), sensor_file(folder))
