"""What decides the time of an operator tuple: its kind, its sizes and its work."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, Value, tensors_in

SMALL = 16
"""Whole numbers up to this select a kernel (strides, sizes of kernels); larger ones are sizes."""


@dataclass(frozen=True)
class Features:
    """`form` are operator and tensors with their numbers of dimensions; tuples of one form have the
    same `named_sizes`: by argument and dimension, such as `weight_0`; of a list of tensors, their
    number and the elements of all, `tensors_count` and `tensors_elements`. `kind` is all that
    selects a kernel: the form with dtypes, layouts and other arguments. `work` are the logarithms
    of FLOPs and bytes to base 2.
    """

    operator: str
    form: str
    kind: str
    named_sizes: Mapping[str, int]
    work: tuple[float, float]

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """The logarithms of the sizes to base 2."""
        return tuple(math.log2(max(1, size)) for size in self.named_sizes.values())


def features_of(operator_tuple: OperatorTuple, flops: int | None, moved_bytes: int) -> Features:
    """The features of a tuple with its FLOPs (None if unknown) and bytes."""
    form, kind = [operator_tuple.operator], [operator_tuple.operator]
    sizes: dict[str, int] = {}
    for name, value in operator_tuple.arguments:
        for part, what, numbers in _of_argument(value):
            form += [f"{name}{part}"] if part else []
            kind.append(f"{name}{part}{what}")
            sizes |= {f"{name}_{place}": size for place, size in numbers.items()}
    work = (math.log2((flops or 0) + 1), math.log2(moved_bytes + 1))
    return Features(operator_tuple.operator, " ".join(form), " ".join(kind), sizes, work)


def _of_argument(value: Value) -> Iterator[tuple[str, str, Mapping[Any, int]]]:
    """Its part of the form, of the kind, and its sizes."""
    tensors = list(tensors_in(value))
    if isinstance(value, TensorSpec):
        where = f":{len(value.shape)}{value.memory or ''}"
        yield where, _kind(value), dict(enumerate(value.shape))
    elif tensors:  # several: their number and the size of all count
        elements = sum(each.elements for each in tensors)
        kinds = " ".join(sorted({_kind(each) for each in tensors}))
        yield ":list", kinds, {"count": len(tensors), "elements": elements}
    else:
        yield "", f"={_selects(value)}", {}


def _kind(tensor: TensorSpec) -> str:
    layout = "strided" if isinstance(tensor.layout, tuple) else tensor.layout
    return f"{tensor.dtype}@{layout} zeros={tensor.zeros}"


def _selects(value: Value) -> str:
    """What of an attribute may select a kernel."""
    if isinstance(value, tuple):
        return ",".join(map(_selects, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return str(value) if isinstance(value, int) and abs(value) <= SMALL else "number"
