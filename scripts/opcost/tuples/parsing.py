"""Read an operator tuple from its description, as `opcost query` prints it:

    conv2d(1x64x56x56, 64x64x3x3, padding=[1,1])

Tensors come first, without the names of their arguments, and without the overload: both follow from
the operator's schemas. Where these are ambiguous, names decide: `conv2d.padding(...)`,
`bias=64:float32`. A number instead of a list of known length stands for all its elements:
`padding=1`.

A tensor is its sizes, or `scalar`; then, in this order and unless they have their default, its
dtype, its layout, and in brackets the share of its elements that are zero and the host memory that
contains it:

    1x64x56x56:bfloat16@channels_last[zeros=0.5,pinned]

A share of 0 is the same as none. A tensor without host memory is on the device; only copies between
the two (host_memory.py) have tensors in host memory.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, combinations
from typing import Any, NamedTuple

import torch

from opcost.errors import OpcostError, closest
from opcost.tuples.host_memory import copy_of
from opcost.tuples.operator_tuple import (
    ELEMENT_BYTES,
    HOST_MEMORIES,
    NAMED_OVERLOADS,
    Constant,
    OperatorTuple,
    TensorSpec,
    Value,
    reading_order,
)
from opcost.values import shown

_CALL = re.compile(r"\s*((?:\w+\.)*\w+)\s*\((.*)\)\s*", re.DOTALL)
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)
_TENSOR = re.compile(
    r"(?P<shape>\d+(?:x\d+)*|scalar)(?::(?P<dtype>\w+))?"
    r"(?:@(?P<layout>channels_last(?:_3d)?|\(\d*(?:,\d+)*,?\)))?"
    r"(?:\[(?P<options>[^][]+)\])?"
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_NUMBER_FOR_TENSOR = re.compile(r"-?(\d+|\d*\.\d+(e[+-]?\d+)?|\d+\.?e[+-]?\d+|inf|nan)|True|False")
_TIMES = re.compile(r"(\d+) times (.*)", re.DOTALL)
_MOST_TIMES = 100_000
_CONSTANTS = {"ScalarType": "dtype", "MemoryFormat": "memory_format", "Layout": "layout"}
_USUAL = ("default", "Tensor", "dtype")
"""The overloads that Python's calls prefer where several fit, in order."""

_CUT = ("...", "…")
_DEEPEST = 50
_FORM = "conv2d(1x64x56x56, 64x64x3x3, padding=[1,1])"


class Unstated(NamedTuple):
    """Defaults for tensors that a description leaves open: their dtype, the layout of those with
    four dimensions, and the share of zeros in floating-point ones.
    """

    dtype: str = "float32"
    memory_format: str | None = None
    zeros: float = 0.0


_AS_USUAL = Unstated()


def parse(text: str, unstated: Unstated = _AS_USUAL) -> OperatorTuple:
    """The operator tuple that a description names.

    Raises OpcostError for a text of another form, an unknown operator, arguments that no overload
    has, and an ambiguous description.
    """
    name, parts = _called(text)
    tensors: list[str] = []
    named: dict[str, str] = {}
    for part in parts:
        names = _NAMED.fullmatch(part)
        if names is None and named and not _begins_tensor(part.strip()):
            # A comma within text, such as einsum's equation.
            named[next(reversed(named))] += f",{part}"
        elif names is None:
            tensors.append(part.strip())
        elif names[1] in named:
            raise OpcostError(f"{shown(text)} gives {names[1]} twice")
        else:
            named[names[1]] = names[2].strip()
    reasons: list[str] = []
    fitting: dict[str, OperatorTuple] = {}
    numbers: dict[str, int] = {}
    for operator in _overloads(name):
        try:
            for each in _calls(operator, tensors, named, unstated):
                fitting.setdefault(each.tuple_id, each)
                numbers[each.tuple_id] = _numbers_as_tensors(operator, each)
        except ValueError as error:
            reasons.append(f"{operator}: {error}")
    if fitting:
        # Python's arithmetic takes a number instead of a tensor; other operators have overloads
        # for numbers.
        arithmetic = torch._C._should_allow_numbers_as_tensors(name.partition(".")[0])
        usual_numbers = (max if arithmetic else min)(numbers.values())
        fitting = {key: each for key, each in fitting.items() if numbers[key] == usual_numbers}
        fitting = {
            key: each for key, each in fitting.items() if each.overload not in NAMED_OVERLOADS
        } or fitting
    for overload in _USUAL:
        usual = [each for each in fitting.values() if each.overload == overload]
        if usual:
            fitting = {each.tuple_id: each for each in usual}
            break
    if len(fitting) == 1:
        [found] = fitting.values()
        copy_of(found)
        return found
    if not fitting:
        raise OpcostError("\n  ".join([f"{shown(text)} fits no overload of {name}:", *reasons]))
    choices = sorted(_with_names(each) for each in fitting.values())
    raise OpcostError("\n  ".join([f"{shown(text)} may be any of these: name one of", *choices]))


def _numbers_as_tensors(operator: torch._ops.OpOverload, found: OperatorTuple) -> int:
    """The number of arguments that are numbers, and tensors in the overload's schema."""
    arguments = dict(found.arguments)
    return sum(
        isinstance(arguments.get(each.name), bool | int | float) and _may_hold(each)
        for each in operator._schema.arguments
    )


def known_arguments(text: str) -> set[str]:
    """The argument names of all overloads of a description's operator."""
    operators = _overloads(_called(text)[0])
    return {each.name for found in operators for each in found._schema.arguments}


def with_argument(text: str, name: str, value: str) -> str:
    """A description with an argument added or changed."""
    called, parts = _called(text)
    changed, present = f"{name}={value}", arguments_of(text).get(name)
    kept = [changed if part == present else part.strip() for part in parts]
    return f"{called}({', '.join(kept if present else [*kept, changed])})"


def arguments_of(text: str) -> dict[str, str]:
    """The arguments that a description names, each as it is written."""
    _, parts = _called(text)
    return {found[1]: part for part in parts if (found := _NAMED.fullmatch(part))}


def _called(text: str) -> tuple[str, list[str]]:
    """The name of the operator, and the texts of its arguments."""
    if (
        max(accumulate((letter in "[(") - (letter in "])") for letter in text), default=0)
        > _DEEPEST
    ):
        raise OpcostError(f"{shown(text)} has brackets in brackets, more than {_DEEPEST} deep")
    match = _CALL.fullmatch(text)
    if match is None and text.rstrip().endswith(_CUT):
        raise OpcostError(
            f"{shown(text)} is cut to fit a line: opcost query prints all of it where it has room, "
            "and with --json anywhere"
        )
    if match is None:
        raise OpcostError(f"{shown(text)} is no call of an operator: write it like {_FORM}")
    return match[1], [*_split(match[2])]


def _with_names(found: OperatorTuple) -> str:
    """A call with its overload and the names of all arguments."""
    arguments = sorted(found.arguments, key=reading_order)
    namespace, name, overload = found.operator.split(".", 2)
    called = name if namespace == "aten" else f"{namespace}.{name}"
    parts = (f"{argument}={_shown(value)}" for argument, value in arguments)
    return f"{called}.{overload}({', '.join(parts)})"


def _shown(value: Value) -> str:
    if isinstance(value, TensorSpec) and str(value).isdigit():
        return f"{value}:{value.dtype}"  # otherwise it would be a number
    return f"[{','.join(map(_shown, value))}]" if isinstance(value, tuple) else str(value)


def _overloads(name: str) -> list[torch._ops.OpOverload]:
    """The overloads of `conv2d`, `conv2d.padding`, `aten.conv2d.default` or `torchvision.nms`."""
    first, *rest = name.split(".")
    if first == "torchvision":
        import torchvision  # noqa: F401  registers its operators
    if hasattr(torch.ops.aten, first) and len(rest) < 2:
        packet, overload = getattr(torch.ops.aten, first), rest
    else:
        packet, overload = getattr(torch.ops, first, None), rest[1:]
        packet = getattr(packet, rest[0], None) if packet is not None and rest else None
    if packet is None or not hasattr(packet, "overloads"):
        known = [each for each in dir(torch.ops.aten) if not each.startswith("_")]
        raise OpcostError(f"{name} is no operator of PyTorch. {closest(first, known)}".rstrip())
    names = packet.overloads()
    if overload and overload[0] not in names:
        raise OpcostError(f"{name}: {packet} has no such overload. Allowed: {', '.join(names)}")
    found = [getattr(packet, each) for each in overload or names]
    # Models do not call overloads that write their results into given tensors.
    return [
        each
        for each in found
        if overload or not any(argument.is_out for argument in each._schema.arguments)
    ]


def _calls(
    operator: torch._ops.OpOverload,
    tensors: Sequence[str],
    named: Mapping[str, str],
    unstated: Unstated,
) -> Iterator[OperatorTuple]:
    """The calls of an overload with these arguments. Raises ValueError if there are none."""
    arguments = {each.name: each for each in operator._schema.arguments}
    if unknown := named.keys() - arguments.keys():
        raise ValueError(f"it has no argument {', '.join(sorted(unknown))}")
    values = {each: _value(text, arguments[each], unstated) for each, text in named.items()}
    free = [each for each in arguments.values() if each.name not in named and _may_hold(each)]
    specs = [_tensors(text, unstated) for text in tensors]
    for text, spec in zip(tensors, specs, strict=True):
        if spec is None:
            raise ValueError(f"{shown(text)} is no tensor: write 1x64x56x56, or 1x8:int64")
    order = sorted(free, key=lambda each: reading_order((each.name, TensorSpec((), "float32"))))
    found = False
    for chosen in combinations(order, len(specs)):
        given = {each.name: spec for each, spec in zip(chosen, specs, strict=True)} | values
        lacking = [
            each.name
            for each in arguments.values()
            if each.name not in given and not each.has_default_value() and not _is_of_device(each)
        ]
        fits = all(
            _is_list(each) == isinstance(spec, tuple)
            for each, spec in zip(chosen, specs, strict=True)
        )
        if fits and not lacking:
            found = True
            yield OperatorTuple(str(operator), tuple(sorted(given.items())))
    if not found:
        needed = ", ".join(each.name for each in order) or "none"
        raise ValueError(f"{len(specs)} tensors do not fit its tensors: {needed}")


def _declared(argument: Any) -> str:
    return str(argument.real_type)


def _is_of_device(argument: Any) -> bool:
    return "Device" in _declared(argument) or argument.name == "pin_memory"


def _may_hold(argument: Any) -> bool:
    return "Tensor" in _declared(argument)


def _is_list(argument: Any) -> bool:
    return "List[" in _declared(argument)


def _begins_tensor(text: str) -> bool:
    """Whether it is a tensor or a list of tensors, rather than the rest of a text."""
    return text.startswith("[") or _TENSOR.fullmatch(text) is not None


def _tensors(text: str, unstated: Unstated) -> Value:
    """A tensor, a list of tensors, or None for another value."""
    if text.startswith("[") and text.endswith("]"):
        parts = [_tensors(each, unstated) for each in _elements(text)]
        return None if None in parts[: len(parts)] and not any(parts) else tuple(parts)
    match = _TENSOR.fullmatch(text)
    if match is None:
        return None
    shape = () if match["shape"] == "scalar" else tuple(map(int, match["shape"].split("x")))
    dtype, layout = match["dtype"] or unstated.dtype, match["layout"]
    if dtype not in ELEMENT_BYTES:
        raise ValueError(f"{dtype} is no dtype. {closest(dtype, ELEMENT_BYTES)}")
    strides = None
    if layout is not None and layout.startswith("("):
        strides = tuple(int(each) for each in layout.strip("()").split(",") if each)
        if len(strides) != len(shape):
            raise ValueError(f"{shown(text)} has {len(shape)} sizes and {len(strides)} strides")
    usual = unstated.memory_format if len(shape) == 4 else None
    spec = TensorSpec(shape, dtype, strides or layout or usual)
    zeros = unstated.zeros if spec.may_have_zeros else 0.0
    brackets = match["options"].split(",") if match["options"] else []
    if len({each.startswith("zeros=") for each in brackets}) < len(brackets):
        raise ValueError(f"{shown(text)} repeats an option in brackets")
    for option in brackets:
        if option.startswith("zeros="):
            zeros = _share(option.removeprefix("zeros="))
        elif option in HOST_MEMORIES:
            spec = replace(spec, memory=option)
        else:
            raise ValueError(
                f"{shown(text)}: {shown(option)} is no option of a tensor: write [zeros=0.5], "
                f"[{'] or ['.join(HOST_MEMORIES)}], or both, as in [zeros=0.5,pinned]"
            )
    return spec.with_zeros(zeros)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"zeros={text} is no share: give a number from 0 to 1") from None


def _value(text: str, argument: Any, unstated: Unstated) -> Value:
    """A value of the argument's declared type. Raises ValueError."""
    declared = _declared(argument)
    if _may_hold(argument):
        number = _NUMBER_FOR_TENSOR.fullmatch(text)
        declared = "number" if number else declared
        if not number and (tensor := _tensors(text, unstated)) is not None:
            return tensor
    elif argument.N and _is_list(argument) and _NUMBER.fullmatch(text):
        text = f"[{','.join([text] * argument.N)}]"
    return _of_type(text, declared.removeprefix("Optional[").removesuffix("]"), argument.name)


def _of_type(text: str, declared: str, name: str) -> Value:
    if text == "None" or (text == "none" and declared != "str"):
        return None
    if declared.startswith("List["):
        if not (text.startswith("[") and text.endswith("]")):
            raise ValueError(f"{name} is {shown(text)}: write a list, such as [1,1]")
        inner = declared.removeprefix("List[").removesuffix("]")
        inner = inner.removeprefix("Optional[").removesuffix("]")
        return tuple(_of_type(each, inner, name) for each in _elements(text))
    if declared in _CONSTANTS:
        return Constant(_CONSTANTS[declared], text)
    if text.lower() in ("true", "false") and declared in ("bool", "number"):
        return text.lower() == "true"
    if declared == "str" and not text.startswith("["):
        return text
    try:
        if declared == "int" or (declared == "number" and re.fullmatch(r"-?\d+", text)):
            return int(text)
        if declared in ("float", "number"):
            return float(text)
    except ValueError:
        pass
    raise ValueError(f"{name} is {shown(text)}, which is no {declared}")


def _elements(text: str) -> list[str]:
    """The elements of a list, with `N times x` expanded."""
    found: list[str] = []
    for part in _split(text[1:-1]):
        match = _TIMES.fullmatch(part.strip())
        if match and (len(match[1]) > 9 or int(match[1]) > _MOST_TIMES):
            raise ValueError(f"{shown(part.strip())} is more than {_MOST_TIMES:,} times")
        found += [match[2]] * int(match[1]) if match else [part.strip()]
    return found


def _split(text: str) -> Iterator[str]:
    """The parts between commas outside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    if text[start:].strip():
        yield text[start:]
