"""Record every operator call of a running model, with the module that makes it."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opcost.models.definition import FORWARD, LOSS, OPTIMIZER
from opcost.models.operator_calls import OperatorCalls
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.live_memory import LiveMemory
from opcost.tuples.model_memory import Lifetime
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.places import Place
from opcost.tuples.replay import storage, tensors_in_tree
from opcost.tuples.tuple_record import IN_CORE, RESULTS
from opcost.tuples.weight_uses import WeightUses


@dataclass(frozen=True)
class Call:
    """One operator call of a model, in the order of execution.

    `launches_kernel` is False for views and other calls that move no data. `parameters` names the
    arguments that are parameters or buffers of the model, views of them, or tensors that were last
    used in an earlier phase of a training step (tuple_record.py).
    """

    operator_tuple: OperatorTuple
    outputs: tuple[TensorSpec, ...]
    launches_kernel: bool
    parameters: tuple[str, ...]
    place: Place


class Recorder(OperatorCalls):
    """Records each operator below autograd and above the kernels.

    `where` returns the running module and phase; `held` are the tensors that persist between
    iterations. With a `device`, only operators that run there launch kernels. `weights` notes the
    weights that kernels use.
    """

    def __init__(
        self,
        where: Callable[[], Place],
        held: Iterable[torch.Tensor],
        device: torch.device | None = None,
        weights: WeightUses | None = None,
    ) -> None:
        super().__init__()
        self._device = device
        self._weights = weights
        self.calls: list[Call] = []
        self.compiled = False
        self._where = where
        self._held = {storage(tensor) for tensor in held}
        self._memory = LiveMemory(self._held)
        self._used_in: dict[int, str] = {}
        self._made_by: dict[int, tuple[int, int]] = {}
        self._kept_bytes: Counter[int] = Counter()

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operator_tuple = describe(func, args, kwargs)
        inputs = tensors_in_tree((args, kwargs))
        result = func(*args, **kwargs)
        outputs = tensors_in_tree(result)
        described = tuple(describe_tensor(tensor) for tensor in outputs)
        read = {storage(tensor) for tensor in inputs}
        # Other outputs are views: their memory belongs to an earlier call or to the inputs.
        self._memory.made(tensor for tensor in outputs if storage(tensor) not in read)
        place = self._where()
        self.compiled = self.compiled or _in_compiled_part()
        parameters = self._parameters(func, args, kwargs, place.phase)
        self._mark_kept(inputs, place.phase)
        launches = launches_kernel(func, operator_tuple, inputs, outputs, self._device)
        if launches and self._weights is not None:
            self._weights.note(inputs)
        self.calls.append(Call(operator_tuple, described, launches, parameters, place))
        for tensor in (*inputs, *outputs):
            self._used_in[storage(tensor)] = place.phase
        for tensor in outputs:
            if storage(tensor) not in read:
                self._made_by[storage(tensor)] = len(self.calls) - 1, tensor.nbytes
        return result

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]:
        """Those of the memory of results."""
        return self._memory.lifetimes

    def _mark_kept(self, inputs: list[torch.Tensor], phase: str) -> None:
        """Mark the calls most of whose results this phase is the first to use after their own."""
        for memory in {storage(tensor) for tensor in inputs}:
            maker, size = self._made_by.get(memory, (None, 0))
            if maker is None or not self._is_held(memory, phase):
                continue
            del self._made_by[memory]
            made = self.calls[maker]
            self._kept_bytes[maker] += size
            most = 2 * self._kept_bytes[maker] > sum(spec.bytes for spec in made.outputs)
            if most and RESULTS not in made.parameters:
                self.calls[maker] = replace(made, parameters=(*made.parameters, RESULTS))

    def _parameters(
        self,
        operator: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        phase: str,
    ) -> tuple[str, ...]:
        names = [argument.name for argument in operator._schema.arguments]
        given = [*zip(names, args, strict=False), *kwargs.items()]
        tensors = [(name, tensors_in_tree(value)) for name, value in given]
        found = [name for name, held in tensors if held and self._mostly_held(held, phase)]
        return (*found, IN_CORE) if phase == OPTIMIZER else tuple(found)

    def _mostly_held(self, tensors: Sequence[torch.Tensor], phase: str) -> bool:
        """Whether most bytes are held: a list may contain cached keys and a new one."""
        held = [self._is_held(storage(tensor), phase) for tensor in tensors]
        held_bytes = sum(tensor.nbytes for tensor in itertools.compress(tensors, held))
        return all(held) or 2 * held_bytes > sum(tensor.nbytes for tensor in tensors)

    def _is_held(self, memory: int, phase: str) -> bool:
        """Whether a tensor was used so long ago that a processor's caches have lost it."""
        if phase in _FIRST_PHASES:
            return memory in self._held
        return self._used_in.get(memory, FORWARD if memory in self._held else phase) != phase


_FIRST_PHASES = (FORWARD, LOSS)


class CallLog(OperatorCalls):
    """The operator tuples of all calls, in order, and the number of calls that launch kernels.

    With a `device`, only calls that run there do.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self._device = device
        self.operator_tuples: list[OperatorTuple] = []
        self.compiled = False
        self.kernels: Counter[OperatorTuple] = Counter()

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operator_tuple = describe(func, args, kwargs)
        inputs = tensors_in_tree((args, kwargs))
        result = func(*args, **kwargs)
        self.operator_tuples.append(operator_tuple)
        self.compiled = self.compiled or _in_compiled_part()
        outputs = tensors_in_tree(result)
        if launches_kernel(func, operator_tuple, inputs, outputs, self._device):
            self.kernels[operator_tuple] += 1
        return result


def _in_compiled_part() -> bool:
    """Whether this call is made by a function or module that torch.compile would compile."""
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        if frame.f_code.co_name == _COMPILED:
            return True
    return False


_COMPILED = "compile_wrapper"
"""PyTorch's function that calls compiled ones, even if they run eagerly."""

_DROPOUT = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
_ALLOCATE = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"}
_ALIAS = "lift_fresh"
"""Returns its argument, but fake tensors return a copy."""


def launches_kernel(
    operator: torch._ops.OpOverload,
    operator_tuple: OperatorTuple,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    device: torch.device | None,
) -> bool:
    """Whether data moves; decided by shared storage, because `reshape` is only sometimes a view."""
    name = operator_tuple.name
    if device is not None and _beyond_device(device, name, inputs, outputs):
        return False
    if name.removesuffix("_") in _DROPOUT and not dict(operator_tuple.arguments)["train"]:
        return False
    if name in _ALLOCATE or name == _ALIAS or torch.Tag.inplace_view in operator.tags:
        return False
    if not outputs and operator._schema.is_mutable:  # lists of tensors, changed in place
        return any(tensor.numel() for tensor in inputs)
    if all(tensor.numel() == 0 for tensor in outputs):
        # Searching a mask is work even if the result is empty.
        searched = any(tensor.dtype == torch.bool and tensor.numel() for tensor in inputs)
        return bool(outputs) and searched
    if operator._schema.is_mutable:
        return True
    storages = {storage(tensor) for tensor in inputs}
    return any(storage(tensor) not in storages for tensor in outputs)


def _beyond_device(
    device: torch.device, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> bool:
    """Whether an operator runs on the device's host, or moves data between the two. Kernels accept
    numbers and indices in tensors on the host.
    """

    def on_host(tensor: torch.Tensor) -> bool:
        return tensor.device.type != device.type

    moves_in = bool(inputs) and all(map(on_host, inputs))
    return moves_in or any(map(on_host, outputs)) or (name == "copy_" and any(map(on_host, inputs)))
