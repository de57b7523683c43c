"""A published record, and the operator tuple that it determines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError
from opcost.models.construction import without_initialisation
from opcost.tuples.calls import module_calls
from opcost.tuples.extraction import tuple_record
from opcost.tuples.tuple_record import TupleRecord

Shape = tuple[int, ...]


class Undetermined(Exception):
    """A record does not determine an operator tuple; the text gives the reason."""


@dataclass(frozen=True)
class Published:
    """One record, with its values for `columns` of the database.

    `line` is its origin (file:line), `device` the published name of device or run. `find` returns
    the tuple or raises Undetermined.
    """

    line: str
    device: str
    columns: Mapping[str, Any]
    find: Callable[[], TupleRecord]


def only_tuple(build: Callable[[], nn.Module], *shapes: Shape) -> TupleRecord:
    """The tuple of the one operator that a module executes on contiguous float32 tensors.

    The module keeps its initial mode, usually training. Raises Undetermined if it executes no
    operator or several, or cannot run.
    """
    try:
        with without_initialisation():
            module = build()
        inputs = [torch.empty(shape) for shape in shapes]
        name = type(module).__name__
        executed = module_calls(module, inputs, name)
    except (OpcostError, RuntimeError, ValueError) as error:
        raise Undetermined(f"it cannot run: {error}") from error
    calls = [call for call in executed.calls if call.launches_kernel]
    if len(calls) != 1:
        names = ", ".join(call.operator_tuple.name for call in calls)
        raise Undetermined(f"{name} executes {len(calls)} operators, not one ({names})")
    return tuple_record(calls[0])
