"""How a cost grows with a size: a part that each iteration has, and one that grows with it, such as
that of each sample.

A straight line through the costs, weighted by their variances. Where they scatter about it by more
than their intervals tell, these are widened by as much (Birge, The calculation of errors by the
method of least squares, Physical Review 40, 1932). Below the batch size at which both parts are
equal, a larger batch costs little more: that is where the curve leaves its floor. Over the edge of
an image, a cost may grow with its square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opcost.statistics import Estimate, student_97_5

_EXPONENTS = (1, 2)
LEAST_POINTS = 3
"""A line through fewer would always fit."""
_MISFIT_P = 0.01


@dataclass(frozen=True)
class Growth:
    """Costs with their 95 % intervals: `fixed` for an iteration, `each` for a sample; both parts
    are equal at a batch size of `even`, None unless both are told from zero. `is_straight` tells
    whether a line fits, and `squares` how far it is off: the weighted sum of squares.
    """

    fixed: Estimate
    each: Estimate
    even: Estimate | None
    is_straight: bool
    squares: float


def growth_with_power(points: Sequence[tuple[float, Estimate]]) -> tuple[int, Growth] | None:
    """The line through costs over positive sizes, or over their squares: the exponent, 1 or 2, and
    the line that fits better. None for fewer than three sizes, and if neither fits.
    """
    found = {
        exponent: growth([(size**exponent, cost) for size, cost in points])
        for exponent in _EXPONENTS
    }
    known = [(exponent, line) for exponent, line in found.items() if line and line.is_straight]
    return min(known, key=lambda each: each[1].squares) if known else None


def growth(points: Sequence[tuple[float, Estimate]]) -> Growth | None:
    """The line through sizes and their costs; None for fewer than three sizes, and for costs
    without an interval.
    """
    from scipy import special

    sds = [cost.sd for _, cost in points]
    if len({size for size, _ in points}) < LEAST_POINTS or not all(sds):
        return None
    sizes = np.array([size for size, _ in points], float)
    costs = np.array([cost.value for _, cost in points])
    weights = 1 / np.array(sds, float)
    design = np.stack([np.ones(len(sizes)), sizes], axis=1) * weights[:, None]
    (fixed, each), *_ = np.linalg.lstsq(design, costs * weights, rcond=None)
    squares = float(np.sum(((costs - fixed - each * sizes) * weights) ** 2))
    degrees = len(points) - 2
    covariance = np.linalg.inv(design.T @ design)
    scatters = squares > degrees
    covariance *= squares / degrees if scatters else 1.0
    half = student_97_5(degrees if scatters else None)

    def estimate(value: float, gradient: Sequence[float]) -> Estimate:
        margin = half * math.sqrt(float(np.array(gradient) @ covariance @ np.array(gradient)))
        return Estimate(value, value - margin, value + margin)

    return Growth(
        estimate(float(fixed), [1, 0]),
        estimate(float(each), [0, 1]),
        _ratio(float(fixed), float(each), covariance * half**2),
        float(special.chdtrc(degrees, squares)) >= _MISFIT_P,
        squares,
    )


def _ratio(fixed: float, each: float, margins: NDArray[np.floating[Any]]) -> Estimate | None:
    """fixed / each with the interval of Fieller (Some problems in interval estimation, Journal of
    the Royal Statistical Society B 16, 1954); None where one of the two is not told from zero.

    `margins` is the covariance times the square of the quantile.
    """
    squares = each**2 - margins[1, 1]
    if squares <= 0 or each <= 0 or fixed**2 <= margins[0, 0] or fixed <= 0:
        return None
    middle = fixed * each - margins[0, 1]
    spread = math.sqrt(max(middle**2 - squares * (fixed**2 - margins[0, 0]), 0.0))
    return Estimate(fixed / each, (middle - spread) / squares, (middle + spread) / squares)
