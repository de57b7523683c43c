"""Whether indices fit the tables that they index, where fake tensors have no values to tell.

The limits of a config's inputs are known, and so are those of counted positions. They are followed
through views, copies and sums with numbers; of others nothing is known, and nothing is said.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.errors import OpcostError
from opcost.models.definition import InputSpec
from opcost.tuples.recorder import storage

_Limits = tuple[float, float]
"""The least value, and what all values are less than."""

_COPIES = ("aten::_to_copy", "aten::clone", "aten::alias", "aten::expand", "aten::contiguous")
_LOSSES = ("aten::nll_loss_forward", "aten::nll_loss2d_forward")


class IndexLimits(TorchDispatchMode):
    """Raises OpcostError for a call whose indices may exceed its table, or are of no index type.

    `known` are tensors with what a config says of their values.
    """

    def __init__(self, known: Iterable[tuple[torch.Tensor, InputSpec]]) -> None:
        super().__init__()
        self._limits: dict[int, _Limits] = {
            storage(tensor): spec.limits
            for tensor, spec in known
            if not tensor.dtype.is_floating_point
        }
        self._positions: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func._schema.name
        if name == "aten::embedding":
            self._check(args[1], args[0].shape[0], "rows of an embedding")
        elif name in _LOSSES:
            classes = args[0].shape[1 if args[0].dim() > 1 else 0]
            self._check_target(args[1], classes)
        result = func(*args, **(kwargs or {}))
        if _is_integer(result):
            self._follow(name, args, result)
        return result

    def _follow(self, name: str, args: tuple[Any, ...], result: torch.Tensor) -> None:
        """Note the limits of a result that has known ones."""
        numbers = [each for each in args if isinstance(each, int)]
        if name == "aten::arange":
            first, last = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
            self._note(result, (first, last), is_position=True)
        elif args and _is_integer(args[0]) and storage(args[0]) in self._limits:
            low, high = self._limits[storage(args[0])]
            is_position = storage(args[0]) in self._positions
            if name in _COPIES:
                self._note(result, (low, high), is_position)
            elif name == "aten::add" and len(numbers) == 1:
                self._note(result, (low + numbers[0], high + numbers[0]), is_position)

    def _note(self, tensor: torch.Tensor, limits: _Limits, is_position: bool) -> None:
        self._limits[storage(tensor)] = limits
        if is_position:
            self._positions.add(storage(tensor))

    def _check(self, indices: torch.Tensor, size: int, table: str) -> None:
        low, high = self._limits.get(storage(indices), (0, size))
        if low >= 0 and high <= size:
            return
        if storage(indices) in self._positions:
            raise OpcostError(
                f"it counts {high:.0f} positions, of which the model has {size}: use fewer tokens, "
                "or a model for more"
            )
        raise OpcostError(
            f"indices from {low:.0f} to {high - 1:.0f} do not fit {size} {table}: give the input "
            f"`low` and `high` within 0 and {size}"
        )

    def _check_target(self, target: torch.Tensor, classes: int) -> None:
        if target.dtype not in (torch.int64, torch.uint8):
            kind = str(target.dtype).removeprefix("torch.")
            raise OpcostError(f"the targets of the loss are {kind}: give them dtype int64")
        self._check(target, classes, "classes of the loss")


def _is_integer(value: Any) -> bool:
    """Whether it is a tensor of integers with a memory of its own; sparse ones have none."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    return not value.dtype.is_floating_point
