"""The memory of an iteration: what its calls make, and what persists between iterations."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Lifetime(NamedTuple):
    """Memory that a call makes: the number of the call, that of the last call in which it lives,
    and its bytes.
    """

    first: int
    last: int
    bytes: int


@dataclass(frozen=True)
class ModelMemory:
    """Bytes of an iteration. `lifetimes` are of activations, gradients and temporaries, without
    kernels' workspaces; `weight_bytes` of the parameters and buffers of each module, by path,
    without those of its submodules; `state_bytes` of what else persists: an optimizer's state, or
    cached keys and values.
    """

    lifetimes: tuple[Lifetime, ...]
    weight_bytes: Mapping[str, int]
    state_bytes: int

    @cached_property
    def live_bytes(self) -> list[int]:
        """Bytes that live when each call has made its results, by the number of the call."""
        changes = [0] * (2 + max((each.last for each in self.lifetimes), default=0))
        for first, last, size in self.lifetimes:
            changes[first] += size
            changes[last + 1] -= size
        return list(itertools.accumulate(changes[:-1]))

    @property
    def peak_bytes(self) -> int:
        """The most bytes of activations that live at once."""
        return max(self.live_bytes)
