"""A target as a job knows it before opening the device."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from opcost.study import Conditions


@dataclass(frozen=True)
class TargetFiles:
    """A target's name and conditions, and the files of its device and of its power sensor."""

    target: str
    conditions: Conditions
    device_file: Path
    sensor_file: Path | None = None

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None:
        """Add the options of each measurement script."""
        parser.add_argument("--target", required=True)
        parser.add_argument("--device", type=Path, required=True)
        parser.add_argument("--sensor", type=Path)
        parser.add_argument("--conditions", type=Conditions.from_json, required=True)
        parser.add_argument("--output", type=Path, required=True)

    @classmethod
    def from_arguments(cls, arguments: Namespace) -> Self:
        """The target that the parsed options name."""
        return cls(arguments.target, arguments.conditions, arguments.device, arguments.sensor)
