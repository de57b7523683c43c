"""The text that `opcost diff` prints."""

import itertools
from collections.abc import Iterator, Sequence

from opcost.costs.terms import Row
from opcost.difference.changes import Change, QuantityChange
from opcost.difference.databases import MOST_DETECTABLE, Difference, TargetDifference
from opcost.difference.null_distribution import MIN_PAIRS
from opcost.statistics import Estimate
from opcost.text import shortened, table


def summarise(difference: Difference, limit: int = 10) -> str:
    """The changes, target by target, and the `limit` largest insignificant ones."""
    parts = [list(_target(target, difference, limit)) for target in difference.targets]
    return "\n\n".join("\n".join(lines) for lines in [*parts, [_verdict(difference)]])


def _target(target: TargetDifference, difference: Difference, limit: int) -> Iterator[str]:
    pairing = target.pairing
    name = pairing.before_target
    if pairing.after_target != name:
        name = f"{name} -> {pairing.after_target}"
    yield f"Target {name}: {len(pairing.pairs)} operator tuples with a result in both"
    if pairing.shared:
        yield (
            f"{pairing.shared} of them have executions in common: to that extent, both databases "
            "hold the same measurement, which varies less than two."
        )
    yield from _conditions(target)
    for quantity in target.quantities:
        yield ""
        yield from _quantity(quantity, difference, limit)
    yield from _unpaired(target)


def _conditions(target: TargetDifference) -> Iterator[str]:
    if not target.pairing.conditions:
        yield "Same device, software and settings."
        return
    yield "Differences in device, software and settings:"
    rows = [[each.name, each.before, each.after] for each in target.pairing.conditions]
    yield from (f"  {line}" for line in table(["", "before", "after"], rows, left=3))


def _quantity(quantity: QuantityChange, difference: Difference, limit: int) -> Iterator[str]:
    level = difference.level
    tested = [each for each in quantity.changes if each.adjusted_p is not None]
    found = [each for each in tested if (each.adjusted_p or 0.0) <= level]
    yield f"{quantity.quantity.name.capitalize()}:"
    yield f"  {_common(quantity, level)}"
    yield from (f"  {line}" for line in _reproduction(quantity, difference))
    if tested:
        deviate = "deviate from the common change" if quantity.common else "changed"
        yield f"  {len(found)} of {len(tested)} operators {deviate}" + (":" if found else ".")
        yield from _changes(quantity, found, level)
    others = [
        each for each in quantity.changes if each.adjusted_p is None or each.adjusted_p > level
    ]
    if others and limit:
        yield "  Largest insignificant changes:"
        yield from _changes(quantity, _largest(others)[:limit], level)
    if any(each.flagged for each in [*found, *_largest(others)[:limit]]):
        yield "  *: flagged, before or after"


def _common(quantity: QuantityChange, level: float) -> str:
    common = quantity.all_operators(level)
    if common is None:
        return f"Fewer than {MIN_PAIRS} operators: no estimate of their common change."
    text = f"All operators: {_percent(common.value)} {_interval(common)}"
    if quantity.adjusted_p is not None and quantity.adjusted_p <= level:
        text += f": significant (adjusted p {_p(quantity.adjusted_p)})."
    else:
        text += ": not significant."
    if not quantity.spread_known:
        text += (
            " The variation between studies is unknown (no `time_scatter`): interference during a "
            "whole study would look the same."
        )
    return text


def _reproduction(quantity: QuantityChange, difference: Difference) -> Iterator[str]:
    if not quantity.nulls:
        yield (
            "Not tested: fewer than 10 operators and no column `time_scatter`, so the variation "
            "between measurements is unknown. To state it, use --spread: 0.02 is a standard "
            "deviation of 2 %."
        )
        return
    sound, doubtful = (quantity.nulls[kind] for kind in (False, True))
    yield (
        "Variation between the two measurements of an operator, beyond their intervals (standard "
        f"deviation): {sound.sd:.1%}; {doubtful.sd:.1%} if one drifted or did not converge."
    )
    detectable = difference.detectable(quantity)
    if detectable is not None:
        above = "about" if detectable <= MOST_DETECTABLE else "more than"
        yield (
            "Smallest detectable change of a typical operator, if no other one changed: "
            f"{above} {_percent(min(detectable, MOST_DETECTABLE))}."
        )
    untested = sum(each.p is None for each in quantity.changes)
    if untested:
        yield f"Not tested, because they have too few batches for an interval: {untested}."


def _largest(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: max(each.deviation, 1 / each.deviation), reverse=True)


def _changes(quantity: QuantityChange, changes: Sequence[Change], level: float) -> Iterator[str]:
    if not changes:
        return
    shown = quantity.quantity
    header = ["operator tuple", "before", "after", "change", "own change", "interval", "p"]
    rows = [
        [
            shortened(each.before["description"]) + (" *" if each.flagged else ""),
            *(shown.show(row[shown.value]) for row in (each.before, each.after)),
            _percent(each.ratio.value),
            _percent(each.deviation),
            _interval(each.own(level)),
            "-" if each.adjusted_p is None else _p(each.adjusted_p),
        ]
        for each in _largest(changes)
    ]
    yield from (f"    {line}" for line in table(header, rows))


def _unpaired(target: TargetDifference) -> Iterator[str]:
    pairing = target.pairing
    if pairing.failed:
        yield ""
        yield "Failed in one of the databases:"
        for before, after in pairing.failed:
            yield f"  {shortened(before['description'])}: {_status(before)} -> {_status(after)}"
    for rows, where in ((pairing.only_before, "before"), (pairing.only_after, "after")):
        if rows:
            yield ""
            yield f"Only {where}: {len(rows)} operator tuples."


def _status(row: Row) -> str:
    return row["status"] if row["status"] == "ok" else f"{row['status']} ({row['error']})"


def _verdict(difference: Difference) -> str:
    undecided = difference.undecided
    if undecided and not difference.changed:
        return "\n".join(undecided)
    found, failed = len(difference.found), len(difference.failures)
    parts = [f"{each.quantity} of all operators" for each in difference.common_found]
    parts += [f"{found} single operators"] if found else []
    parts += [f"{failed} operators have a result in one database only"] if failed else []
    verdict = (
        f"Changed: {'; '.join(parts) if parts else 'nothing significant'} "
        f"({difference.tests} tests; p and intervals are adjusted for a false discovery rate of "
        f"{difference.level:g})."
    )
    limits: dict[str, float] = {}
    for quantity in itertools.chain.from_iterable(each.quantities for each in difference.targets):
        detectable = difference.detectable(quantity)
        if detectable is not None:
            name = str(quantity.quantity)
            limits[name] = min(detectable, limits.get(name, detectable))
    if undecided or found or not limits:
        return "\n".join([verdict, *undecided])
    unseen = ", ".join(f"{_percent(least)} in {name}" for name, least in limits.items())
    return f"{verdict}\nA change of one operator below about {unseen} would hardly be found."


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _interval(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return "-"
    return f"[{_percent(ratio.low)}, {_percent(ratio.high)}]"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else "<0.0001"
