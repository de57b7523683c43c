"""A record as others publish it, and the operator tuple that it determines, if it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError
from opcost.models.construction import without_initialisation
from opcost.tuples.extraction import extract_module, tuple_record
from opcost.tuples.tuple_record import TupleRecord

Shape = tuple[int, ...]


class Undetermined(Exception):
    """A record does not determine an operator tuple; the text says why not."""


@dataclass(frozen=True)
class Published:
    """One record: `columns` of the database's schema, with what the record says of them.

    `place` is where it stands (file:line), `device` their name of the device or the run. `find`
    makes the tuple, or raises Undetermined.
    """

    place: str
    device: str
    columns: Mapping[str, Any]
    find: Callable[[], TupleRecord]


def only_tuple(build: Callable[[], nn.Module], *shapes: Shape) -> TupleRecord:
    """The tuple of the one operator that a module executes on contiguous float32 tensors.

    The module is in the mode that it is built in: in training, as a rule. Raises Undetermined if it
    executes none or several, or cannot run.
    """
    try:
        with without_initialisation():
            module = build()
        inputs = [torch.empty(shape) for shape in shapes]
        name = type(module).__name__
        extraction = extract_module(module, inputs, name)
    except (OpcostError, RuntimeError, ValueError) as error:
        raise Undetermined(f"it cannot run: {error}") from error
    calls = [call for call in extraction.calls if call.launches_kernel]
    if len(calls) != 1:
        names = ", ".join(call.operator_tuple.name for call in calls)
        raise Undetermined(f"{name} executes {len(calls)} operators, not one ({names})")
    return tuple_record(calls[0])
