"""The cost of steps that differ in one length, from the steps of a few lengths.

Between two lengths, the cost is taken to be linear: a step of decoding reads all cached keys and
values, and everything else in it stays the same. The error is estimated by leaving out each inner
length and interpolating it. Gaps are then twice as wide, so the error of curves is overestimated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opcost.statistics import Estimate, correlated_sum, product, student_97_5


@dataclass(frozen=True)
class Interpolation:
    """Costs at ascending lengths. Their errors are taken to have one cause, because most of a step
    is the same at all lengths.

    `shape` are other costs at these lengths that show the curvature better: estimates share most of
    their errors, while the noise of end-to-end measurements is independent.
    """

    lengths: Sequence[int]
    costs: Sequence[Estimate]
    shape: Sequence[Estimate] | None = None

    def at(self, length: int) -> Estimate:
        """The cost at a length within the range; no interval if interpolated between two."""
        return self.mean([length])

    def mean(self, lengths: Sequence[int]) -> Estimate:
        """The mean cost over lengths within the range."""
        weights = mean_weights(self.lengths, lengths)
        total = correlated_sum(zip(weights, self.costs, strict=True))
        if set(lengths) <= set(self.lengths):
            return total
        half = self.half_width
        if half is None:
            return Estimate(total.value, None, None)
        return product(total, Estimate(1.0, 1.0 - half, 1.0 + half))

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval of the interpolation error, relative to the cost."""
        errors = [
            math.log(self._from_neighbours(middle) / (self.shape or self.costs)[middle].value)
            for middle in range(1, len(self.lengths) - 1)
        ]
        if not errors:
            return None
        return student_97_5(len(errors)) * math.sqrt(math.fsum(e**2 for e in errors) / len(errors))

    def _from_neighbours(self, middle: int) -> float:
        around = (middle - 1, middle + 1)
        weights = mean_weights([self.lengths[each] for each in around], [self.lengths[middle]])
        return sum(
            weight * (self.shape or self.costs)[each].value
            for weight, each in zip(weights, around, strict=True)
        )


def mean_weights(known: Sequence[int], lengths: Sequence[int]) -> list[float]:
    """The weight of each known length in the mean over other lengths."""
    wanted, there = np.asarray(lengths, float), np.asarray(known, float)
    after = np.searchsorted(there, wanted)
    before = np.maximum(after - 1, 0)
    gaps = there[after] - there[before]
    share = np.divide(wanted - there[before], gaps, out=np.ones(len(wanted)), where=gaps > 0)
    counts = np.bincount(after, share, len(known)) + np.bincount(before, 1 - share, len(known))
    weights: list[float] = (counts / len(wanted)).tolist()
    return weights
