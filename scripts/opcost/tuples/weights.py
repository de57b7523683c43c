"""The weights of a model by the calls that use them: what offloading copies together."""

import itertools
from dataclasses import dataclass
from typing import NamedTuple


class Weight(NamedTuple):
    """A parameter or buffer by its name in the model, with the bytes of its memory."""

    name: str
    bytes: int


@dataclass(frozen=True)
class WeightGroup:
    """Weights that must be on the device at the same time, because a call uses them together.

    `uses` is how often an iteration uses them after other weights: if they are not kept, they are
    copied that often. It is 0 for weights that no kernel of an iteration reads.
    """

    weights: tuple[Weight, ...]
    uses: int

    @property
    def bytes(self) -> int:
        """Bytes of all weights."""
        return sum(weight.bytes for weight in self.weights)

    @property
    def module_path(self) -> str:
        """The innermost module that contains all weights; "" for the model itself."""
        paths = [weight.name.split(".")[:-1] for weight in self.weights]
        levels = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
        return ".".join(names[0] for names in levels)
