"""Check that indices fit the tables that they index: fake tensors have no values.

The limits of a config's inputs and of counted positions are known. They are propagated through
operators that keep values, and through sums with numbers; otherwise nothing is checked.
"""

import itertools
from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from opcost.errors import OpcostError
from opcost.models.definition import InputSpec
from opcost.models.operator_calls import OperatorCalls
from opcost.tuples.work import BAGS

_Limits = tuple[float, float]
"""The lowest value, and an exclusive upper limit."""

_KEEP_VALUES = {
    *("_to_copy", "to", "clone", "alias", "contiguous", "detach", "view", "_unsafe_view"),
    *("reshape", "expand", "squeeze", "unsqueeze", "transpose", "permute", "t", "flatten"),
}
_TAKE_SOME = {"slice", "select", "narrow"}
"""Limits of inputs hold for a part of them; positions may be counted only for that part."""

_EMBEDDINGS = {"embedding", "embedding_renorm", *BAGS}
_LOSSES = {"cross_entropy_loss", "nll_loss_forward", "nll_loss2d_forward", "nll_loss_nd"}
_ALONG_A_DIMENSION = {
    *("gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_select", "index_add", "index_copy", "index_fill", "index_reduce"),
}
_BY_LISTS = {"index", "index_put", "_index_put_impl"}


class IndexLimits(OperatorCalls):
    """Raises OpcostError for a call whose indices may exceed its table, or have another dtype.

    `known` are tensors with the config's description of their values.
    """

    def __init__(self, known: Iterable[tuple[torch.Tensor, InputSpec]]) -> None:
        super().__init__()
        # Weak: holding tensors would take memory, and a shared tensor has several views.
        self._limits: MutableMapping[torch.Tensor, _Limits] = WeakIdKeyDictionary()
        self._positions: MutableMapping[torch.Tensor, bool] = WeakIdKeyDictionary()
        for tensor, spec in known:
            if not tensor.dtype.is_floating_point:
                self._note(tensor, spec.limits, is_position=False)

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if name in _LOSSES:
            self._check_target(args[1], args[0].shape[1 if args[0].dim() > 1 else 0])
        else:
            self._check_all(name, args)
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            written = (
                each.alias_info and each.alias_info.is_write for each in func._schema.arguments
            )
            self._forget(itertools.compress(args, written))
        elif isinstance(result, torch.Tensor) and not result.dtype.is_floating_point:
            self._follow(name, args, result)
        return result

    def _follow(self, name: str, args: tuple[Any, ...], result: torch.Tensor) -> None:
        """Record the limits of a result that has known ones."""
        numbers = [each for each in args if isinstance(each, int)]
        if name == "arange":
            first, last = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
            self._note(result, (first, last), is_position=True)
        elif args and args[0] in self._limits:
            low, high = self._limits[args[0]]
            is_position = args[0] in self._positions
            if name in _KEEP_VALUES or (name in _TAKE_SOME and not is_position):
                self._note(result, (low, high), is_position)
            elif name == "add" and len(numbers) == 1:
                self._note(result, (low + numbers[0], high + numbers[0]), is_position)

    def _note(self, tensor: torch.Tensor, limits: _Limits, is_position: bool) -> None:
        self._limits[tensor] = limits
        if is_position:
            self._positions[tensor] = True

    def _forget(self, changed: Iterable[Any]) -> None:
        """Discard the limits of tensors changed in place, and of their views."""
        memories = {each.untyped_storage()._cdata for each in changed if each in self._limits}
        for each in list(self._limits):
            if each.untyped_storage()._cdata in memories:
                del self._limits[each]

    def _check_all(self, name: str, args: tuple[Any, ...]) -> None:
        """Check the indices of a call that looks something up."""
        if name in _EMBEDDINGS:
            self._check(args[1], args[0].shape[0], "rows of an embedding")
        elif name in _ALONG_A_DIMENSION and args[0].shape:
            self._check(args[2], args[0].shape[args[1]], f"places of {name}")
        elif name == "take_along_dim" and args[2:] and args[2] is not None:
            self._check(args[1], args[0].shape[args[2]], f"places of {name}")
        elif name == "one_hot" and args[1:] and args[1] > 0:
            self._check(args[0], args[1], "classes of one_hot")
        elif name in _BY_LISTS and all(
            each is None or each.dtype != torch.bool for each in args[1]
        ):
            for size, indices in zip(args[0].shape, args[1], strict=False):
                if indices is not None:
                    self._check(indices, size, "places of a dimension", least=-size)

    def _check(self, indices: torch.Tensor, size: int, table: str, least: int = 0) -> None:
        low, high = self._limits.get(indices, (0, size))
        if low >= least and high <= size:
            return
        if indices in self._positions:
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
