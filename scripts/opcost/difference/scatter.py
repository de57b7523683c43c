"""How far measurements of one thing lie apart, learnt from the pairs that are to be judged.

A pair is the log ratio of two measurements of one operator. Three things move it: the error within
each measurement (a normal one, known from their intervals), how badly measurements reproduce, and a
real change. How badly they reproduce differs from machine to machine and from day to day, but most
pairs have not changed, and the middle of all pairs shows it (an empirical null: Efron, Large-scale
simultaneous hypothesis testing: the choice of a null hypothesis, JASA 99, 2004). The middle does
not show how heavy the tails are: now and then a measurement is far off. They are Student's, of
degrees of freedom that repeated studies had (tests/benchmarks/difference.py).
"""

# ASSUME that fewer than four in ten pairs have changed beyond what all have in common.

import math
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from opcost import statistics

Array: TypeAlias = NDArray[np.float64]

FEWEST_PAIRS = 10
"""Fewer say too little of how far measurements lie apart."""

SOUND_TAIL, DOUBTFUL_TAIL = 5.0, 2.0
"""Degrees of freedom, of pairs of sound rows and of others (figures in docs/how_to/query.md)."""

_NORMAL_75 = float(special.ndtri(0.75))
# Student's t is a normal law whose variance is divided by W ~ chi^2 / degrees of freedom. The
# integral over ln W is its trapezoidal sum, nearly exact: what is summed vanishes at both ends.
_STEP = 0.25
_LOG_W = np.arange(-20.0, 3.0, _STEP)


@dataclass(frozen=True)
class Scatter:
    """The law of a log ratio without a change, beside the error within the measurements.

    `sd` is the standard deviation of its core (that of the normal law with the same quartiles),
    `tail` the degrees of freedom of Student's t.
    """

    sd: float
    tail: float

    @classmethod
    def of(cls, residuals: Array, errors: Array, tail: float) -> Self:
        """The scatter of log ratios around what they have in common.

        `errors` are the standard deviations within the measurements, as log ratios. Of the `sd`
        that makes the median pair a median one, it is the upper limit of the 95 % interval: what
        the pairs are judged by must not be too small by chance. It is zero where the errors explain
        the pairs. Raises ValueError for fewer than FEWEST_PAIRS.
        """
        if residuals.size < FEWEST_PAIRS:
            raise ValueError(f"{residuals.size} pairs; at least {FEWEST_PAIRS} are needed")
        variances = (residuals / _NORMAL_75) ** 2 - errors**2
        sd = statistics.median(np.sqrt(np.maximum(variances, 0.0)).tolist()).high
        assert sd is not None  # ten values carry an interval
        return cls(sd, tail)

    def p_values(self, residuals: Array, errors: Array) -> Array:
        """Two-sided: how likely such a log ratio, or a larger one, is without a change."""
        half = self.tail / 2
        weights = _STEP * np.exp(
            half * math.log(half) - special.gammaln(half) + half * (_LOG_W - np.exp(_LOG_W))
        )
        scale = self.sd * _NORMAL_75 / float(special.stdtrit(self.tail, 0.75))
        deviations = np.sqrt(errors[:, None] ** 2 + scale**2 * np.exp(-_LOG_W))
        tails = 2 * special.ndtr(-np.abs(residuals)[:, None] / deviations)
        return np.minimum(tails @ weights, 1.0)

    def half_widths(self, errors: Array, level: float = 0.05) -> Array:
        """How large a log ratio must be for a p-value of `level`, for each of the errors."""
        low = np.zeros_like(errors)
        high = 1e3 * (errors + self.sd)
        for _ in range(32):
            middle = (low + high) / 2
            larger = self.p_values(middle, errors) > level
            low, high = np.where(larger, middle, low), np.where(larger, high, middle)
        return high
