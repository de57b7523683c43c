"""Logs of ConstantinNicolai/ml-operator-profiling: leaf modules in loops beside nvidia-smi.

A record is a line with the text of a module, the shape of its input, and numbers:

    ReLU(inplace=True) (32, 64, 56, 56) 6.6e-05 9.8 0.003 0.009 269040 17.8 148.6 0.14 661.9 0.63

By position: 0 seconds and 1 millijoules per iteration, 6 mean watts; docs/how_to/import.md lists
all. Modules are in training mode, as torchvision builds them.

The text omits some attributes. Modules of torchvision's models have default values for these,
except Hardswish; tests/validation checks that.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from opcost.files import lines_of
from opcost.imports.published import Published, Undetermined, only_tuple
from opcost.tuples.tuple_record import TupleRecord

_NUMBER = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_RECORD = re.compile(
    rf"(?P<text>\S.*?) \((?P<shape>\d+(?:, \d+)*,?)\)(?P<values>(?: {_NUMBER}){{10}})(?: .*)?"
)
_TIME_S, _ENERGY_MJ, _POWER_W = 0, 1, 6
_NOT_SAID = {"Hardswish": "whether it works in place"}


def matches(path: Path) -> bool:
    """Whether one of the lines is a record."""
    with lines_of(path, errors="replace") as lines:
        return any(_RECORD.fullmatch(line.strip()) for line in lines)


def read(path: Path) -> Iterator[Published]:
    """The records of a log. Skips other lines, such as warnings and progress."""
    with lines_of(path, errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if found := _RECORD.fullmatch(line.strip()):
                values = [float(value) for value in found["values"].split()]
                yield Published(
                    f"{path.name}:{number}",
                    path.stem,
                    {
                        "time_s": values[_TIME_S],
                        "energy_j": values[_ENERGY_MJ] / 1e3,
                        "power_w": values[_POWER_W],
                    },
                    partial(tuple_of, found["text"], found["shape"]),
                )


@cache
def tuple_of(text: str, shape: str) -> TupleRecord:
    """The tuple of a module, given by its text, for an input shape. Raises Undetermined."""
    sizes = tuple(int(size) for size in shape.split(",") if size.strip())
    return only_tuple(partial(module_of, text), sizes)


def module_of(text: str) -> nn.Module:
    """A module of torch.nn from its text, such as `Linear(in_features=4, out_features=2)`.

    Attributes that the text omits have their defaults. Only literals in the text are evaluated.
    Raises Undetermined.
    """
    name = text.partition("(")[0]
    if name in _NOT_SAID:
        raise Undetermined(f"the text of {name} does not say {_NOT_SAID[name]}")
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        arguments = [ast.literal_eval(argument) for argument in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        return _module_class(name)(*arguments, **named)
    except (SyntaxError, AssertionError, ValueError, TypeError) as error:
        raise Undetermined(f"{name} is not the text of a module of torch.nn") from error


def _module_class(name: str) -> type[nn.Module]:
    if name == NonDynamicallyQuantizableLinear.__name__:
        return NonDynamicallyQuantizableLinear
    found = getattr(nn, name, None)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise TypeError(name)
    return found
