"""Executions: one subject measured several times, each time in a process with memory of its own.

Executions of a subject differ by more than the batches within one explain, and some subjects
differ more than others. The few executions of one subject do not tell its variance; those of all
subjects of a target together tell how the variances are distributed, and that is what each of them
is combined with (empirical Bayes; Smyth, Linear models and empirical Bayes methods for assessing
differential expression in microarray experiments, Statistical Applications in Genetics and
Molecular Biology 3, 2004, sections 3 and 6):

    ln(value of an execution) = ln(value of the subject) + error of variance v + batch_error^2
    v ~ variance x degrees_of_freedom / chi^2(degrees_of_freedom)

The speed of a core may vary from minute to minute, with its temperature and with what runs beside
it. Where it is known, values count as they would be at the usual speed:

    value at usual speed = value x (speed / usual speed)^exponent

The expected variance follows a trend: short operators scatter more than long ones (as in Sartor et
al., Intensity-based hierarchical Bayes method improves testing for differentially expressed genes,
BMC Bioinformatics 7, 2006).

An execution that is off by more than this allows, while most others agree, is an outlier. The
further off, the less it counts, so that no answer jumps where others change the scatter a little.
If executions disagree by more than the scatter allows, and none has a majority, the interval holds
them all.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opcost.statistics import NORMAL_97_5, Estimate, student_97_5

MIN_SUBJECTS = 6
"""Fewer subjects with several executions do not tell how variances are distributed."""

_Column = float | NDArray[np.float64]
"""A number, or a column of them: the other axis is that of subjects."""

_LEAST_SD, _MOST_SD = 5e-4, 1.0
MANY_DEGREES = 100.0
_LEAST_DEGREES = 3.0
# ASSUME that variances are distributed about as on the machines of docs/explanation/uncertainty.md:
# few subjects hardly tell, and would often seem to have equal variances.
_USUAL_DEGREES, _USUAL_FACTOR = 6.0, 2.0
_USUAL_SD, _USUAL_SD_FACTOR = 0.02, 3.0
_USUAL_SLOPES = 0.15
_SLOPES = np.linspace(-0.5, 0.5, 11)
_REACH = math.log(10)
"""How far from the centre the trend goes on, in logarithms."""

# ASSUME that runs at one speed differ as on the quiet machine of docs/explanation/uncertainty.md:
# one study cannot tell. On a busy machine, it hardly matters.
_BETWEEN_RUNS_SD = 0.015
"""The relative standard deviation of a time between runs, beyond what executions of one explain."""

_USUAL_SPEED_SD, _ASSUMED_SPEEDS = 0.05, 5
"""The assumed standard deviation of speeds, which counts as that many executions."""


class Exponents(NamedTuple):
    """What is assumed of the power of the core's speed that values are in inverse proportion to,
    unless pairs of executions tell: a value, its standard deviation, and the largest that may be.
    """

    usual: float
    sd: float
    most: float


# ASSUME that the work of operators follows the speed of the core in part.
OF_OPERATORS = Exponents(0.5, 0.5, most=3.0)
"""Where other tenants use a core's caches, work slows down more than the sentinel, which needs few
of them: on a shared EPYC by the power of 1.5 to 2.2."""
# ASSUME that call overhead follows it as on the machine of docs/explanation/context.md.
OF_CALL_OVERHEAD = Exponents(3.5, 1.5, most=8.0)
"""Call overhead is to a large part code that has to be fetched from caches used by others, too."""

MOST_FASTER = 3.0
"""The ratio of speeds beyond which one is an error."""
_FAR = 4.0
"""In standard deviations of speeds: pairs further apart count as if they were so far apart."""
_TO_SD = 1.4826
"""The standard deviation of a normal distribution in median absolute deviations."""
_OF_LEAST_DEVIATIONS = math.pi / 2
"""The variance of an estimate by least absolute deviations, in that by least squares."""

# ASSUME that the speeds that are usual beside subjects differ as beside the whole models of
# docs/explanation/uncertainty.md, unless many subjects tell.
_BESIDE_SD, _DEGREES_BESIDE = 0.015, 8
_ASSUMED_BESIDE = 2
"""The speeds of all executions on the target count as that many degrees of freedom."""

_OUTLIER = 0.001
"""The probability that an execution without a cause of its own is taken for an outlier."""
_STEEP, _LEAST_LIMIT = 10, 1e-9
"""An outlier counts less with that power of its distance in units of the limit."""


@dataclass(frozen=True)
class Scatter:
    """How executions on a target vary: their relative standard deviation, without that of batches,
    and the degrees of freedom of its distribution over subjects: few if subjects are unlike.

    With a `centre`, `sd` is that of subjects of this value; that of others is in proportion to the
    `slope`th power of theirs, up to ten times larger or smaller ones. With a `speed_law`, it is
    that of values at the usual speed of the core.
    """

    sd: float
    degrees_of_freedom: float
    slope: float = 0.0
    centre: float | None = None
    speed_law: "SpeedLaw | None" = None

    def at(self, value: float) -> "Scatter":
        """That of subjects of a value."""
        if self.centre is None:
            return self
        distance = min(max(math.log(value / self.centre), -_REACH), _REACH)
        return self._of(self.sd * math.exp(self.slope * distance), self.degrees_of_freedom)

    def with_error(self, other: "Scatter") -> "Scatter":
        """That of a product of two quantities, of which the speed changes the first."""
        return self._of(
            math.hypot(self.sd, other.sd), min(self.degrees_of_freedom, other.degrees_of_freedom)
        )

    def mixed(self, other: "Scatter", share: float) -> "Scatter":
        """That of a quantity of which a share scatters like another."""
        return self._of(
            math.hypot((1 - share) * self.sd, share * other.sd),
            min(self.degrees_of_freedom, other.degrees_of_freedom),
        )

    def _of(self, sd: float, degrees_of_freedom: float) -> "Scatter":
        return replace(self, sd=sd, degrees_of_freedom=degrees_of_freedom, slope=0.0, centre=None)


@dataclass(frozen=True)
class Executions:
    """The values of one quantity of one subject, the relative standard error of each from its
    batches, and the speed of the core in each, or no speeds; None if that of one is unknown.
    `shared_error` is the relative standard error that all have in common.
    """

    values: Sequence[float]
    batch_errors: Sequence[float | None]
    speeds: Sequence[float | None] = ()
    shared_error: float = 0.0

    @property
    def middle(self) -> float:
        """Their median."""
        return statistics.median(self.values)

    @property
    def batch_variance(self) -> float:
        """The mean variance that batches explain, as far as it is known."""
        return statistics.fmean((error or 0.0) ** 2 for error in self.batch_errors)

    @property
    def variance(self) -> float:
        """The sample variance of the logarithms; there must be two or more."""
        return statistics.variance([math.log(value) for value in self.values])

    def chosen(self, these: Sequence[bool]) -> "Executions":
        """Those that are true in `these`."""
        return Executions(
            list(itertools.compress(self.values, these)),
            list(itertools.compress(self.batch_errors, these)),
            list(itertools.compress(self.speeds, these)),
        )

    def at_usual_speed(self, scatter: Scatter | None) -> "Executions":
        """What they would have found at the usual speed of the core, if that is known."""
        if scatter is None or scatter.speed_law is None or not self.speeds:
            return self
        return scatter.speed_law.corrected(self)


@dataclass(frozen=True)
class SpeedLaw:
    """How values on a target follow the speed of its core: they are in inverse proportion to a
    power of it, of which `exponent_error` is the standard error; `speed_sd` is the relative
    standard deviation of speeds about the usual one, `usual_speed_error` the relative standard
    error of that.
    """

    usual_speed: float
    speed_sd: float
    exponent: float
    exponent_error: float
    usual_speed_error: float = 0.0

    @property
    def value_sd(self) -> float:
        """The relative standard deviation of values as the speed varies."""
        return math.hypot(self.exponent, self.exponent_error) * self.speed_sd

    def corrected(self, executions: Executions) -> Executions:
        """Executions at the usual speed. The error of the exponent is one that they share; that of
        one whose speed is unknown, or impossible, is what the speed may have changed.
        """
        values, errors, logs = [], [], []
        for value, error, speed in zip(
            executions.values, executions.batch_errors, executions.speeds, strict=True
        ):
            faster = math.log(speed / self.usual_speed) if speed else math.inf
            if abs(faster) > math.log(MOST_FASTER):
                faster, error = 0.0, math.hypot(error or 0.0, self.value_sd) or None
            values.append(value * math.exp(self.exponent * faster))
            errors.append(error)
            logs.append(faster)
        of_exponent = abs(statistics.fmean(logs)) * self.exponent_error
        shared = math.hypot(of_exponent, self.exponent * self.usual_speed_error)
        return Executions(values, errors, (), shared)

    def beside(self, speeds: Sequence[float], usual: "SpeedsBeside") -> "SpeedLaw":
        """The law at the speed that is usual beside one subject, from those of its executions: that
        of all, in so far as its own executions do not tell (empirical Bayes).
        """
        logs = [math.log(speed / usual.speed) for speed in _possible(speeds, usual.speed)]
        variance = max(usual.sd, _LEAST_SD) ** 2
        known, assumed = len(logs) / variance, max(usual.error, _LEAST_SD) ** -2
        own = usual.speed * math.exp(sum(logs) / variance / (known + assumed))
        return replace(self, usual_speed=own, usual_speed_error=(known + assumed) ** -0.5)


@dataclass(frozen=True)
class SpeedsBeside:
    """The speed that is usual beside subjects of one kind, the relative standard error of that of a
    further one, and the relative standard deviation of speeds beside one of them.

    The speed that is found differs from subject to subject, for a reason that is not known
    (docs/explanation/uncertainty.md).
    """

    speed: float
    error: float
    sd: float


def speeds_beside(subjects: Sequence[Sequence[float]], speed_sd: float) -> SpeedsBeside | None:
    """From the speeds in the executions of each subject, and the standard deviation of those of all
    executions on the target; None without any. The error is that of what others say of a subject.
    """
    every = [speed for speeds in subjects for speed in speeds]
    if not every:
        return None
    middle = statistics.median(every)
    known = [possible for each in subjects if (possible := _possible(each, middle))]
    squares, degrees = _ASSUMED_BESIDE * speed_sd**2, _ASSUMED_BESIDE
    for speeds in known:
        logs = [math.log(speed) for speed in speeds]
        squares += sum((log - statistics.fmean(logs)) ** 2 for log in logs)
        degrees += len(logs) - 1
    variance, others = squares / degrees, len(known) - 1
    if others < 1:
        return SpeedsBeside(middle, 1.0, math.sqrt(variance))
    of_mean = variance * len(known) / sum(map(len, known))
    means = [statistics.fmean(map(math.log, speeds)) for speeds in known]
    apart = max(statistics.variance(means) - of_mean, 0.0)
    beside = _DEGREES_BESIDE * _BESIDE_SD**2 + others * apart
    of_one = beside / (_DEGREES_BESIDE + others)
    error = math.sqrt(of_one + _OF_LEAST_DEVIATIONS * (of_one + of_mean) / others)
    return SpeedsBeside(middle, error, math.sqrt(variance))


def _possible(speeds: Sequence[float], usual: float) -> list[float]:
    """Those that are no error."""
    most = math.log(MOST_FASTER)
    return [speed for speed in speeds if abs(math.log(speed / usual)) <= most]


def speed_law_of(
    subjects: Sequence[Executions],
    speeds: Sequence[float],
    expected: Exponents = OF_OPERATORS,
) -> SpeedLaw | None:
    """How values follow the speed, given the speeds of all executions on the target.

    None if no speed is known. The exponent is that of the least absolute deviations over all pairs
    of executions. A pair weighs in proportion to the difference of its speeds, up to some standard
    deviations, so that outliers hardly matter. Few pairs, or speeds that hardly differ, leave it
    near the `expected` one.
    """
    if not speeds:
        return None
    usual = statistics.median(speeds)
    distances = [min(abs(math.log(speed / usual)), math.log(MOST_FASTER)) for speed in speeds]
    spread = math.sqrt(
        (sum(each**2 for each in distances) + _ASSUMED_SPEEDS * _USUAL_SPEED_SD**2)
        / (len(distances) + _ASSUMED_SPEEDS)
    )
    far = _FAR * max(_TO_SD * statistics.median(distances), _LEAST_SD)
    pairs = [
        (math.log(speed / other_speed), math.log(value / other), 2 / len(each.values))
        for each in subjects
        if each.speeds
        for (value, speed), (other, other_speed) in itertools.combinations(
            zip(each.values, each.speeds, strict=True), 2
        )
        if speed and other_speed and speed != other_speed
    ]
    exponent, error = expected.usual, expected.sd
    if pairs:
        faster, taken, share = np.array(pairs).T
        exponents, size = -taken / faster, np.minimum(abs(faster), far)
        weights = size * share
        order = np.argsort(exponents)
        middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
        found = float(exponents[order][middle])
        rest = _TO_SD * float(np.median(abs(taken + found * faster)))
        known = float((share * size**2).sum()) / (_OF_LEAST_DEVIATIONS * max(rest, _LEAST_SD) ** 2)
        assumed = expected.sd**-2
        exponent = (known * found + assumed * exponent) / (known + assumed)
        error = (known + assumed) ** -0.5
    return SpeedLaw(usual, spread, min(max(exponent, 0.0), expected.most), error)


def batch_error(estimate: Estimate) -> float | None:
    """The relative standard error that the interval of one execution states; None without one."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    return math.log(estimate.high / estimate.low) / 2 / NORMAL_97_5


def combined(executions: Executions, scatter: Scatter | None) -> Estimate:
    """The weighted geometric mean of the executions, with the interval of what further ones find.

    Without a known scatter, the interval is Student's of these executions; a single one has that of
    its batches, which says nothing about further executions.
    """
    executions = executions.at_usual_speed(scatter)
    values, shares = executions.values, weights(executions, scatter)
    value = math.exp(_mean_logarithm(executions, shares)) if len(values) > 1 else values[0]
    near = near_the_middle(executions, scatter)
    disagree = 2 * sum(near) <= len(near)
    return _with_interval(value, executions, shares, scatter, disagree)


def averaged(executions: Executions, scatter: Scatter | None) -> Estimate:
    """The arithmetic mean of all executions, so that means of parts add up to the mean of their
    sum, with the interval of what further ones find.
    """
    shares = [1.0] * len(executions.values)
    disagree = not all(near_the_middle(executions, scatter))
    value = statistics.fmean(executions.values)
    return _with_interval(value, executions, shares, scatter, disagree)


def _mean_logarithm(executions: Executions, shares: Sequence[float]) -> float:
    return statistics.fmean(map(math.log, executions.values), shares)


def _with_interval(
    value: float,
    executions: Executions,
    shares: Sequence[float],
    scatter: Scatter | None,
    disagree: bool,
) -> Estimate:
    values = executions.values
    if scatter is None and len(values) == 1 and executions.batch_errors[0] is None:
        return Estimate(value, None, None)
    variance, degrees = _variance_of_one(executions, shares, scatter)
    number = sum(shares) ** 2 / sum(each**2 for each in shares)  # Kish's effective one
    error = math.sqrt(variance / number + executions.shared_error**2)
    margin = student_97_5(degrees) * error
    low, high = value * math.exp(-margin), value * math.exp(margin)
    if disagree:
        low, high = min(low, *values), max(high, *values)
    known = degrees if degrees is not None and degrees > 2 else None
    return Estimate(value, low, high, known)


def in_any_run(estimate: Estimate, speed_law: SpeedLaw | None) -> Estimate:
    """A combined time, in an interval that also holds what executions of later runs find.

    The speed that is usual then is taken to differ as much as those of the executions of one run.
    The interval's tails remain those of the executions.
    """
    of_speeds = speed_law.value_sd if speed_law else 0.0
    return _with_variance(estimate, _BETWEEN_RUNS_SD**2 + of_speeds**2)


def at_speed_of_run(estimate: Estimate, speed_law: SpeedLaw) -> Estimate:
    """The estimate of `in_any_run`, in an interval of runs at the same usual speed.

    All times of a run have that speed in common: in their sums, it is no error of each.
    """
    return _with_variance(estimate, -(speed_law.value_sd**2))


def _with_variance(estimate: Estimate, further_variance: float) -> Estimate:
    """The estimate with a variance added to that of its logarithm; a negative one is taken out."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return estimate
    apart = (math.log(each / estimate.value) for each in (estimate.low, estimate.high))
    further = NORMAL_97_5**2 * further_variance
    down, up = (math.sqrt(max(each**2 + further, 0.0)) for each in apart)
    return replace(
        estimate, low=estimate.value * math.exp(-down), high=estimate.value * math.exp(up)
    )


def variance_of_one(executions: Executions, scatter: Scatter | None) -> tuple[float, float | None]:
    """The variance of the logarithm of one further execution, and its degrees of freedom."""
    executions = executions.at_usual_speed(scatter)
    return _variance_of_one(executions, weights(executions, scatter), scatter)


def _variance_of_one(
    executions: Executions, shares: Sequence[float], scatter: Scatter | None
) -> tuple[float, float | None]:
    found = len(executions.values) - 1
    explained = executions.batch_variance
    if scatter is None:
        if not found:
            return explained, None
        return max(executions.variance, explained), float(found)
    expected = scatter.at(executions.middle).sd ** 2 + explained
    degrees = scatter.degrees_of_freedom + found
    middle = _mean_logarithm(executions, shares)
    squares = sum(
        share * (math.log(value) - middle) ** 2
        for share, value in zip(shares, executions.values, strict=True)
    )
    return (scatter.degrees_of_freedom * expected + squares) / degrees, degrees


def weights(executions: Executions, scatter: Scatter | None) -> list[float]:
    """How much each of the executions, at the usual speed, counts: 1 unless it is further from
    their median than the scatter explains, and than others are.
    """
    logs = [math.log(value) for value in executions.values]
    if scatter is None:
        return [1.0] * len(logs)
    middle, limit = statistics.median(logs), max(_limit(executions, scatter), _LEAST_LIMIT)
    shares = [max(abs(each - middle) / limit, 1.0) ** -_STEEP for each in logs]
    return [share / max(shares) for share in shares]


def outlying(executions: Executions, scatter: Scatter | None) -> list[bool]:
    """Whether each execution is an outlier: further from their median than the scatter explains,
    while more than half are not.
    """
    near = near_the_middle(executions, scatter)
    most = 2 * sum(near) > len(near)
    return [most and not each for each in near]


def near_the_middle(executions: Executions, scatter: Scatter | None) -> list[bool]:
    """Whether each execution differs from their median by no more than the scatter explains."""
    if scatter is None or len(executions.values) < 2:
        return [True] * len(executions.values)
    executions = executions.at_usual_speed(scatter)
    logs = [math.log(value) for value in executions.values]
    middle, limit = statistics.median(logs), _limit(executions, scatter)
    return [abs(each - middle) <= limit for each in logs]


def _limit(executions: Executions, scatter: Scatter) -> float:
    """The distance from their median beyond which executions are outliers, of logarithms."""
    from scipy import special

    reach = float(special.stdtrit(scatter.degrees_of_freedom, 1 - _OUTLIER / 2))
    return reach * math.hypot(
        scatter.at(executions.middle).sd, math.sqrt(executions.batch_variance)
    )


def scatter_of(
    subjects: Sequence[Executions], speeds: Sequence[float] | None = None
) -> Scatter | None:
    """How executions vary on a target, from its subjects with several; None for too few of them.

    `speeds` are those of all executions on the target; by default, of these. The most likely
    values, given the sample variances, which are F-distributed in units of the expected variance;
    on a grid, because the likelihood is cheap and may have a flat top.
    """
    several = [each for each in subjects if len(each.values) > 1]
    if len(several) < MIN_SUBJECTS:
        return None
    if speeds is None:
        speeds = [speed for each in subjects for speed in each.speeds if speed]
    speed_law = speed_law_of(several, speeds)
    if speed_law is not None:
        several = [speed_law.corrected(each) if each.speeds else each for each in several]
    observed = np.array([max(each.variance, 1e-14) for each in several])
    explained = np.array([each.batch_variance for each in several])
    found = np.array([len(each.values) - 1.0 for each in several])
    places = np.log([each.middle for each in several])
    centre = float(places.mean())
    places = np.clip(places - centre, -_REACH, _REACH)

    def likelihood(sd: float, degrees: _Column, slope: _Column) -> NDArray[np.float64]:
        expected = (sd * np.exp(slope * places)) ** 2 + explained
        unusual = (np.log(sd / _USUAL_SD) / math.log(_USUAL_SD_FACTOR)) ** 2 / 2
        unlike = (slope / _USUAL_SLOPES) ** 2 / 2
        return _log_likelihood(observed, expected, found, degrees) - np.ravel(unlike) - unusual

    sds = np.geomspace(_LEAST_SD, _MOST_SD, 40)
    degrees = np.geomspace(_LEAST_DEGREES, MANY_DEGREES, 16)
    _, slope = _best(lambda sd, trend: likelihood(sd, _USUAL_DEGREES, trend), sds, _SLOPES)
    for _ in range(2):  # the second grid lies around the best point of the first one
        best = _best(lambda sd, each: likelihood(sd, each, slope), sds, degrees)
        sds, degrees = (_around(*each) for each in zip(best, (sds, degrees), strict=True))
    sd, degrees_of_freedom = best
    if speed_law is not None:  # the exponent took one of the degrees of freedom
        sd *= math.sqrt(found.sum() / (found.sum() - 1))
    return Scatter(sd, degrees_of_freedom, slope, math.exp(centre), speed_law)


def _best(
    likelihood: Callable[[float, NDArray[np.float64]], NDArray[np.float64]],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
) -> tuple[float, float]:
    """The most likely point of a grid; the likelihood takes a row of it at once, as a column."""
    found = [likelihood(one, second[:, None]) for one in first]
    row, column = divmod(int(np.argmax(found)), len(second))
    return float(first[row]), float(second[column])


def _around(best: float, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """A finer grid between the neighbours of its best point."""
    place = int(np.argmin(abs(grid - best)))
    return np.geomspace(grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)], 15)


def _log_likelihood(
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
    found: NDArray[np.float64],
    degrees: _Column,
) -> NDArray[np.float64]:
    """Of sample variances with `found` degrees of freedom, up to a constant: of each of `degrees`,
    or of each row of `expected`."""
    from scipy import special

    share = observed / expected * found / degrees
    terms = (
        found / 2 * np.log(share)
        - (found + degrees) / 2 * np.log1p(share)
        - special.betaln(found / 2, degrees / 2)
    )
    usual = np.log(degrees / _USUAL_DEGREES) / math.log(_USUAL_FACTOR)
    likelihoods: NDArray[np.float64] = terms.sum(axis=-1) - np.ravel(usual) ** 2 / 2
    return likelihoods
