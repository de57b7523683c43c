"""FLOPs and minimum bytes moved of an operator tuple."""

import math
from collections.abc import Sequence

import torch
from torch._C import DispatchKey
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from opcost.tuples.host_memory import copy_of
from opcost.tuples.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, tensors_in
from opcost.tuples.replay import empty_tensor, on_device, rebuild, resolve

GROUPED_PRODUCTS = ("_grouped_mm", "_scaled_grouped_mm")
"""Products of one matrix with several, of which each takes part of its rows or columns."""

BAGS = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
"""Operators that add up entries of a table, bag by bag."""

TABLES = {
    **dict.fromkeys(("embedding", *BAGS), "weight"),
    **dict.fromkeys(("gather", "index", "index_select", "take"), "self"),
}
"""Operators that read some entries of an argument, and the argument: as much as they return, or
in bags."""

_WRITTEN_IN_PART = {
    "index_add_": "source",
    "index_copy_": "source",
    "scatter_": "index",
    "scatter_add_": "index",
}
"""Operators that change as many elements of their first argument as another one has, and that one.
"""

_META = torch.device("meta")
_CPU = torch.device("cpu")


def flops(operator_tuple: OperatorTuple) -> int:
    """Floating-point operations as `torch.utils.flop_counter` counts them.

    Counts matrix products, convolutions and attention, with a multiplication and an addition as one
    each; all other operators have zero. Products of groups, which mixtures of experts call, are
    counted as well. Raises the exceptions of the operator's call.
    """
    if operator_tuple.name in GROUPED_PRODUCTS:
        return _of_groups(operator_tuple)
    operator = resolve(operator_tuple.operator)
    composite = operator.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    if not composite and operator.overloadpacket not in flop_registry:
        return 0
    try:
        return _counted(operator_tuple, _META)
    except NotImplementedError:  # the sizes of its results depend on values
        return _counted(operator_tuple, _CPU)


def _of_groups(operator_tuple: OperatorTuple) -> int:
    """Each row of the one matrix, or each column of the other, belongs to one group."""
    tensors = dict(operator_tuple.tensors)
    *groups, rows, inner = tensors["self"].shape
    *others, _, columns = tensors["mat2"].shape
    every = groups[0] if groups and others else 1
    return 2 * every * rows * inner * columns


def _counted(operator_tuple: OperatorTuple, device: torch.device) -> int:
    tensors = [empty_tensor(spec, device) for _, spec in operator_tuple.tensors]
    call = on_device(rebuild(operator_tuple, tensors), device)
    # Composite operators are counted by their parts, which inference mode hides.
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return int(counter.get_total_flops())


def minimal_bytes(operator_tuple: OperatorTuple, outputs: Sequence[TensorSpec]) -> int:
    """Bytes moved if each argument is read once and each result is written once.

    An argument changed in place is read and written; the result, which is the same tensor, is not
    counted again. Of a table from which an operator takes entries, or changes some, those count. Of
    a copy between host and device, they are those that pass from one to the other.
    """
    if (copied := copy_of(operator_tuple)) is not None:
        return copied.to.bytes
    total = 0
    arguments = dict(operator_tuple.arguments)
    schema = resolve(operator_tuple.operator)._schema
    for argument in schema.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        size = sum(spec.bytes for spec in tensors_in(arguments.get(argument.name)))
        taken = _entries_bytes(operator_tuple, argument.name, outputs)
        total += (size if taken is None else min(size, taken)) * (2 if written else 1)
    if any(value.alias_info is not None and value.alias_info.is_write for value in schema.returns):
        return total
    return total + sum(spec.bytes for spec in outputs)


def _entries_bytes(
    operator_tuple: OperatorTuple, name: str, outputs: Sequence[TensorSpec]
) -> int | None:
    """Bytes of the entries of an argument that a call uses; None if it uses all of it."""
    operator, tensors = operator_tuple.name, dict(operator_tuple.tensors)
    if name == "self" and (source := tensors.get(_WRITTEN_IN_PART.get(operator, ""))) is not None:
        return math.prod(source.shape) * ELEMENT_BYTES[tensors["self"].dtype]
    if name != TABLES.get(operator):
        return None
    if operator in BAGS:
        rows, table = math.prod(tensors["indices"].shape), tensors["weight"]
        return rows * table.bytes // max(1, table.shape[0])
    return sum(spec.bytes for spec in outputs)
