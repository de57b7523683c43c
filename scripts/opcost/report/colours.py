"""One colour for each operator, the same in every chart of a study."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.costs.breakdown import BEYOND, RESTS, breakdown
from opcost.costs.terms import Row

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
OTHERS, OVERHEAD, WHOLE = "var(--others)", "var(--overhead)", "var(--whole)"
MISSING = "url(#missing)"
"""A hatch, which the page defines."""
INK_ON_LIGHT, INK_ON_DARK = "#000000", "#ffffff"
_DARK = frozenset(("#0072B2", "#009E73", "#D55E00"))


@dataclass(frozen=True)
class Colours:
    """The operators that have a colour of their own, those that cost most of the study first."""

    names: Sequence[str]

    def of(self, name: str) -> str:
        """The colour of an operator, or of another part of a model's cost."""
        if name in self.names:
            return PALETTE[self.names.index(name)]
        if name in BEYOND:
            return OVERHEAD
        return MISSING if name in RESTS else OTHERS

    def ink(self, name: str) -> str:
        """The colour in which text on it can be read."""
        return INK_ON_DARK if self.of(name) in _DARK else INK_ON_LIGHT


def colours(comparison: Sequence[Row], shares: Iterable[Row]) -> Colours:
    """By the sum of their shares of each model's time, so that no model has more say."""
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in shares:
        rows[row["model"], row["target"]].append(row)
    found: dict[str, list[float]] = defaultdict(list)
    for compared in comparison:
        for part in breakdown(compared, rows[compared["model"], compared["target"]]):
            if part.calls is not None:
                found[part.name].append(part.share or 0.0)
    ranked = sorted(found, key=lambda name: -math.fsum(found[name]))
    return Colours(ranked[: len(PALETTE)])
