"""How a cost grows with a size: a fixed part of each iteration, and a part for each sample.

A straight line through the costs, weighted by their variances. Where residuals exceed the
intervals, these are widened as much (Birge, The calculation of errors by the method of least
squares, Physical Review 40, 1932). Below the batch size at which both parts are equal, a larger
batch costs little more. Over the edge of an image, a cost may grow with its square.
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
    are equal at a batch size of `even`, None unless both differ from zero beyond noise.
    `is_straight`: a line fits; `squares`: the weighted sum of squared residuals.
    """

    fixed: Estimate
    each: Estimate
    even: Estimate | None
    is_straight: bool
    squares: float


def growth_with_power(points: Sequence[tuple[float, Estimate]]) -> tuple[int, Growth] | None:
    """The exponent, 1 or 2, and the better line through costs over positive sizes to that power.
    None for fewer than three sizes, and if neither fits.
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
    exceeds = squares > degrees
    covariance *= squares / degrees if exceeds else 1.0
    half = student_97_5(degrees if exceeds else None)

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
    the Royal Statistical Society B 16, 1954); None where one of them may be zero.

    `margins` is the covariance times the square of the quantile.
    """
    squares = each**2 - margins[1, 1]
    if squares <= 0 or each <= 0 or fixed**2 <= margins[0, 0] or fixed <= 0:
        return None
    middle = fixed * each - margins[0, 1]
    spread = math.sqrt(max(middle**2 - squares * (fixed**2 - margins[0, 0]), 0.0))
    return Estimate(fixed / each, (middle - spread) / squares, (middle + spread) / squares)
