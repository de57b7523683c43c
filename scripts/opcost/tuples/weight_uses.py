"""Which weights the calls of a running model use together."""

from collections.abc import Collection, Iterable

import torch
from torch import nn

from opcost.groups import grouped
from opcost.tuples.replay import storage
from opcost.tuples.weights import Weight, WeightGroup


class WeightUses:
    """Records which weights of a module each call uses. Weights that share memory are one."""

    def __init__(self, module: nn.Module) -> None:
        self._weights: dict[int, Weight] = {}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            size = tensor.untyped_storage().nbytes()
            self._weights.setdefault(storage(tensor), Weight(name, size))
        self._used: list[frozenset[int]] = []

    def note(self, read: Collection[torch.Tensor]) -> None:
        """Record that a kernel reads these tensors."""
        found = frozenset(map(storage, read)).intersection(self._weights)
        if found and self._used[-1:] != [found]:
            self._used.append(found)

    def groups(self) -> tuple[WeightGroup, ...]:
        """All weights in the module's order, grouped by calls that use them together."""
        first = _joined(self._weights, self._used)
        members = grouped((first[memory], weight) for memory, weight in self._weights.items())
        uses, last = dict.fromkeys(members, 0), None
        for used in self._used:
            group = first[next(iter(used))]
            uses[group] += group != last
            last = group
        return tuple(WeightGroup(tuple(each), uses[group]) for group, each in members.items())


def _joined(memories: Iterable[int], used: Iterable[Collection[int]]) -> dict[int, int]:
    """A representative of each memory's group: memories used together are in one group."""
    first = {memory: memory for memory in memories}
    for together in set(used):
        representatives = {first[memory] for memory in together}
        if len(representatives) > 1:
            one = next(iter(representatives))
            first = {
                memory: one if group in representatives else group
                for memory, group in first.items()
            }
    return first
