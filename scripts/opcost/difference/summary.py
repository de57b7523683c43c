"""What changed between two databases, as people read it."""

from collections.abc import Iterator, Sequence

from opcost.costs.terms import Row
from opcost.difference.changes import Change, QuantityChange
from opcost.difference.databases import Difference, TargetDifference
from opcost.difference.scatter import FEWEST_PAIRS
from opcost.statistics import Estimate
from opcost.text import shortened, table


def summarise(difference: Difference, limit: int = 10) -> str:
    """What changed, target by target; of the operators that did not, the `limit` largest."""
    parts = [list(_target(target, difference, limit)) for target in difference.targets]
    return "\n\n".join("\n".join(lines) for lines in [*parts, [_verdict(difference)]])


def _target(target: TargetDifference, difference: Difference, limit: int) -> Iterator[str]:
    pairing = target.pairing
    name = pairing.before_target
    if pairing.after_target != name:
        name = f"{name} -> {pairing.after_target}"
    yield f"Target {name}: {len(pairing.pairs)} operator tuples with a result in both"
    yield from _conditions(target)
    for quantity in target.quantities:
        yield ""
        yield from _quantity(quantity, difference, limit)
    yield from _unpaired(target)


def _conditions(target: TargetDifference) -> Iterator[str]:
    if not target.pairing.conditions:
        yield "Measured on the same, as far as the rows tell."
        return
    yield "What they were measured on differs:"
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
        deviate = "changed otherwise than that" if quantity.common else "changed"
        yield f"  {len(found)} of {len(tested)} operators {deviate}" + (":" if found else ".")
        yield from _changes(quantity, found)
    others = [
        each for each in quantity.changes if each.adjusted_p is None or each.adjusted_p > level
    ]
    if others and limit:
        yield "  Largest of the others, which may be chance:"
        yield from _changes(quantity, _largest(others)[:limit])
    if any(each.flagged for each in [*found, *_largest(others)[:limit]]):
        yield "  *: flagged or not converged, before or after."


def _common(quantity: QuantityChange, level: float) -> str:
    common = quantity.common
    if common is None:
        return f"Fewer than {FEWEST_PAIRS} operators: nothing is said of what they have in common."
    text = f"All operators: {_percent(common.value)} {_interval(common)}"
    if quantity.adjusted_p is not None and quantity.adjusted_p <= level:
        text += f": changed (adjusted p {_p(quantity.adjusted_p)})."
    else:
        text += ": not beyond its uncertainty."
    if not quantity.spread_known:
        text += (
            " The studies do not know how well they reproduce (no `spread`): a machine that was "
            "busy all along would look the same."
        )
    return text


def _reproduction(quantity: QuantityChange, difference: Difference) -> Iterator[str]:
    if not quantity.scatters:
        yield (
            "Not tested: neither 10 operators nor the column `spread` tell how well measurements "
            "reproduce. State it: --spread 0.02 is a standard deviation of 2 %."
        )
        return
    sound, doubtful = (quantity.scatters[kind] for kind in (False, True))
    yield (
        "Beyond their intervals, the two measurements of an operator differ by "
        f"{sound.sd:.1%} (standard deviation), "
        f"by {doubtful.sd:.1%} where one drifted or did not converge."
    )
    detectable = quantity.detectable(difference.level / max(difference.tests, 1))
    if detectable is not None:
        yield f"So a typical operator's own change is named from about {_percent(detectable)}."
    untested = sum(each.p is None for each in quantity.changes)
    if untested:
        yield f"{untested} of too few batches for an interval are not tested."


def _largest(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: max(each.deviation, 1 / each.deviation), reverse=True)


def _changes(quantity: QuantityChange, changes: Sequence[Change]) -> Iterator[str]:
    if not changes:
        return
    shown = quantity.quantity
    header = ["operator tuple", "before", "after", "change", "95 % interval", "own change", "p"]
    rows = [
        [
            shortened(each.before["description"]) + (" *" if each.flagged else ""),
            *(shown.show(row[shown.value]) for row in (each.before, each.after)),
            _percent(each.ratio.value),
            _interval(each.ratio),
            _percent(each.deviation),
            "-" if each.adjusted_p is None else _p(each.adjusted_p),
        ]
        for each in _largest(changes)
    ]
    yield from (f"    {line}" for line in table(header, rows))


def _unpaired(target: TargetDifference) -> Iterator[str]:
    pairing = target.pairing
    if pairing.failed:
        yield ""
        yield "Failed in one of both:"
        for before, after in pairing.failed:
            yield f"  {shortened(before['description'])}: {_status(before)} -> {_status(after)}"
    for rows, where in ((pairing.only_before, "before"), (pairing.only_after, "after")):
        if rows:
            yield ""
            yield f"Only {where}: {len(rows)} operator tuples."


def _status(row: Row) -> str:
    return row["status"] if row["status"] == "ok" else f"{row['status']} ({row['error']})"


def _verdict(difference: Difference) -> str:
    found, failed = len(difference.found), len(difference.failures)
    parts = [f"{each.quantity} of all operators" for each in difference.common_found]
    parts += [f"{found} operators by themselves"] if found else []
    parts += [f"{failed} have a result in one of both only"] if failed else []
    return (
        f"Changed: {'; '.join(parts) if parts else 'nothing beyond its uncertainty'} "
        f"({difference.tests} tests, family-wise level {difference.level:g}, Holm's method)."
    )


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def _interval(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return "-"
    return f"[{_percent(ratio.low)}, {_percent(ratio.high)}]"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else "<0.0001"
