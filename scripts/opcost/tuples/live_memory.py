"""The lifetimes of the tensors that a model makes while it runs."""

import weakref
from collections.abc import Callable, Iterable

import torch

from opcost.tuples.model_memory import Lifetime


class LiveMemory:
    """Notes the bytes of tensors from the call that makes them until their memory is freed.

    Memory in `known` storages, such as weights, is not counted.
    """

    def __init__(self, known: Iterable[int]) -> None:
        self._calls = 0
        self._known = set(known)
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._living: dict[int, tuple[int, int]] = {}
        self._ended: list[Lifetime] = []

    def made(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the results of the next call, except views of its arguments and known ones."""
        for tensor in tensors:
            memory = tensor.untyped_storage()
            place = memory._cdata
            if place not in self._known and place not in self._storages:
                self._storages[place] = weakref.ref(memory, self._freed(place))
                self._living[place] = self._calls, memory.nbytes()
        self._calls += 1

    @property
    def lifetimes(self) -> tuple[Lifetime, ...]:
        """In the order of calls; what still lives does so until the last call."""
        living = (Lifetime(call, self._calls - 1, size) for call, size in self._living.values())
        return tuple(sorted([*self._ended, *living]))

    def _freed(self, place: int) -> Callable[[object], None]:
        def free(_: object) -> None:
            del self._storages[place]
            call, size = self._living.pop(place)
            self._ended.append(Lifetime(call, max(call, self._calls - 1), size))

        return free
