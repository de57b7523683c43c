"""A gate: whether anything costs more after a change than before, by more than a limit.

A **thing** is a model, an operator (the sum over its tuples) or an operator tuple. Its change is
ln(after / before), of geometric means over the studies of each side.

**Error.** A value has a relative variance v of its own and, ASSUME as in `databases`, its study is
off by one of its runs, with the variance w. Several studies show the deviations d of logarithms
from the mean of their side, with f degrees of freedom for a thing and F for all of them:

    c^2 = max(1, (4 + sum over things of d^2 / (v + w)) / (4 + F))
    s^2 = (4 c^2 (v / 2 + w) + sum of d^2) / (4 + f)

The half is that of `databases`: v is a mean, and things vary unequally.

The change has Student's distribution with 4 + f degrees of freedom, and the variance
s^2 (1 / studies before + 1 / studies after).

**Verdict.** *Worse*: the one-sided p-value, adjusted for the number of tests (Benjamini and
Hochberg, as in `databases`), is at most the level. If nothing is worse, the probability of an alarm
is at most the level. *Not worse*: the one-sided upper limit is below the allowed one. It needs no
adjustment, as the gate says so only if it holds for everything (Berger, Multiparameter hypothesis
testing and acceptance sampling, Technometrics 24, 1982).
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

from scipy import special
from scipy.stats import false_discovery_control

from opcost.difference.databases import refuse_incomparable, variances_of
from opcost.difference.pairing import Condition, Pairing, pair_databases
from opcost.difference.summary import SOURCES, Costs, model_costs
from opcost.errors import OpcostError
from opcost.groups import grouped
from opcost.noise import USUAL_DEGREES, Runs
from opcost.results_folder import ANSWERS
from opcost.rows.comparability import OF_ONE_DEVICE
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.rows.runs import Row, noise_of
from opcost.statistics import Estimate, student_97_5
from opcost.tuples.operator_tuple import short_name

MODEL, OPERATOR, TUPLE = KINDS = ("model", "operator", "tuple")
MOST_FURTHER, _POWER = 100, 0.8


class Verdict(StrEnum):
    """The verdict on a thing; that of a gate is the first of these that any thing has."""

    WORSE = "worse"
    UNDECIDED = "undecided"
    NOT_WORSE = "not worse"


class Limit(NamedTuple):
    """The increase of time or energy that is allowed, as a share: 0.05 is 5 %."""

    quantity: Quantity
    share: float

    def __str__(self) -> str:
        return f"{self.quantity}>{100 * self.share:g}%"


class Value(NamedTuple):
    """The value of a thing in a study, and the relative variances: its own, and the study's."""

    value: float
    own: float
    of_study: float


Study = Mapping[str, Value]
"""The values of things by name."""

ModelCosts = Mapping[str, Mapping[tuple[str, str], Estimate]]
"""Model -> source and quantity -> cost, on one target."""


@dataclass
class Gated:
    """The change of a thing, as a logarithm; the relative standard deviation of a study; and the
    one-sided levels of the limits of its interval.
    """

    limit: Limit
    target: str
    name: str
    log: float
    sd: float
    studies: tuple[int, int]
    upper_level: float
    lower_level: float

    @property
    def change(self) -> tuple[float, float, float]:
        """After / before less one, and the interval that decides."""
        low, high = (self._reach(each, *self.studies) for each in self._levels)
        return math.expm1(self.log), math.expm1(self.log - low), math.expm1(self.log + high)

    @property
    def excess(self) -> float:
        """The logarithm of the change over the limit; negative below it."""
        return self.log - math.log1p(self.limit.share)

    @property
    def p(self) -> float:
        """The one-sided p-value of an increase up to the limit."""
        scale, degrees = self._error(*self.studies)
        return float(special.stdtr(degrees, -self.excess / scale))

    @property
    def verdict(self) -> Verdict:
        """Whether the interval lies above the limit, below it, or contains it."""
        below, above = (
            abs(self.excess) > self._reach(each, *self.studies) for each in self._levels
        )
        if self.excess > 0:
            return Verdict.WORSE if below else Verdict.UNDECIDED
        return Verdict.NOT_WORSE if above else Verdict.UNDECIDED

    @property
    def further(self) -> int:
        """The number of further studies of each side, at most 100, that decide with a probability
        of 80 % if the change is as found.
        """
        level = self._levels[self.excess <= 0]
        for number in range(1, MOST_FURTHER):
            studies = [each + number for each in self.studies]
            reach = self._reach(level, *studies) + self._reach(1 - _POWER, *studies)
            if reach <= abs(self.excess):
                return number
        return MOST_FURTHER

    @property
    def _levels(self) -> tuple[float, float]:
        return self.lower_level, self.upper_level

    def _error(self, before: int, after: int) -> tuple[float, int]:
        return self.sd * math.sqrt(1 / before + 1 / after), USUAL_DEGREES + before + after - 2

    def _reach(self, level: float, before: int, after: int) -> float:
        scale, degrees = self._error(before, after)
        return -float(special.stdtrit(degrees, level)) * scale


@dataclass(frozen=True)
class Gate:
    """The changes of things of one kind; those without a value in a study after, with the reason;
    others that are not in all studies; and differences in conditions.
    """

    by: str
    things: Sequence[Gated]
    failures: Mapping[str, str]
    left_out: Sequence[str]
    conditions: Sequence[Condition]

    @property
    def verdict(self) -> Verdict:
        """Worse if anything is or failed; not worse if all is; or else undecided."""
        found = {each.verdict for each in self.things} | {Verdict.WORSE for _ in self.failures}
        return next(each for each in Verdict if each in found)


def gate(
    before: Sequence[Path],
    after: Sequence[Path],
    limits: Sequence[Limit],
    *,
    by: str | None = None,
    level: float = 0.05,
    anyway: bool = False,
    **pairing: Any,
) -> Gate:
    """Apply limits to what changed between studies before and studies after, each a database.

    `by` is one of KINDS; by default models if answers lie beside all databases, or else operators.
    `pairing` goes to `pair_databases`. Raises OpcostError like `compare_databases`, and for a study
    given twice, for another device, and if nothing has a value in all studies.
    """
    paths, number = [*before, *after], len(before)
    pairs = [*((path, after[0]) for path in before), *((before[0], path) for path in after)]
    found = [pair_databases(*each, **pairing) for each in pairs]
    if not anyway:
        refuse_incomparable([each for of in found for each in of], ("device_name", *OF_ONE_DEVICE))
    by_target = [{each.before_target: each for each in of} for of in found]
    if any(each.keys() != by_target[0].keys() for each in by_target):
        raise OpcostError("the databases have different targets: choose some with --target")
    answers = [each.parent / ANSWERS.name for each in paths]
    by = by or (MODEL if all(each.is_file() for each in answers) else OPERATOR)
    costs = [*map(model_costs, answers)]
    things: list[Gated] = []
    failures: dict[str, str] = {}
    left_out: set[str] = set()
    for target in by_target[0]:
        pairings = [each[target] for each in by_target]
        rows = [*(of.before for of in pairings[:number]), *(of.after for of in pairings[number:])]
        names = [target] * number + [each.after_target for each in pairings[number:]]
        of_models = [_of_target(*each) for each in zip(costs, names, strict=True)]
        _refuse_copies(paths, rows)
        failures |= _failed_models(of_models, number) if by == MODEL else _failed_tuples(pairings)
        shown = {each: row["description"] for of in rows for each, row in of.items()}
        for limit in limits:
            if by == MODEL:
                choices = [
                    [values_of_models(each, limit.quantity, source) for each in of_models]
                    for source in reversed(SOURCES)
                ]
            else:
                choices = [[values_of_tuples(each, limit.quantity) for each in rows]]
            values = {name: of for each in choices for name, of in in_all(each).items()}
            left_out |= {
                shown.get(each, each) for of in choices for each in {*chain(*of)} - values.keys()
            }
            if by == OPERATOR:
                values = by_operator(values, rows[0])
            named = {shown.get(name, name): of for name, of in values.items()}
            things += changes(named, number, limit, target, level)
    for limit in limits:
        if all(each.limit != limit for each in things):
            raise OpcostError(
                f"no {by} has {limit.quantity} in all of the databases: measure the same models"
            )
    adjust_levels(things, level)
    return Gate(by, things, failures, sorted(left_out - failures.keys()), found[0][0].conditions)


def _of_target(costs: Costs, target: str) -> ModelCosts:
    return {model: each for (model, of), each in costs.items() if of == target}


def _refuse_copies(paths: Sequence[Path], studies: Sequence[Mapping[str, Row]]) -> None:
    for (path, rows), (other, others) in combinations(zip(paths, studies, strict=True), 2):
        both = rows.keys() & others.keys()
        if 2 * sum(
            len(rows[each][TIME.runs] or ()) > 0
            and rows[each][TIME.runs] == others[each][TIME.runs]
            for each in both
        ) > len(both):
            raise OpcostError(f"{path} and {other} are the same study: name each study once")


def values_of_tuples(rows: Mapping[str, Row], quantity: Quantity) -> Study:
    """The values in the rows of a study, by tuple id."""
    noise = noise_of([*rows.values()])
    of_study = noise.variations[quantity].sd ** 2
    return {
        each: Value(
            row[quantity.value],
            sum(part for part, _ in variances_of(row, quantity, noise)),
            of_study,
        )
        for each, row in rows.items()
        if row["status"] == "ok" and row[quantity.value]
    }


def values_of_models(costs: ModelCosts, quantity: Quantity, source: str) -> Study:
    """The costs of models in a study, end to end or estimated. Where the variation of runs is
    unknown, it is that of the cost.
    """
    found = {}
    for model, known in costs.items():
        cost = known.get((source, quantity.value))
        if cost is not None and cost.low and cost.high:
            own = (math.log(cost.high / cost.low) / 2 / student_97_5(USUAL_DEGREES)) ** 2
            run_sd = known.get(("estimate", quantity.run_sd))
            found[model] = Value(cost.value, own, run_sd.value**2 if run_sd else own)
    return found


def _failed_tuples(pairings: Sequence[Pairing]) -> dict[str, str]:
    pairs = [pair for each in pairings for pair in each.failed if pair[0]["status"] == "ok"]
    return {row["description"]: row["error"] or row["status"] for _, row in pairs}


def _failed_models(studies: Sequence[ModelCosts], before: int) -> dict[str, str]:
    """The models with a cost in a study before, and none in the answers of one after."""
    places = {(source, quantity.value) for source in SOURCES for quantity in COMPARED}
    known = {name for each in studies[:before] for name in each if places & each[name].keys()}
    lost = {name for each in studies[before:] for name in each if not places & each[name].keys()}
    return dict.fromkeys(sorted(known & lost), "no time and no energy")


def in_all(studies: Sequence[Study]) -> dict[str, list[Value]]:
    """The values of things that have one in each study."""
    names = set.intersection(*({*each} for each in studies))
    return {name: [each[name] for each in studies] for name in sorted(names)}


def by_operator(
    tuples: Mapping[str, Sequence[Value]], rows: Mapping[str, Row]
) -> dict[str, list[Value]]:
    """The sums over the tuples of each operator."""
    groups = grouped((short_name(rows[each]["operator"]), tuples[each]) for each in tuples)
    return {
        name: [_sum(each) for each in zip(*group, strict=True)] for name, group in groups.items()
    }


def _sum(values: Sequence[Value]) -> Value:
    total = sum(each.value for each in values)
    own = sum((each.value / total) ** 2 * each.own for each in values)
    return Value(total, own, values[0].of_study)


def changes(
    values: Mapping[str, Sequence[Value]], before: int, limit: Limit, target: str, level: float
) -> Iterator[Gated]:
    """The change of each thing, from its values in so many studies before and the others after."""
    found, relative = [], float(USUAL_DEGREES)
    for name, of in values.items():
        sides = [
            Runs([each.value for each in part], [None] * len(part))
            for part in (of[:before], of[before:])
        ]
        own, of_study = (statistics.fmean(each[part] for each in of) for part in (1, 2))
        squares = sum(each.squares for each in sides)
        relative += squares / (own + of_study)
        log = math.log(sides[1].value / sides[0].value)
        found.append((name, log, own / 2 + of_study, squares, len(of) - 2))
    factor = max(1.0, relative / (USUAL_DEGREES + sum(degrees for *_, degrees in found)))
    for name, log, usual, squares, degrees in found:
        variance = (USUAL_DEGREES * factor * usual + squares) / (USUAL_DEGREES + degrees)
        studies = before, degrees + 2 - before
        yield Gated(limit, target, name, log, math.sqrt(variance), studies, level, level)


def adjust_levels(things: Sequence[Gated], level: float) -> None:
    """Adjust the levels of lower limits for the number of tests: above the allowed increase are
    those of changes whose adjusted p-value is at most the level.
    """
    adjusted = false_discovery_control([each.p for each in things])
    for each in things:
        each.lower_level = level * max(int((adjusted <= level).sum()), 1) / len(things)
