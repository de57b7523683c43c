"""The text that `opcost diff` prints: changes of operators from two databases, and of whole models
from the answers beside them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost import statistics, text
from opcost.difference.databases import (
    MIN_PAIRS,
    MOST_DETECTABLE,
    Change,
    Difference,
    QuantityChange,
)
from opcost.difference.pairing import Condition, Pairing
from opcost.results_folder import ANSWERS
from opcost.rows import records, schemas
from opcost.rows.quantities import COMPARED, Quantity
from opcost.statistics import Estimate
from opcost.text import counted, shortened, table, with_interval

SOURCES = ("end_to_end", "estimate")
Costs = Mapping[tuple[str, str], Mapping[tuple[str, str], Estimate]]
"""Model and target -> source and quantity -> cost of an iteration."""

_HEADER = ("operator tuple", "before", "after", "change", "own change", "interval", "p")


def summarise(difference: Difference, limit: int = 10) -> str:
    """The changes, by target, and the `limit` largest insignificant ones."""
    parts = [_target(each, difference, limit) for each in difference.targets]
    return "\n\n".join("\n".join(lines) for lines in [*parts, _verdict(difference)])


def _target(pairing: Pairing, difference: Difference, limit: int) -> Iterator[str]:
    names = dict.fromkeys((pairing.before_target, pairing.after_target))
    yield f"Target {' -> '.join(names)}: {len(pairing.pairs)} operator tuples with a result in both"
    if pairing.same:
        yield (
            f"The same measurement in both: {counted(pairing.same, 'further operator tuple')}, of "
            "which nothing is known."
        )
    if pairing.shared:
        yield (
            f"Runs in common: {pairing.shared} of them, whose difference is too small, as far as "
            "both hold the same runs."
        )
    yield from condition_lines(pairing.conditions)
    for each in difference.quantities:
        if each.pairing is pairing:
            yield from ("", f"{each.quantity.name.capitalize()}:")
            yield from (f"  {line}" for line in _quantity(each, difference.p_level, limit))
    if pairing.failed:
        yield from ("", "Failed in one of the databases:")
    for pair in pairing.failed:
        states = [
            each["status"] + (f" ({each['error']})" if each["error"] else "") for each in pair
        ]
        yield f"  {shortened(pair[0]['description'])}: {' -> '.join(states)}"
    only_before = len(pairing.before.keys() - pairing.after.keys())
    only_after = len(pairing.after.keys() - pairing.before.keys())
    for number, where in ((only_before, "before"), (only_after, "after")):
        if number:
            yield from ("", f"Only {where}: {number} operator tuples.")


def condition_lines(conditions: Sequence[Condition]) -> Iterator[str]:
    """The differences between two sides, or that there is none."""
    if conditions:
        rows = [each[:3] for each in conditions]
        yield "Differences in device, software and settings:"
        yield from (f"  {line}" for line in table(["", "before", "after"], rows, left=3))
    else:
        yield "Same device, software and settings."


def _quantity(of: QuantityChange, level: float, limit: int) -> Iterator[str]:
    if of.common is None:
        yield f"Fewer than {MIN_PAIRS} operators: no estimate of their common change."
    else:
        significant = f"significant (adjusted p {_p(of.common)})"
        verdict = significant if of.common.significant else "not significant"
        yield f"All operators: {_with_interval(of.common.own(level))}: {verdict}."
    before, after = (each.sd for each in of.variations)
    yield f"Run-to-run variation (standard deviation): {before:.1%} before, {after:.1%} after."
    detectable = of.detectable(level)
    about = "about" if detectable <= MOST_DETECTABLE else "more than"
    change = _percent(min(detectable, MOST_DETECTABLE))
    yield f"Smallest detectable change of a typical operator: {about} {change}."
    ranked = sorted(of.operators, key=lambda each: -abs(each.log - each.common))
    found = [each for each in ranked if each.significant]
    others = [each for each in ranked if not each.significant][:limit]
    deviate = "deviate from the common change" if of.common else "changed"
    yield f"{len(found)} of {len(ranked)} operators {deviate}{':' if found else '.'}"
    yield from _changes(of, found, level)
    if others:
        yield "Largest insignificant changes:"
        yield from _changes(of, others, level)
    if any(_mark(each) for each in [*found, *others]):
        yield "*: flagged, before or after"


def _changes(of: QuantityChange, changes: Sequence[Change], level: float) -> Iterator[str]:
    quantity = of.quantity
    rows = [
        [
            shortened(each.before["description"]) + _mark(each),
            *(quantity.show(row[quantity.value]) for row in (each.before, each.after)),
            _percent(each.ratio.value),
            *_with_interval(each.own(level)).split(" ", 1),
            _p(each),
        ]
        for each in changes
    ]
    yield from (f"  {line}" for line in table(_HEADER, rows) if rows)


def _verdict(difference: Difference) -> Iterator[str]:
    undecided = difference.undecided
    found, failed = len(difference.found), len(difference.failures)
    parts = [f"{each.quantity} of all operators" for each in difference.common_found]
    parts += [f"{found} single operators"] if found else []
    parts += [f"{failed} operators have a result in one database only"] if failed else []
    if parts or not undecided:
        yield (
            f"Changed: {'; '.join(parts) or 'nothing significant'} ({len(difference.tests)} tests; "
            f"p and intervals are adjusted for a false discovery rate of {difference.level:g})."
        )
    yield from undecided
    if not undecided and not found:
        unseen = ", ".join(
            f"{_percent(each.detectable(difference.p_level))} in {each.quantity}"
            for each in difference.quantities
        )
        yield f"A change of one operator below about {unseen} would hardly be found."


def _mark(change: Change) -> str:
    return " *" if change.before["flags"] or change.after["flags"] else ""


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _with_interval(ratio: Estimate) -> str:
    limits = [_percent(each) for each in (ratio.low, ratio.high) if each is not None]
    return f"{_percent(ratio.value)} [{', '.join(limits)}]"


def _p(change: Change) -> str:
    return f"{change.adjusted_p:.2g}" if change.adjusted_p >= 1e-4 else "<0.0001"


def model_lines(before: Path, after: Path) -> list[str]:
    """A table of the models that both studies have: the cost measured end to end or else estimated,
    and the change with its 95 % interval. Empty without answers beside both databases, and where
    both have the same.
    """
    studies = [model_costs(path.parent / ANSWERS.name) for path in (before, after)]
    rows = [
        row
        for key in studies[0].keys() & studies[1].keys()
        for quantity in COMPARED
        if (row := _model_row(*key, quantity, *(study[key] for study in studies)))
    ]
    if not rows:
        return []
    header = ["model", "target", "cost", "source", "before", "after", "change", ""]
    return ["Models, of an iteration:", *table(header, sorted(rows), left=4)]


def model_costs(path: Path) -> Costs:
    """The costs of models in the answers of a study; empty without the file, of a model without
    any."""
    found: dict[tuple[str, str], dict[tuple[str, str], Estimate]] = {}
    columns = ["model", "target", "part", "source", "quantity", "value", "low", "high"]
    rows = records.read(path, schemas.ANSWERS, columns).to_pylist() if path.is_file() else []
    for row in rows:
        if row["part"] != "model" or row["source"] not in SOURCES:
            continue
        costs = found.setdefault((row["model"], row["target"]), {})
        if row["value"] is not None:
            cost = Estimate(row["value"], row["low"], row["high"])
            costs[row["source"], row["quantity"]] = cost
    return found


def _model_row(
    model: str,
    target: str,
    quantity: Quantity,
    before: Mapping[tuple[str, str], Any],
    after: Mapping[tuple[str, str], Any],
) -> list[str] | None:
    for source in SOURCES:
        old, new = (costs.get((source, quantity.value)) for costs in (before, after))
        if old is None or new is None:
            continue
        if old == new:
            return None
        change = statistics.ratio(new, old).plus(-1)
        verdict = "more" if change.value > 0 else "less"
        if change.low is None or change.high is None:
            verdict = "interval unknown"
        elif change.low <= 0 <= change.high:
            verdict = "not told apart"
        shown = [with_interval(each, quantity.show) for each in (old, new)]
        name = source.replace("_", " ")
        return [model, target, str(quantity), name, *shown, text.difference(change), verdict]
    return None
