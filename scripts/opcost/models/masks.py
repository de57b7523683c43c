"""The masks of transformers, which need values that fake tensors do not have.

transformers builds other masks while it is traced, and mistakes fake tensors for a trace: it would
then call other operators than a measured model does.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_MODULE, _IS_TRACING = "transformers.masking_utils", "is_tracing"
_POSITIONS, _FIND_PACKED = "position_ids", "find_packed_sequence_indices"


class _OneSequence(TorchDispatchMode):
    """Answers that all positions belong to one sequence."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return True
        return func(*args, **(kwargs or {}))


@contextmanager
def masks_as_executed(inputs: Any) -> Iterator[None]:
    """Let models of transformers on fake tensors build the masks that they build on real ones.

    `inputs` are those of forward by name. Positions are assumed to be of one sequence unless they
    are given; a mask that needs their values is then an error of fake tensors.
    """
    module = sys.modules.get(_MODULE)
    if module is None or not hasattr(module, _IS_TRACING) or not hasattr(module, _FIND_PACKED):
        yield
        return
    find_packed = getattr(module, _FIND_PACKED)

    def of_one_sequence(position_ids: torch.Tensor) -> Any:
        with _OneSequence():
            return find_packed(position_ids)

    with mock.patch.object(module, _IS_TRACING, return_value=False):
        if _POSITIONS in inputs:
            yield
        else:
            with mock.patch.object(module, _FIND_PACKED, of_one_sequence):
                yield
