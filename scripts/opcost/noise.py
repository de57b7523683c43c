"""The statistical model of noise: how measurements vary, and the intervals that follow.

**A run** is one measurement of a subject (an operator, or a model end to end) in a process of its
own: the median of its undisturbed blocks, with b, the relative standard error of that median.

**A value** is the geometric mean of a subject's n undisturbed runs.

**Run-to-run variation** s is the relative standard deviation of runs beyond what their blocks
explain, pooled over subjects and shrunk towards a usual one s0, which counts as 4 degrees of
freedom:

    s^2 = (4 s0^2 + sum over subjects of max(0, sum of (ln run - ln value)^2 - (n - 1) mean b^2))
          / (4 + sum over subjects of (n - 1))

A row of the database pools only its own runs, so that no other row changes it. Estimates,
comparisons and `diff` pool all subjects of a target, of one kind and quantity.

**An interval** is Student's, of the logarithm, with the degrees of freedom of s:

    ln value +- t sqrt((s^2 + mean b^2) / n)

It is extended to contain all runs if these differ by more than 5 sqrt(s^2 + mean b^2).

**An estimate** adds terms with independent errors: distances of limits add up in quadrature
(`statistics.weighted_sum`).

**The model error** m is the deviation of estimates from end-to-end measurements, over the N other
models of a target:

    m^2 = (4 m0^2 + sum of ln(estimate / end-to-end)^2) / (4 + N)

It widens an estimate's interval, by Student's t with 4 + N degrees of freedom, when the estimate is
read. A model without others has none.

Shrinking a variance towards a usual one is the empirical Bayes estimate of Smyth (Linear models and
empirical Bayes methods for assessing differential expression in microarray experiments, Statistical
Applications in Genetics and Molecular Biology 3, 2004).
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.statistics import NORMAL_97_5, Estimate, student_97_5

USUAL_DEGREES = 4
"""The degrees of freedom of a usual deviation."""

USUAL_MODEL_ERROR, USUAL_TRAINING_ERROR = 0.04, 0.06
"""The usual model error of inference and of training (docs/explanation/uncertainty.md)."""

_DISAGREEMENT = 5.0


@dataclass(frozen=True)
class Runs:
    """The values of one quantity of one subject, one for each run, and their relative standard
    errors from blocks; None if unknown.
    """

    values: Sequence[float]
    block_errors: Sequence[float | None]

    @property
    def value(self) -> float:
        """The geometric mean of the runs; exact for a single run."""
        if len(self.values) == 1:
            return self.values[0]
        return statistics.geometric_mean(self.values)

    @property
    def block_variance(self) -> float:
        """The mean relative variance explained by blocks, as far as it is known."""
        return statistics.fmean((error or 0.0) ** 2 for error in self.block_errors)

    @property
    def squares(self) -> float:
        """The sum of squared deviations of the logarithms, beyond what blocks explain."""
        logs = [math.log(value) for value in self.values]
        middle = statistics.fmean(logs)
        explained = (len(logs) - 1) * self.block_variance
        return sum((log - middle) ** 2 for log in logs) - explained

    @property
    def reach(self) -> float:
        """The range of the runs, as a difference of logarithms."""
        return math.log(max(self.values) / min(self.values))


@dataclass(frozen=True)
class Variation:
    """Run-to-run variation: a relative standard deviation and its degrees of freedom."""

    sd: float
    degrees_of_freedom: float = USUAL_DEGREES

    def of_one(self, runs: Runs) -> float:
        """The relative variance of one run, including its blocks."""
        return self.sd**2 + runs.block_variance


def pooled(subjects: Iterable[Runs], usual_sd: float) -> Variation:
    """The run-to-run variation of subjects, shrunk towards a usual one."""
    squares, degrees = 0.0, 0
    for runs in subjects:
        squares += max(runs.squares, 0.0) if len(runs.values) > 1 else 0.0
        degrees += len(runs.values) - 1
    total = USUAL_DEGREES + degrees
    return Variation(math.sqrt((USUAL_DEGREES * usual_sd**2 + squares) / total), total)


def combined(runs: Runs, variation: Variation) -> Estimate:
    """The value of a subject with its interval."""
    return with_interval(runs.value, runs, variation)


def with_interval(value: float, runs: Runs, variation: Variation) -> Estimate:
    """A positive mean of the runs with its interval."""
    error = math.sqrt(variation.of_one(runs) / len(runs.values))
    factor = math.exp(student_97_5(variation.degrees_of_freedom) * error)
    low, high = value / factor, value * factor
    if disagree(runs, variation):
        low, high = min(low, *runs.values), max(high, *runs.values)
    return Estimate(value, low, high)


def disagree(runs: Runs, variation: Variation) -> bool:
    """Whether runs differ by more than run-to-run variation and their blocks explain."""
    return runs.reach > _DISAGREEMENT * math.sqrt(variation.of_one(runs))


def block_error(estimate: Estimate) -> float | None:
    """The relative standard error that an interval from one run's blocks implies, or None."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    return math.log(estimate.high / estimate.low) / 2 / NORMAL_97_5


@dataclass(frozen=True)
class ModelError:
    """The relative standard deviation of estimates from end-to-end measurements, and the number of
    models.
    """

    sd: float
    models: int

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, relative."""
        return student_97_5(USUAL_DEGREES + self.models) * self.sd


def model_error(log_ratios: Sequence[float], usual_sd: float) -> ModelError | None:
    """The model error from ln(estimate / end-to-end) of each other model; None without any."""
    if not log_ratios:
        return None
    squares = USUAL_DEGREES * usual_sd**2 + sum(ratio**2 for ratio in log_ratios)
    return ModelError(math.sqrt(squares / (USUAL_DEGREES + len(log_ratios))), len(log_ratios))
