"""Types of arguments, and options that several commands have."""

import glob
import math
import os
import re
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from opcost.memory import memory_size

_SECONDS = {"": 1, "s": 1, "min": 60, "h": 3600}


INPUT = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SIZES[:TYPE][<HIGH]",
    help="An input, such as 1x3x224x224 or 8x128:int64<30522; with --batch, without the batch "
    "dimension, which is put in front: 3x224x224. Repeat it for each input, in order.",
)
ARGUMENT = click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A keyword argument of the constructor or factory.",
)
CHANNELS_LAST = click.option(
    "--channels-last", is_flag=True, help="Use channels_last memory format."
)
DEVICES = click.option(
    "--device",
    "-d",
    "devices",
    multiple=True,
    help="A device, such as cuda:0 or cpu; repeat it for several. Default: all.",
)


class Model(click.ParamType):
    """A model, with shell completion from torchvision's, the configs of the folder, and files."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that start with the text, or else files."""
        from opcost.costs.model_argument import CONFIGS
        from opcost.models import zoo

        official = [name for models in zoo.official_inputs().values() for name in models]
        known = [*official, *sorted(path.stem for path in CONFIGS.glob("*.yaml"))]
        found = [CompletionItem(name) for name in known if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class Database(click.Path):
    """A path of a database, or the name of reference data, such as h100."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Convert to a path."""
        from opcost.databases.database import REFERENCE

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.name == str(path) and not path.exists():
            return max(REFERENCE.glob(f"{glob.escape(path.name)}_*.parquet"), default=path)
        return path


DATABASES = click.option(
    "--database",
    "-d",
    "databases",
    type=Database(),
    multiple=True,
    help="A database, merged or not, or the reference data by name, such as h100. Default: "
    "results/database.parquet and all reference data.",
)


class Numbers(click.ParamType):
    """Numbers from 1, separated by commas."""

    name = "N,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Convert to integers without duplicates."""
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[1-9]\d{0,6}(,[1-9]\d{0,6})*", value):
            self.fail(f"{value!r}: give numbers from 1, separated by commas, such as 1,8,32")
        return tuple(dict.fromkeys(map(int, value.split(","))))


class MemorySize(click.ParamType):
    """Bytes, with a unit."""

    name = "SIZE"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Convert to bytes."""
        if isinstance(value, int):
            return value
        try:
            return memory_size(value)
        except ValueError as error:
            self.fail(str(error))


class Number(click.FloatRange):
    """A finite number in a range: click accepts nan."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Convert to a float."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r}: give a finite number", param, ctx)
        return found


class LimitOfIncrease(click.ParamType):
    """A limit of a gate: time>5%."""

    name = "QUANTITY>X%"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert to a `Limit`."""
        from opcost.difference.gate import Limit
        from opcost.rows.quantities import ENERGY, TIME

        match = re.fullmatch(r"(time|energy) *(>|<) *(\d{1,4}(?:\.\d{1,4})?) *(%?)", str(value))
        if match is None:
            self.fail(f"{value!r}: write a limit of time or energy, such as time>5%", param, ctx)
        quantity, sign, number, unit = match.groups()
        if sign == "<" or not unit:
            self.fail(f"{value!r}: write {quantity}>{number}%", param, ctx)
        return Limit({"time": TIME, "energy": ENERGY}[quantity], float(number) / 100)


class Duration(click.ParamType):
    """A time in seconds, from `least` to `most`."""

    name = "TIME"

    def __init__(self, least: float = 0.0, most: float = 1e9) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Convert to seconds."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|min|h|)", str(value))
        if match is None or not float(match[1]):
            self.fail(f"{value!r}: give a number and s, min or h, such as 90s, 10min or 2h")
        found = float(match[1]) * _SECONDS[match[2]]
        if not self._least <= found <= self._most:
            self.fail(f"{value!r}: allowed are {self._least:g} s to {self._most:g} s")
        return found
