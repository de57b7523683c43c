"""Operator labels of NeuSight (sitar-lab/NeuSight): CSV files of times on many GPUs.

A row has an operator (`OPName`), its sizes, and `Latency` in milliseconds. Its collector
(neusight/Dataset/collect.py) defines the sizes and runs each operator on contiguous float32
tensors; see docs/how_to/import.md.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.files import lines_of
from opcost.imports.published import Published, Shape, Undetermined, only_tuple
from opcost.tuples.tuple_record import TupleRecord

_Build = Callable[[], nn.Module]
_HEADER = ["OPName", "Latency", "Device"]


class _Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


_OF_TWO: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "mul": torch.mul,
    "pow": torch.pow,
    "div": torch.div,
}
_OF_ONE: dict[str, Callable[[int], nn.Module]] = {
    "tanh": lambda width: nn.Tanh(),
    "relu": lambda width: nn.ReLU(),
    "gelu": lambda width: nn.GELU(),
    "ln": nn.LayerNorm,
    # The collector passes no `dim`; PyTorch then uses dimension 1.
    "softmax": lambda width: nn.Softmax(dim=1),
}
_WITH_RANDOM_NUMBER = ("addu", "mulu", "powu", "divu")


def matches(path: Path) -> bool:
    """Whether the file's first line is the header of the labels."""
    with lines_of(path, errors="replace") as lines:
        return lines.readline().strip().split(",")[: len(_HEADER)] == _HEADER


def read(path: Path) -> Iterator[Published]:
    """The rows of a file of labels."""
    with lines_of(path, newline="") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            yield Published(
                f"{path.name}:{reader.line_num}", row["Device"], _columns(row), partial(_find, row)
            )


def _columns(row: Mapping[str, str]) -> dict[str, Any]:
    cuda = (row.get("CUDA Version") or "").removeprefix("cu")
    return {
        "time_s": _number(row["Latency"]) / 1e3,
        "device_name": row["Device"],
        "torch_version": (row.get("Torch Version") or "").removeprefix("p") or None,
        "cudnn_version": row.get("CUDNN Version") or None,
        "cuda_version": f"{cuda[:-1]}.{cuda[-1]}" if cuda else None,
        "energy_reason": "not published: these labels are times",
    }


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _find(row: Mapping[str, str]) -> TupleRecord:
    build, *shapes = _operator(row["OPName"], row)
    return only_tuple(build, *shapes)


def _operator(name: str, row: Mapping[str, str]) -> tuple[_Build, *tuple[Shape, ...]]:
    """The module that the collector runs, and the shapes of its inputs."""
    if name in _WITH_RANDOM_NUMBER:
        raise Undetermined(f"{name} takes a random number, which is not recorded")
    if name == "conv":
        batch, channels, results, kernel, size, stride, padding = _sizes(
            row,
            "B Input_Channel Output_Channel Kernel_Szie Input_Size Stride Padding",
        )
        convolution = partial(
            nn.Conv2d, channels, results, kernel, stride=stride, padding=padding, bias=False
        )
        return convolution, (batch, channels, size, size)
    if name in ("bmm", "linear"):
        batch, rows, inner, columns = _sizes(row, "B M N K")
        if name == "linear":
            return partial(nn.Linear, inner, columns), (batch, rows, inner)
        return partial(_Function, torch.bmm), (batch, rows, inner), (batch, inner, columns)
    rows, columns = _sizes(row, "B H")
    if name in _OF_TWO:
        return partial(_Function, _OF_TWO[name]), (rows, columns), (rows, columns)
    if name in _OF_ONE:
        return partial(_OF_ONE[name], columns), (rows, columns)
    raise Undetermined(f"{name} is not an operator of these labels")


def _sizes(row: Mapping[str, str], names: str) -> list[int]:
    try:
        return [int(row[name]) for name in names.split()]
    except (KeyError, TypeError, ValueError) as error:
        raise Undetermined(f"{row['OPName']} lacks one of its sizes ({names})") from error
