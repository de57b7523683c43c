"""The variation between measurements of one operator, estimated from the tested pairs themselves.

The log ratio of a pair has three components: the error of each row (known from its interval:
normal, or Student's if it combines executions), the variation between studies, and a real change.
The variation differs between machines and days, but because most pairs have not changed, the median
pair shows it (an empirical null: Efron, Large-scale simultaneous hypothesis testing: the choice of
a null hypothesis, JASA 99, 2004). The median does not determine the tails, which are heavy because
of occasional outliers. They follow Student's t with the degrees of freedom of repeated studies
(tests/benchmarks/difference.py).
"""

# ASSUME that fewer than four in ten pairs deviate from the common change.

import math
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from opcost import statistics

Array: TypeAlias = NDArray[np.float64]

MIN_PAIRS = 10
"""Fewer pairs do not determine the variation between measurements."""

SOUND_TAIL, DOUBTFUL_TAIL = 5.0, 2.0
"""Degrees of freedom of pairs of sound rows and of other pairs (see docs/how_to/query.md)."""

_NORMAL_75 = float(special.ndtri(0.75))
# Student's t is a normal distribution whose variance is divided by W ~ chi^2 / degrees of freedom.
# The trapezoidal sum over ln W is nearly exact, because the integrand vanishes at both ends.
_STEP = 0.25
_LOG_W = np.arange(-20.0, 3.0, _STEP)


@dataclass(frozen=True)
class NullDistribution:
    """The distribution of a log ratio without a change, excluding errors within the measurements.

    `sd` is the standard deviation of the normal distribution with the same quartiles, `tail` the
    degrees of freedom of Student's t.
    """

    sd: float
    tail: float

    @classmethod
    def of(cls, residuals: Array, errors: Array, tail: float) -> Self:
        """The null distribution of log ratios around the common change.

        `errors` are the standard deviations within the measurements, as log ratios. `sd` is the
        upper limit of the 95 % interval of the median, so that it is not too small by chance. It is
        zero if the errors explain the pairs. Raises ValueError for fewer than MIN_PAIRS.
        """
        if residuals.size < MIN_PAIRS:
            raise ValueError(f"{residuals.size} pairs; at least {MIN_PAIRS} are required")
        variances = (residuals / _NORMAL_75) ** 2 - errors**2
        sd = statistics.median(np.sqrt(np.maximum(variances, 0.0)).tolist()).high
        assert sd is not None  # ten values have an interval
        return cls(sd, tail)

    def p_values(self, residuals: Array, errors: Array, degrees: Array) -> Array:
        """Two-sided p-values: the probability of such a log ratio, or a larger one, by chance.

        `errors` are standard deviations; those with finite `degrees` of freedom are Student's.
        """
        p_values = self._with_normal(residuals, errors)
        known = np.isfinite(degrees)
        p_values[known] = self._with_student(residuals[known], errors[known], degrees[known])
        return p_values

    def _with_student(self, residuals: Array, errors: Array, degrees: Array) -> Array:
        """The sum of two Student's variables is taken as one, with degrees of freedom by Welch, or
        with the heavier tail if a variance is infinite.
        """
        scale = self._scale
        if self.tail <= 2:
            total = np.minimum(degrees, self.tail if self.sd else np.inf)
            scales = np.hypot(errors * np.sqrt((degrees - 2) / degrees), scale)
        else:
            own = scale**2 * self.tail / (self.tail - 2)
            variances = errors**2 + own
            total = variances**2 / (errors**4 / degrees + own**2 / self.tail)
            scales = np.sqrt(variances * (total - 2) / total)
        p_values: Array = 2 * special.stdtr(total, -np.abs(residuals) / scales)
        return p_values

    @property
    def _scale(self) -> float:
        return self.sd * _NORMAL_75 / float(special.stdtrit(self.tail, 0.75))

    def _with_normal(self, residuals: Array, errors: Array) -> Array:
        half = self.tail / 2
        weights = _STEP * np.exp(
            half * math.log(half) - special.gammaln(half) + half * (_LOG_W - np.exp(_LOG_W))
        )
        deviations = np.sqrt(errors[:, None] ** 2 + self._scale**2 * np.exp(-_LOG_W))
        tails = 2 * special.ndtr(-np.abs(residuals)[:, None] / deviations)
        return np.minimum(tails @ weights, 1.0)

    def half_widths(self, errors: Array, degrees: Array, level: float = 0.05) -> Array:
        """The log ratio with p-value `level`, for each of the errors."""
        low = np.zeros_like(errors)
        high = 1e3 * (errors + self.sd)
        for _ in range(32):
            middle = (low + high) / 2
            larger = self.p_values(middle, errors, degrees) > level
            low, high = np.where(larger, middle, low), np.where(larger, high, middle)
        return high
