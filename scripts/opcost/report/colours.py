"""One colour for each operator, by its name: the same in the charts of all studies."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from zlib import crc32

from opcost.costs.breakdown import BEYOND, RESTS, breakdown
from opcost.costs.terms import Row
from opcost.groups import grouped

PALETTE = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
    *("#7B6FD0", "#999933", "#9C6B3F"),
)
"""Okabe and Ito's colours, which colour-blind readers can distinguish, and three more."""
OTHERS, OVERHEAD, END_TO_END = "var(--others)", "var(--overhead)", "var(--measured)"
MISSING = "url(#missing)"
"""A hatch, which the page defines."""
INK_ON_LIGHT, INK_ON_DARK = "#000000", "#ffffff"
_DARK = frozenset(("#0072B2", "#009E73", "#D55E00", "#7B6FD0", "#9C6B3F"))
_MOST = 7
_COMMON = (
    *("conv2d", "linear", "batch_norm", "relu", "add", "scaled_dot_product_attention"),
    *("max_pool2d", "layer_norm", "gelu", "hardtanh"),
)
"""Operators, with their mutating variants, that have the colour at their place in the palette."""


@dataclass(frozen=True)
class Colours:
    """The operators that have a colour of their own, those that cost most of the study first."""

    names: Sequence[str]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each operator in the palette: its own, or the next that is free."""
        found: dict[str, int] = {}
        for name in sorted(self.names, key=lambda name: (name.strip("_") not in _COMMON, name)):
            common = name.strip("_")
            first = _COMMON.index(common) if common in _COMMON else crc32(name.encode())
            places = (place % len(PALETTE) for place in count(first))
            found[name] = next(place for place in places if place not in found.values())
        return found

    def of(self, name: str) -> str:
        """The colour of an operator, or of another part of a model's cost."""
        if name in self.places:
            return PALETTE[self.places[name]]
        if name in BEYOND:
            return OVERHEAD
        return MISSING if name in RESTS else OTHERS

    def ink(self, name: str) -> str:
        """The colour in which text on it can be read."""
        return INK_ON_DARK if self.of(name) in _DARK else INK_ON_LIGHT


def colours(comparison: Sequence[Row], shares: Iterable[Row]) -> Colours:
    """Of the costliest operators by the sum of their shares of each model's time, so that no model
    has more weight.
    """
    rows = grouped(((row["model"], row["target"]), row) for row in shares)
    found = grouped(
        (part.name, part.share or 0.0)
        for compared in comparison
        for part in breakdown(compared, rows.get((compared["model"], compared["target"]), ()))
        if part.calls is not None
    )
    ranked = sorted(found, key=lambda name: -math.fsum(found[name]))
    return Colours(ranked[:_MOST])
