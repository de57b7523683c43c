"""Sweeps as text: a table of the points that marks the least costs, straight lines along axes, and
the cost of each operator at the points of a target.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opcost.costs.caveats import INTERVAL
from opcost.costs.headline import ESTIMATED
from opcost.costs.sweeps import axes_of, batch_axes, by_sweep, on_target, sample_cost
from opcost.costs.terms import Row
from opcost.groups import grouped
from opcost.models.axes import Sweep, described, label, number, text
from opcost.rows.flags import explained
from opcost.rows.quantities import COMPARED, ED2P, EDP, ENERGY, TIME, Quantity
from opcost.statistics import Estimate, straight_line
from opcost.text import (
    digits,
    fitted,
    is_too_noisy,
    scaled,
    significant,
    some,
    with_interval,
    with_margin,
    with_values,
    wrapped,
)
from opcost.tuples.operator_tuple import short_name

_NOTHING = "-"
_NAMED = 6
_MOST_OPERATORS = 12
_LEAST, _WITHIN_NOISE = " *", " ~"
_DROPPABLE = ("FLOP/s", "power", "flags", "EDP")
"""What a table in a terminal leaves out first, if it is too wide."""


def sweep_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The points of each sweep, and notes. Empty without rows."""
    lines: list[str] = []
    for title, points in by_sweep(rows).items():
        cells = point_cells(points)
        lines += ["", f"Sweep {title}:"]
        lines += ["", *fitted(cells, _DROPPABLE, len(axes_of(points[0])))] if cells[0] else []
        lines += ["", *wrapped(notes)] if (notes := sweep_notes(points)) else []
    return lines[1:]


def point_cells(points: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each point, for a table. Titles without a value are left out."""
    has_samples = any(row["batch_size"] for row in points)
    # A product of energy and time asks how far a device should be slowed.
    has_targets = any(map(on_target, points))
    time, energy = ("samples/s", "energy/sample") if has_samples else ("time", "energy")
    cells = []
    for row in points:
        cell = {label(axis): text(value) for axis, value in axes_of(row).items()}
        cell["time"] = _cost(row, TIME, TIME.read(row))
        if has_samples:
            cell["samples/s"] = _rate(row, row["batch_size"])
        cell[time] += _mark(row, TIME)
        cell["FLOP/s"] = _rate(row, row["flops"], "FLOP/s")
        cell["bandwidth"] = _rate(row, row["bytes"], "B/s")
        cell[energy] = _cost(row, ENERGY, sample_cost(row, ENERGY)) + _mark(row, ENERGY)
        cell["power"] = _power(row)
        if has_targets:
            cell |= {each.name.upper(): _each(row, each) + _mark(row, each) for each in (EDP, ED2P)}
        cell["flags"] = ", ".join(row["flags"] or ()) or _NOTHING
        cells.append(cell)
    return with_values(cells)


def sweep_notes(points: Sequence[dict[str, Any]]) -> list[str]:
    """What the marks say, straight lines, and of operators without a model the meaning of intervals
    and flags: those of models are stated beside the comparison.
    """
    found = []
    if any(row["least"] for row in points):
        free = [*batch_axes(points), *on_target(points[0])]
        among = " and ".join(map(label, free))
        found.append(
            f"*: best of the points that differ in {among} alone; ~: within noise of it (the "
            "interval of their ratio includes 1)."
        )
    found += _lines(points)
    return [*found, *(_of_operators(points) if points[0]["tuple_id"] is not None else [])]


def _of_operators(points: Sequence[Row]) -> Iterator[str]:
    measured = [row for row in points if TIME.read(row) is not None]
    if measured:
        yield f"{INTERVAL}."
    for flag in sorted({flag for row in measured for flag in row["flags"] or ()}):
        yield f"{flag}: {explained(flag)}."
    unknown = grouped(
        (row[f"{TIME}_reason"], described(axes_of(row), " ") or row["model"])
        for row in points
        if row[f"{TIME}_reason"]
    )
    for reason, names in unknown.items():
        yield f"No time of {some(names, _NAMED)}: {reason}."


def _lines(points: Sequence[Row]) -> Iterator[str]:
    """The straight line along each axis of numbers, for each value of the other axes, where one
    fits and the cost grows.
    """
    each = "an iteration" if points[0]["tuple_id"] is None else "a call"
    for axis in axes_of(points[0]):
        along: dict[str, list[tuple[float, Row]]] = defaultdict(list)
        for row in points:
            others = {name: value for name, value in axes_of(row).items() if name != axis}
            if (place := number(axes_of(row)[axis])) is not None:
                along[described(others)].append((place, row))
        for at, places in along.items():
            for quantity in COMPARED:
                costs = [(place, cost) for place, row in places if (cost := quantity.read(row))]
                line = straight_line(costs)
                if line is not None and _is_plausible(*line):
                    start, slope = (_part(part, quantity) for part in line)
                    where = f" at {at}" if at else ""
                    yield (
                        f"{str(quantity).capitalize()} of {each}{where} = {start} + ({slope}) x "
                        f"{label(axis)}."
                    )


def _is_plausible(start: Estimate, slope: Estimate) -> bool:
    """Whether a cost surely grows, and does not start below zero."""
    return slope.low is not None and slope.low > 0 and (start.high is None or start.high >= 0)


def _part(part: Estimate, quantity: Quantity) -> str:
    may_be_zero = (part.low or 0.0) <= 0 or is_too_noisy(part)
    return (with_margin if may_be_zero else with_interval)(part, quantity.show)


def _cost(row: Row, quantity: Quantity, cost: Estimate | None) -> str:
    shown = with_interval(cost, quantity.show)
    return shown + (ESTIMATED if str(quantity) in row["estimated"] else "")


def _each(row: Row, objective: Quantity) -> str:
    """The cost of a sample, with the digits that its interval allows."""
    cost = sample_cost(row, objective)
    if cost is None or is_too_noisy(cost):
        return _NOTHING
    return objective.show(cost.value, digits(cost))


def _rate(row: Row, work: int | None, unit: str = "") -> str:
    """Work per second, with the digits that the interval of the time allows."""
    time = TIME.read(row)
    if not work or time is None or is_too_noisy(time):
        return _NOTHING
    rate = significant(work / time.value, digits(time))
    return scaled(float(rate), unit) if unit else rate


def _power(row: Row) -> str:
    time, energy = TIME.read(row), ENERGY.read(row)
    return f"{energy.value / time.value:.3g} W" if time and energy else _NOTHING


def _mark(row: Row, objective: Quantity) -> str:
    if str(objective) in row["least"]:
        return _LEAST
    return _WITHIN_NOISE if str(objective) in row["within_noise"] else "  "


def operator_lines(target_sweeps: Iterable[Sweep], shares: Sequence[Row]) -> list[str]:
    """For each sweep of targets, the cost of all calls of each operator at the best point, and how
    much more it is at others: which ones lose nothing at a lower power limit, or gain nothing from
    more threads.
    """
    lines: list[str] = []
    for sweep in target_sweeps:
        for quantity in COMPARED:
            costs = _by_operator(sweep, quantity, shares)
            totals = Counter[str]()
            for on in costs.values():
                totals.update(on)
            if len(totals) < 2:
                continue
            base = min(totals, key=lambda target: totals[target])
            others = [target for target in sweep.points if target in totals and target != base]
            named = {target: described(sweep.points[target]) for target in (base, *others)}
            cells = [
                {
                    "operator": operator,
                    named[base]: quantity.show(on[base], 3),
                    **{named[each]: f"{on[each] / on[base] - 1:+z.0%}" for each in others},
                }
                for operator, on in sorted(costs.items(), key=lambda each: -each[1][base])
            ]
            what = f"{str(quantity).capitalize()} of all calls of each operator on {sweep.name}"
            table = fitted(cells[:_MOST_OPERATORS], [named[each] for each in others[1:-1]], 1)
            lines += ["", f"{what}, and the difference at other points:", "", *table]
    return lines[1:]


def _by_operator(
    sweep: Sweep, quantity: Quantity, shares: Iterable[Row]
) -> Mapping[str, Mapping[str, float]]:
    """Operator -> target -> cost, in models where all of its calls are measured on each target."""
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in shares:
        if row["target"] in sweep.points and row[quantity.value]:
            place = row["model"], row["operator"], row["phase"]
            found[place][row["target"]] = row[quantity.value]
    targets = {target for on in found.values() for target in on}
    costs: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, operator, _), on in found.items():
        if on.keys() == targets:
            costs[short_name(operator)].update(on)
    return costs
