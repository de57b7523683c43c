"""Significant changes between two databases.

Two causes are separated. Clocks, a power limit or interference change all operators by a common
factor; a driver or a version of PyTorch changes single operators. The **common change** of a target
is the median change. ASSUME that a study is off by no more than one of its runs. **Each operator**
is tested for a change other than the common one, with the run-to-run variation of both databases
(`noise`; Welch's test), or with the spread of all operators about the common change if that is
larger, because two studies may differ by more than runs of one. Fewer than ten operators have no
common change: each is tested for any change that the error of a study does not explain.

The p-values of all tests are adjusted for the false discovery rate: the expected share of reported
changes that are none is at most the level (Benjamini and Hochberg, Controlling the false discovery
rate, Journal of the Royal Statistical Society B 57, 1995).
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from scipy import special
from scipy.stats import false_discovery_control

from opcost.difference.pairing import Pairing, pair_databases
from opcost.errors import OpcostError
from opcost.noise import USUAL_DEGREES, Variation
from opcost.rows import schemas
from opcost.rows.quantities import COMPARED, ENERGY, POWER, TIME, Quantity
from opcost.rows.runs import Noise, Row, noise_of, runs_in
from opcost.statistics import Estimate, median

MIN_PAIRS = 10
"""The minimum number of operators for a common change."""

MOST_DETECTABLE = 2.0
"""If the smallest detectable change is a larger ratio, the answer is undecided."""

_TO_SCALE = 1 / float(special.stdtrit(USUAL_DEGREES, 0.75))
"""The scale of Student's distribution of an operator's error in median absolute deviations."""

_MORE = 1.5
"""Operators whose spread exceeds their errors by this factor vary between studies."""

_Variance = tuple[float, float]
"""A relative variance and its degrees of freedom."""


@dataclass
class Change:
    """A change of an operator, or the common change, which has no rows: ln(after / before), tested
    against `common`, and the p-value adjusted for the number of tests. The error of the logarithm
    has Student's distribution.
    """

    log: float
    scale: float
    degrees_of_freedom: float
    common: float = 0.0
    before: Row = field(default_factory=dict)
    after: Row = field(default_factory=dict)
    adjusted_p: float = 1.0
    significant: bool = False

    @property
    def p(self) -> float:
        """The two-sided p-value of no change except the common one."""
        standardised = -abs(self.log - self.common) / self.scale
        return float(2 * special.stdtr(self.degrees_of_freedom, standardised))

    @property
    def ratio(self) -> Estimate:
        """After / before, with its 95 % interval."""
        return _exponential(self.log, self.half_width(0.05))

    def own(self, level: float) -> Estimate:
        """The ratio divided by the common change, with the interval that excludes 1 if `p` is below
        the level.
        """
        return _exponential(self.log - self.common, self.half_width(level))

    def half_width(self, level: float) -> float:
        """The absolute logarithm whose p-value is the level."""
        return -float(special.stdtrit(self.degrees_of_freedom, level / 2)) * self.scale


@dataclass(frozen=True)
class QuantityChange:
    """Changes in time or energy on one target, and run-to-run variation before and after.

    `common` is None for fewer than ten operators.
    """

    pairing: Pairing
    quantity: Quantity
    common: Change | None
    operators: Sequence[Change]
    variations: Sequence[Variation]

    def detectable(self, level: float) -> float:
        """The smallest change of a typical operator, as a ratio above one, whose p-value is the
        level.
        """
        return math.exp(statistics.median(each.half_width(level) for each in self.operators))


@dataclass(frozen=True)
class Difference:
    """The changes between two databases: the rows of each target, and the changes in time and
    energy if both have them.

    `tests` are all changes; a p-value of at most `p_level` is significant.
    """

    targets: Sequence[Pairing]
    quantities: Sequence[QuantityChange]
    tests: Sequence[Change]
    level: float
    p_level: float

    @property
    def found(self) -> list[Change]:
        """The operators with a significant change."""
        return [each for of in self.quantities for each in of.operators if each.significant]

    @property
    def common_found(self) -> list[QuantityChange]:
        """The significant common changes."""
        return [each for each in self.quantities if each.common and each.common.significant]

    @property
    def failures(self) -> list[tuple[Row, Row]]:
        """Pairs of rows of which only one has a result."""
        return [pair for target in self.targets for pair in target.failed]

    @property
    def changed(self) -> bool:
        """Whether anything changed: an operator, all operators, or a status."""
        return bool(self.found or self.common_found or self.failures)

    @property
    def undecided(self) -> list[str]:
        """Why it is unknown whether a target changed, and what to do."""
        reasons = [
            (
                each,
                "no operator tuple was measured for each; measure the same models for both",
            )
            for each in self.targets
            if all(of.pairing is not each for of in self.quantities)
        ]
        reasons += [
            (
                each.pairing,
                f"{each.quantity} is too noisy, only a change of an operator by more than "
                f"{MOST_DETECTABLE - 1:.0%} would be found; measure both in more rounds, on a "
                "quiet machine",
            )
            for each in self.quantities
            if each.detectable(self.p_level) > MOST_DETECTABLE
        ]
        return [f"Cannot tell: {why} (target {each.before_target})." for each, why in reasons]

    def to_table(self) -> pa.Table:
        """One row for each tuple and target in either database; see schemas.DIFFERENCE."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for target in self.targets:
            names = {"target_before": target.before_target, "target_after": target.after_target}
            for side, found in (("before", target.before), ("after", target.after)):
                for tuple_id, row in found.items():
                    columns = rows.setdefault((target.before_target, tuple_id), dict(names))
                    columns |= {name: row[name] for name in ("tuple_id", "operator", "description")}
                    columns |= {f"{name}_{side}": row[name] for name in ("status", "flags")}
                    columns |= {each.at(side): row[each.value] for each in COMPARED}
        for of in self.quantities:
            for each in of.operators:
                rows[of.pairing.before_target, each.before["tuple_id"]] |= {
                    **of.quantity.relative("ratio").columns(each.ratio),
                    f"{of.quantity}_deviation": math.exp(each.log - each.common),
                    f"{of.quantity}_p": each.p,
                    f"{of.quantity}_adjusted_p": each.adjusted_p,
                    f"{of.quantity}_changed": each.significant,
                }
        return pa.Table.from_pylist(list(rows.values()), schema=schemas.DIFFERENCE)


def compare_databases(
    before: Path,
    after: Path,
    *,
    targets: Mapping[str, str] | None = None,
    before_conditions: str | None = None,
    after_conditions: str | None = None,
    level: float = 0.05,
    anyway: bool = False,
) -> Difference:
    """Compare two databases, merged or not, with a false discovery rate of `level`.

    Other arguments and errors are those of `pair_databases`. Also raises OpcostError if rows were
    measured with different protocols or settings, unless `anyway`.
    """
    pairings = pair_databases(before, after, targets, before_conditions, after_conditions)
    if not anyway:
        refuse_incomparable(pairings)
    quantities = [each for pairing in pairings for each in changes_of(pairing)]
    tests = [each for of in quantities for each in (of.common, *of.operators) if each]
    return Difference(pairings, quantities, tests, level, adjust(tests, level))


def refuse_incomparable(pairings: Sequence[Pairing], names: Sequence[str] = ()) -> None:
    """Raise OpcostError if the sides differ in protocol or settings, or in one of these columns."""
    reasons = dict.fromkeys(
        f"target {pairing.before_target}: {each.name} is {each.before} before, {each.after} after"
        for pairing in pairings
        for each in pairing.conditions
        if not each.comparable or each.name in names
    )
    if reasons:
        raise OpcostError(
            "the databases are not comparable: "
            f"{'; '.join(reasons)}. Measure both alike, or use --anyway"
        )


def adjust(tests: Sequence[Change], level: float) -> float:
    """Adjust p-values for the number of tests, and return the largest significant one."""
    adjusted = false_discovery_control([each.p for each in tests]) if tests else []
    for test, p in zip(tests, adjusted, strict=True):
        test.adjusted_p, test.significant = float(p), bool(p <= level)
    return level * max(sum(each.significant for each in tests), 1) / max(len(tests), 1)


def changes_of(pairing: Pairing) -> Iterator[QuantityChange]:
    """The changes of each quantity that both sides have, with unadjusted p-values."""
    noises = [noise_of([*rows.values()]) for rows in (pairing.before, pairing.after)]
    for quantity in COMPARED:
        pairs = [pair for pair in pairing.pairs if all(row[quantity.value] for row in pair)]
        if pairs:
            common, operators = _changes(quantity, pairs, noises)
            variations = [noise.variations[quantity] for noise in noises]
            yield QuantityChange(pairing, quantity, common, operators, variations)


def _changes(
    quantity: Quantity, pairs: Sequence[tuple[Row, Row]], noises: Sequence[Noise]
) -> tuple[Change | None, list[Change]]:
    logs = [math.log(after[quantity.value] / before[quantity.value]) for before, after in pairs]
    variations = (noise.variations[quantity] for noise in noises)
    of_studies = [(each.sd**2, each.degrees_of_freedom) for each in variations]
    common, shift, spread = None, 0.0, 0.0
    if len(pairs) >= MIN_PAIRS:
        centre = median(logs)
        shift = centre.value
        spread = _TO_SCALE * statistics.median(abs(log - shift) for log in logs)
        variance, degrees = _total([*of_studies, ((centre.sd or 0.0) ** 2, math.inf)])
        common = Change(shift, math.sqrt(variance), degrees)
    scales = []
    for pair in pairs:
        variances = [] if common else [*of_studies]
        for row, noise in zip(pair, noises, strict=True):
            variances += variances_of(row, quantity, noise)
        variance, degrees = _total(variances)
        # Operators vary unequally, and the pooled variance is their mean: errors have the tails of
        # Student's t with few degrees of freedom and the expected variance.
        scales.append(math.sqrt(variance / (1 - 2 / degrees) * (1 - 2 / USUAL_DEGREES)))
    least = spread if spread > _MORE * statistics.median(scales) else 0.0
    return common, [
        Change(log, max(scale, least), USUAL_DEGREES, shift, *pair)
        for log, scale, pair in zip(logs, scales, pairs, strict=True)
    ]


def variances_of(row: Row, quantity: Quantity, noise: Noise) -> Iterator[_Variance]:
    """The independent parts of a value's relative variance, and their degrees of freedom."""
    for part in (TIME, POWER) if quantity == ENERGY else (quantity,):
        variation, runs = noise.variations[part], runs_in(row, part)
        assert runs is not None  # a row with energy has time and power
        yield variation.of_one(runs) / len(runs.values), variation.degrees_of_freedom


def _total(variances: Sequence[_Variance]) -> _Variance:
    """The sum of independent variances (Welch-Satterthwaite)."""
    total = sum(variance for variance, _ in variances)
    return total, total**2 / sum(variance**2 / degrees for variance, degrees in variances)


def _exponential(log: float, half_width: float) -> Estimate:
    return Estimate(*(math.exp(each) for each in (log, log - half_width, log + half_width)))
