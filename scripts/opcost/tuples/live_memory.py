"""The memory of the tensors that a model makes while it runs."""

import weakref
from collections.abc import Callable, Iterable

import torch


class LiveMemory:
    """Counts the bytes of tensors from creation until their memory is freed.

    `peak_bytes` is the maximum. Memory in `known` storages, such as weights, is not counted.
    """

    def __init__(self, known: Iterable[int]) -> None:
        self.peak_bytes = 0
        self._live_bytes = 0
        self._known = set(known)
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def made(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count results of a call, except views of its arguments and known ones."""
        for tensor in tensors:
            memory = tensor.untyped_storage()
            place = memory._cdata
            if place not in self._known and place not in self._storages:
                size = memory.nbytes()
                self._storages[place] = weakref.ref(memory, self._freed(place, size))
                self._live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def _freed(self, place: int, size: int) -> Callable[[object], None]:
        def free(_: object) -> None:
            del self._storages[place]
            self._live_bytes -= size

        return free
