"""Significant changes between two databases.

The p-values of all tests, over targets, time and energy, single operators (`changes`) and the
common change, are adjusted for the false discovery rate: of what is reported, an expected share of
at most the level did not change; if nothing changed, the probability of any report is at most the
level (Benjamini and Hochberg, Controlling the false discovery rate, Journal of the Royal
Statistical Society B 57, 1995).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from scipy.stats import false_discovery_control

from opcost.costs.terms import Row
from opcost.difference.changes import Change, QuantityChange, changes_of
from opcost.difference.pairing import Pairing, pair_databases
from opcost.errors import OpcostError
from opcost.rows import schemas
from opcost.rows.quantities import COMPARED, Quantity

MOST_DETECTABLE = 2.0
"""The ratio above which the smallest change that would be found leaves the answer open."""


@dataclass(frozen=True)
class TargetDifference:
    """The changes on one target: its rows, and time and energy if both databases have them."""

    pairing: Pairing
    quantities: Sequence[QuantityChange]


@dataclass(frozen=True)
class Difference:
    """The changes between two databases, target by target."""

    targets: Sequence[TargetDifference]
    level: float

    @property
    def found(self) -> list[Change]:
        """The operators with a significant change, at the level of the false discovery rate."""
        return [each for each in self._named if isinstance(each, Change)]

    @property
    def common_found(self) -> list[QuantityChange]:
        """The common changes that are significant, at the level of the false discovery rate."""
        return [each for each in self._named if isinstance(each, QuantityChange)]

    @property
    def tests(self) -> int:
        """The number of p-values that were adjusted together."""
        return sum(each.adjusted_p is not None for each in self._tests)

    @property
    def failures(self) -> list[tuple[Row, Row]]:
        """Pairs of rows of which only one has a result."""
        return [pair for target in self.targets for pair in target.pairing.failed]

    @property
    def changed(self) -> bool:
        """Whether anything changed: an operator, all operators, or a status."""
        return bool(self.found or self.common_found or self.failures)

    @property
    def _tests(self) -> list[QuantityChange | Change]:
        return list(_tests([each for target in self.targets for each in target.quantities]))

    @property
    def _named(self) -> list[QuantityChange | Change]:
        adjusted = ((each, each.adjusted_p) for each in self._tests)
        return [each for each, p in adjusted if p is not None and p <= self.level]

    def detectable(self, quantity: QuantityChange) -> float | None:
        """The smallest change of a typical operator, a ratio, that would be significant."""
        return quantity.detectable(self.level / max(self.tests, 1))

    @property
    def undecided(self) -> list[str]:
        """Why it is unknown whether a target changed, and what to do."""
        return [
            f"Cannot tell: {reason} (target {target.pairing.before_target})."
            for target in self.targets
            for reason in self._unknown(target)
        ]

    def _unknown(self, target: TargetDifference) -> Iterator[str]:
        if not target.pairing.pairs:
            yield "no operator tuple with a result in both; measure the same models for both"
        for each in target.quantities:
            least = self.detectable(each)
            if all(test.adjusted_p is None for test in _tests([each])):
                yield f"no test of {each.quantity}, as said above"
            elif least is not None and least > MOST_DETECTABLE:
                yield (
                    f"{each.quantity} is too noisy, only a change of an operator by more than "
                    f"{MOST_DETECTABLE - 1:.0%} would be found; measure both in more rounds, on a "
                    "quiet machine"
                )

    def to_table(self) -> pa.Table:
        """One row for each tuple and target in either database; see schemas.DIFFERENCE."""
        return pa.Table.from_pylist(list(self._rows()), schema=schemas.DIFFERENCE)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for target in self.targets:
            pairing = target.pairing
            targets = {"target_before": pairing.before_target, "target_after": pairing.after_target}
            changes = {
                (change.before["tuple_id"], each.quantity): change
                for each in target.quantities
                for change in each.changes
            }
            for tuple_id in {**pairing.before, **pairing.after}:
                row = targets | _sides(pairing.before.get(tuple_id), pairing.after.get(tuple_id))
                for quantity in COMPARED:
                    if (tuple_id, quantity) in changes:
                        row |= _columns(quantity, changes[tuple_id, quantity], self.level)
                yield row


def compare_databases(
    before: Path,
    after: Path,
    *,
    targets: Mapping[str, str] | None = None,
    before_conditions: str | None = None,
    after_conditions: str | None = None,
    level: float = 0.05,
    spread: float | None = None,
    anyway: bool = False,
) -> Difference:
    """Compare two databases, merged or not, with a false discovery rate of `level`.

    `spread` overrides the databases' relative standard deviation between measurements of one
    operator. Other arguments and errors are those of `pair_databases`. Also raises OpcostError if
    rows were measured with different protocols or settings, unless `anyway`.
    """
    pairings = pair_databases(before, after, targets, before_conditions, after_conditions)
    if not anyway:
        _refuse_incomparable(pairings)
    targets_found = []
    for pairing in pairings:
        found = [changes_of(each, pairing.pairs, spread) for each in COMPARED]
        targets_found.append(TargetDifference(pairing, [each for each in found if each]))
    _adjust([quantity for target in targets_found for quantity in target.quantities])
    return Difference(targets_found, level)


def _refuse_incomparable(pairings: Sequence[Pairing]) -> None:
    reasons = [
        f"target {pairing.before_target}: {each.name} is {each.before} before, {each.after} after"
        for pairing in pairings
        for each in pairing.conditions
        if not each.comparable
    ]
    if reasons:
        raise OpcostError(
            "the databases are not comparable: "
            f"{'; '.join(reasons)}. Measure both with the same settings, or use --anyway"
        )


def _adjust(quantities: Sequence[QuantityChange]) -> None:
    """Set the adjusted p-value of every test."""
    tests = [(each, each.p) for each in _tests(quantities) if each.p is not None]
    adjusted = false_discovery_control([p for _, p in tests]) if tests else []
    for (each, _), p in zip(tests, adjusted, strict=True):
        each.adjusted_p = float(p)


def _tests(quantities: Sequence[QuantityChange]) -> Iterator[QuantityChange | Change]:
    for quantity in quantities:
        yield quantity
        yield from quantity.changes


def _sides(before: Row | None, after: Row | None) -> dict[str, Any]:
    """The columns of both rows; a tuple is in one of the databases or in both."""
    either = before or after or {}
    row = {name: either[name] for name in ("tuple_id", "operator", "description")}
    for side, found in (("before", before), ("after", after)):
        if found is not None:
            row[f"status_{side}"] = found["status"]
            row[f"flags_{side}"] = found["flags"]
            row |= {each.at(side): found[each.value] for each in COMPARED}
    return row


def _columns(quantity: Quantity, change: Change, level: float) -> dict[str, Any]:
    adjusted = change.adjusted_p
    return {
        **quantity.relative("ratio").columns(change.ratio),
        f"{quantity}_deviation": change.deviation,
        f"{quantity}_p": change.p,
        f"{quantity}_adjusted_p": adjusted,
        f"{quantity}_changed": None if adjusted is None else adjusted <= level,
    }
