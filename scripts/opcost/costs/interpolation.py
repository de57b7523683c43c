"""The cost of steps that differ in one length, from the steps of a few lengths.

Between two lengths, the cost is taken to be linear: a step of decoding reads all cached keys and
values, and everything else in it stays the same. The error is estimated by leaving out each inner
length and interpolating it. Gaps are then twice as wide, so the error of curves is overestimated.
"""

import math
from collections.abc import Sequence

import numpy as np

from opcost.statistics import Estimate, correlated_sum, product, student_97_5


def mean_weights(known: Sequence[int], lengths: Sequence[int]) -> list[float]:
    """The weight of each of the ascending `known` lengths in the mean over other lengths."""
    return [float(np.interp(lengths, known, unit).mean()) for unit in np.eye(len(known))]


def mean_cost(
    known: Sequence[int],
    costs: Sequence[Estimate],
    lengths: Sequence[int],
    shape: Sequence[Estimate] | None = None,
) -> Estimate:
    """The mean cost over lengths, from the costs at `known` lengths; without an interval if some
    are interpolated between two.

    Errors of costs are taken to have one cause, because most of a step is the same at all lengths.
    `shape` are other costs at these lengths that show the curvature better: estimates share most of
    their errors, while the noise of end-to-end measurements is independent.
    """
    total = correlated_sum(zip(mean_weights(known, lengths), costs, strict=True))
    if set(lengths) <= set(known):
        return total
    half = interpolation_half_width(known, shape or costs)
    if half is None:
        return Estimate(total.value, None, None)
    return product(total, Estimate(1.0, 1.0 - half, 1.0 + half))


def interpolation_half_width(known: Sequence[int], costs: Sequence[Estimate]) -> float | None:
    """Half of the 95 % interval of the interpolation error, relative to the cost; None for fewer
    than three lengths.
    """
    values = [each.value for each in costs]
    errors = [
        math.log(np.interp(known[n], known[n - 1 : n + 2 : 2], values[n - 1 : n + 2 : 2]) / value)
        for n, value in enumerate(values[1:-1], 1)
    ]
    if not errors:
        return None
    return student_97_5(len(errors)) * math.sqrt(math.fsum(e**2 for e in errors) / len(errors))
