"""The identity of an operator tuple: operator, arguments, and tensors by shape, dtype and layout.

Two calls are the same tuple if and only if their canonical JSON is equal. It excludes device,
versions, model and values of tensors, except the share of zeros if it is given, and the memory of
tensors, except that of a GPU's host. This module handles only JSON: `description` makes tuples from
live calls, `replay` makes calls from tuples.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self, TypeAlias, TypeGuard

from opcost.errors import OpcostError
from opcost.models.definition import ELEMENT_BYTES
from opcost.values import shown

NAMED_OVERLOADS = ("Scalar", "float", "correction", "device")
"""Overloads that descriptions name, because others take the same arguments: numbers instead of
tensors, or those of `std.dim` and `to.dtype`. Other overloads follow from the arguments."""

_SIZE_LIMIT = 2**63
"""Exclusive upper bound of sizes, which are 64-bit integers."""

_WITH_ZEROS = ("float", "bfloat", "complex")
"""Prefixes of dtypes whose tensors may have a share of zeros."""

HOST_MEMORIES = ("pinned", "pageable")
"""The kinds of memory of a GPU's host: page-locked memory, which the GPU can access, and other."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor without its values.

    `layout` is None for a contiguous tensor, the memory format if it is "channels_last" or
    "channels_last_3d", and otherwise the strides in elements. Strides of dimensions of size 1 are
    zero because no element depends on them. `zeros` is the share of elements that are set to zero,
    0 for random values. `memory` is one of HOST_MEMORIES, or None for the memory of the device that
    runs the operator.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str | tuple[int, ...] | None = None
    zeros: float = 0.0
    memory: str | None = None

    @property
    def elements(self) -> int:
        """Distinct elements in memory: a dimension of stride zero repeats elements."""
        if isinstance(self.layout, tuple):
            strided = [
                size for size, stride in zip(self.shape, self.layout, strict=True) if stride != 0
            ]
            return 0 if 0 in self.shape else math.prod(strided)
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements."""
        return self.elements * ELEMENT_BYTES[self.dtype]

    @property
    def may_have_zeros(self) -> bool:
        """Whether a share of zeros is meaningful: integers count or select, floats compute."""
        return self.dtype.startswith(_WITH_ZEROS)

    def with_zeros(self, share: float) -> Self:
        """The spec with a share of zeros; a share of 0 is none.

        Raises ValueError for a number that is not a share, and for a tensor of integers.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"zeros={share:g} is no share: give a number from 0 to 1")
        if share and not self.may_have_zeros:
            raise ValueError(
                f"a tensor of {self.dtype} has no share of zeros: only tensors of floating-point "
                "numbers have one"
            )
        return replace(self, zeros=abs(float(share)))

    def to_document(self) -> dict[str, Any]:
        """The spec as JSON data, without default values."""
        document: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.layout is not None:
            document["layout"] = (
                list(self.layout) if isinstance(self.layout, tuple) else self.layout
            )
        if self.zeros:
            document["zeros"] = self.zeros
        if self.memory is not None:
            document["memory"] = self.memory
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The spec that `to_document` wrote. Raises ValueError for an impossible one."""
        shape, dtype, layout = document["shape"], document["dtype"], document.get("layout")
        strides = tuple(layout) if _are_sizes(layout) and len(layout) == len(shape) else None
        if not _are_sizes(shape) or not isinstance(dtype, str) or not dtype.isidentifier():
            raise ValueError(f"no tensor is of shape {shown(shape)} and dtype {shown(dtype)}")
        if strides is None and layout not in (None, "channels_last", "channels_last_3d"):
            raise ValueError(f"no tensor of shape {shown(shape)} has the layout {shown(layout)}")
        spec = cls(tuple(shape), dtype, layout if strides is None else strides)
        if "memory" in document:
            if document["memory"] not in HOST_MEMORIES:
                raise ValueError(f"no tensor is in the memory {shown(document['memory'])}")
            spec = replace(spec, memory=document["memory"])
        if "zeros" not in document:
            return spec
        share = document["zeros"]
        if type(share) is not float or not share:
            raise ValueError(f"no tensor of shape {shown(shape)} has {shown(share)} as its zeros")
        return spec.with_zeros(share)

    def __str__(self) -> str:
        layout = "" if self.layout is None else f"@{self.layout}".replace(" ", "")
        dtype = "" if self.dtype == "float32" else f":{self.dtype}"
        options = [f"zeros={self.zeros}"] if self.zeros else []
        options += [self.memory] if self.memory else []
        brackets = f"[{','.join(options)}]" if options else ""
        return ("x".join(map(str, self.shape)) or "scalar") + dtype + layout + brackets


@dataclass(frozen=True)
class Constant:
    """A named torch constant: kind is "dtype", "memory_format" or "layout"."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


Value: TypeAlias = "None | bool | int | float | str | TensorSpec | Constant | tuple[Value, ...]"


@dataclass(frozen=True, eq=False)
class OperatorTuple:
    """An operator with its arguments by schema name, without those equal to their default.

    Equality is that of canonical JSON: 1, 1.0 and True are equal in Python but not for an operator.
    """

    operator: str
    arguments: tuple[tuple[str, Value], ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorTuple) and self.canonical_json == other.canonical_json

    def __hash__(self) -> int:
        return hash(self.canonical_json)

    @cached_property
    def canonical_json(self) -> str:
        """The JSON text that identifies the tuple: sorted keys, no spaces."""
        arguments = {name: _to_document(value) for name, value in self.arguments}
        document = {"arguments": arguments, "operator": self.operator}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def tuple_id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return id_of(self.canonical_json)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The tuple that `canonical_json` describes. Raises OpcostError if there is none."""
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
            operator, arguments = document["operator"], sorted(document["arguments"].items())
            if operator.count(".") < 2:
                raise ValueError(f"{shown(operator)} is not namespace.operator.overload")
            return cls(operator, tuple((name, _from_document(value)) for name, value in arguments))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise OpcostError(
                f"canonical_json {shown(text)} describes no operator tuple ({error!r:.200})"
            ) from error

    @property
    def name(self) -> str:
        """The short name of the operator: `conv2d` for `aten.conv2d.default`."""
        return short_name(self.operator)

    @property
    def in_place(self) -> bool:
        """Whether the operator changes an argument, by its name: `relu_`, but not `__and__`."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def overload(self) -> str:
        """The overload of the operator: `default` for `aten.conv2d.default`."""
        return self.operator.rpartition(".")[2]

    @property
    def tensors(self) -> Iterator[tuple[str, TensorSpec]]:
        """Every tensor argument with the name of its argument."""
        for name, value in self.arguments:
            for spec in tensors_in(value):
                yield name, spec

    def __str__(self) -> str:
        """The description, which `parsing.parse` reads."""
        parts = [
            _show(value) if _holds_tensor(value) else f"{name}={_show(value)}"
            for name, value in sorted(self.arguments, key=reading_order)
        ]
        overload = f".{self.overload}" if self.overload in NAMED_OVERLOADS else ""
        return f"{self.name}{overload}({', '.join(parts)})"


def id_of(canonical_json: str) -> str:
    """The tuple id of a canonical JSON text."""
    return hashlib.sha256(canonical_json.encode()).hexdigest()[:16]


def short_name(operator: str) -> str:
    """`aten.conv2d.default` is `conv2d`; operators of other namespaces keep theirs."""
    namespace, name, _ = operator.split(".", 2)
    return name if namespace == "aten" else f"{namespace}.{name}"


def tensors_in(value: Value) -> Iterator[TensorSpec]:
    """The tensors in a value or in its lists."""
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, tuple):
        for element in value:
            yield from tensors_in(element)


def _to_document(value: Value) -> Any:
    match value:
        case TensorSpec():
            return value.to_document()
        case Constant():
            return {value.kind: value.name}
        case tuple():
            return [_to_document(element) for element in value]
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case _:
            return value


def _from_document(document: Any) -> Value:
    match document:
        case {"shape": _}:
            return TensorSpec.from_document(document)
        case {"float": text}:
            return float(text)
        case dict():
            [(kind, name)] = document.items()
            return Constant(kind, name)
        case list():
            return tuple(_from_document(element) for element in document)
        case _:
            return document


def _are_sizes(numbers: Any) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(
        type(number) is int and 0 <= number < _SIZE_LIMIT for number in numbers
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _show(value: Value) -> str:
    if not isinstance(value, tuple):
        return str(value)
    runs = [(text, len(list(group))) for text, group in itertools.groupby(map(_show, value))]
    # Show `[1,1]` in full, but shorten long lists such as eighty images.
    shown = [f"{count} times {text}" if count > 3 else f"{text}," * count for text, count in runs]
    return f"[{','.join(text.removesuffix(',') for text in shown)}]"


def _holds_tensor(value: Value) -> bool:
    return any(True for _ in tensors_in(value))


def reading_order(argument: tuple[str, Value]) -> tuple[int, str]:
    """The usual order of arguments: data, weight, other tensors, attributes."""
    name, value = argument
    first = ("self", "input", "query", "tensors", "weight")
    if name in first:
        return first.index(name), name
    return len(first) + (not _holds_tensor(value)), name
