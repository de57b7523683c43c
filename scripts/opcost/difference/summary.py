"""The text that `opcost diff` prints."""

from collections.abc import Iterator, Sequence

from opcost.difference.databases import (
    MIN_PAIRS,
    MOST_DETECTABLE,
    Change,
    Difference,
    QuantityChange,
)
from opcost.difference.pairing import Pairing
from opcost.statistics import Estimate
from opcost.text import counted, shortened, table

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
    conditions = [each[:3] for each in pairing.conditions]
    if conditions:
        yield "Differences in device, software and settings:"
        yield from (f"  {line}" for line in table(["", "before", "after"], conditions, left=3))
    else:
        yield "Same device, software and settings."
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
