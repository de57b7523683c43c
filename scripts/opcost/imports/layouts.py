"""Layouts of published records (docs/how_to/databases.md).

A record is a module of torch.nn, as text, on float32 inputs of some shapes.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from opcost.errors import OpcostError
from opcost.files import lines_of

Shape = tuple[int, ...]


class Undetermined(Exception):
    """A record does not determine an operator tuple; the text gives the reason."""


class Record(NamedTuple):
    """A record at `line` (file:line), with its values for columns of the database.

    `device` is the published name of device or run. `module` returns the text of the module and the
    shapes of its inputs, or raises Undetermined.
    """

    line: str
    device: str
    columns: Mapping[str, Any]
    module: Callable[[], tuple[str, *tuple[Shape, ...]]]


_NUMBER = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_LOGGED = re.compile(
    rf"(?P<text>\S.*?) \((?P<shape>\d+(?:, \d+)*,?)\)(?P<values>(?: {_NUMBER}){{10}})(?: .*)?"
)
_TIME_S, _ENERGY_MJ, _POWER_W = 0, 1, 6


def _operator_profiling(path: Path) -> Iterator[Record]:
    """Logs of ConstantinNicolai/ml-operator-profiling; other lines are warnings and progress."""
    with lines_of(path, errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if found := _LOGGED.fullmatch(line.strip()):
                values = [float(value) for value in found["values"].split()]
                columns = {
                    "time_s": values[_TIME_S],
                    "energy_j": values[_ENERGY_MJ] / 1e3,
                    "power_w": values[_POWER_W],
                }
                shape = tuple(map(int, re.findall(r"\d+", found["shape"])))
                module = partial(lambda *logged: logged, found["text"], shape)
                yield Record(f"{path.name}:{number}", path.stem, columns, module)


_HEADER = "OPName,Latency,Device,"
_SIZES = (
    *("B", "H", "M", "N", "K", "Input_Channel", "Output_Channel", "Kernel_Szie"),
    *("Input_Size", "Stride", "Padding"),
)
_CONVOLUTION = (
    "Conv2d({Input_Channel}, {Output_Channel}, {Kernel_Szie}, stride={Stride}, "
    "padding={Padding}, bias=False)"
)
_MATRIX = ("B", "H")
_OPERATORS: Mapping[str, tuple[str, *tuple[tuple[str, ...], ...]]] = {
    "conv": (_CONVOLUTION, ("B", "Input_Channel", "Input_Size", "Input_Size")),
    "linear": ("Linear({N}, {K})", ("B", "M", "N")),
    "bmm": ("bmm", ("B", "M", "N"), ("B", "N", "K")),
    **{name: (name, _MATRIX, _MATRIX) for name in ("add", "mul", "pow", "div")},
    "tanh": ("Tanh()", _MATRIX),
    "relu": ("ReLU()", _MATRIX),
    "gelu": ("GELU()", _MATRIX),
    "ln": ("LayerNorm({H})", _MATRIX),
    # The collector passes no `dim`; PyTorch then uses dimension 1.
    "softmax": ("Softmax(dim=1)", _MATRIX),
}
_WITH_RANDOM_NUMBER = ("addu", "mulu", "powu", "divu")


def _neusight(path: Path) -> Iterator[Record]:
    """Operator labels of sitar-lab/NeuSight, whose collector (neusight/Dataset/collect.py) defines
    the sizes.
    """
    with lines_of(path, newline="") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            cuda = (row.get("CUDA Version") or "").removeprefix("cu")
            columns = {
                "time_s": _number(row["Latency"]) / 1e3,
                "device_name": row["Device"],
                "torch_version": (row.get("Torch Version") or "").removeprefix("p") or None,
                "cudnn_version": row.get("CUDNN Version") or None,
                "cuda_version": f"{cuda[:-1]}.{cuda[-1]}" if cuda else None,
                "energy_reason": "not published: these labels are times",
            }
            line = f"{path.name}:{reader.line_num}"
            yield Record(line, row["Device"], columns, partial(_labelled, row["OPName"], row))


def _labelled(name: str, row: Mapping[str, str | None]) -> tuple[str, *tuple[Shape, ...]]:
    """The module that the collector runs, and its inputs. Raises Undetermined."""
    if name in _WITH_RANDOM_NUMBER:
        raise Undetermined(f"{name} takes a random number, which is not recorded")
    if name not in _OPERATORS:
        raise Undetermined(f"{name} is not an operator of these labels")
    module, *shapes = _OPERATORS[name]
    try:
        sizes = {each: int(text) for each in _SIZES if (text := row.get(each))}
        return module.format_map(sizes), *(tuple(sizes[each] for each in of) for of in shapes)
    except (KeyError, ValueError) as error:
        raise Undetermined(f"{name} lacks one of its sizes ({error})") from error


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


LAYOUTS = {"operator-profiling": _operator_profiling, "neusight": _neusight}


def layout_of(path: Path) -> str:
    """The layout of a file, by its content. Raises OpcostError for an unknown one."""
    with lines_of(path, errors="replace") as lines:
        first = lines.readline()
        if first.startswith(_HEADER):
            return "neusight"
        if any(_LOGGED.fullmatch(line.strip()) for line in (first, *lines)):
            return "operator-profiling"
    raise OpcostError(
        f"{path} has an unknown layout; opcost reads {', '.join(LAYOUTS)}: "
        "see docs/how_to/databases.md"
    )
