"""Sweeps as text: the cost of each point, the least ones, and how a cost grows."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from opcost.costs.caveats import INTERVAL, variation_text
from opcost.costs.growth import LEAST_POINTS, growth_with_power
from opcost.costs.headline import ESTIMATED
from opcost.costs.sweeps import (
    AlongAxis,
    above_least,
    axes_of,
    follows_batch,
    least_along_axes,
    line_through,
    on_target,
    point_of,
    sample,
    series_of,
    titled,
)
from opcost.costs.terms import Row
from opcost.models.axes import Point, described, label, number, text
from opcost.rows.flags import explained
from opcost.rows.quantities import COMPARED, ED2P, EDP, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import (
    counted,
    difference,
    digits,
    is_too_noisy,
    names_by_text,
    scaled,
    significant,
    some,
    table,
    with_interval,
    with_margin,
    wrapped,
)

_NOTHING = "-"
_NAMED = 6


def sweep_lines(rows: Sequence[Row]) -> list[str]:
    """The points of each sweep, and sentences about them. Empty without rows."""
    lines: list[str] = []
    for title, points in titled(rows).items():
        cells = point_cells(points)
        values = [[*each.values()] for each in cells]
        lines += ["", f"Sweep {title}: {_tuples(points)}"]
        if cells[0]:
            lines += ["", *table([*cells[0]], values, left=len(axes_of(points[0])))]
        found = findings(points)
        lines += ["", *wrapped(found)] if found else []
    return lines[1:]


def findings(points: Sequence[Row]) -> list[str]:
    """Sentences about a sweep: the least costs, how costs grow, and notes."""
    is_operator = points[0]["tuple_id"] is not None
    found = [*_least(points), *_optima(points), *_by_batch(points), *_along_axes(points)]
    return [*found, *(_notes(points) if is_operator else [])]


def _tuples(points: Sequence[Row]) -> str:
    models = {row["model"]: row["tuples"] for row in points}
    first = points[0]["target"]
    distinct = sum(row["new_tuples"] for row in points if row["target"] == first)
    every = sum(models.values())
    on = {row["target"] for row in points}
    of_them = f", {distinct:,} of them distinct"
    what = f"{counted(len(models), 'model')} of {every:,} operator tuples{of_them}"
    if points[0]["tuple_id"] is not None:
        devices = " and ".join(dict.fromkeys(row["device_name"] or "?" for row in points))
        what = f"{counted(len(models), 'operator')} on {devices}"
        what += of_them if distinct < every else ""
    return f"{what}{f', on {len(on)} targets' if len(on) > 1 else ''}"


def point_cells(points: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each point, for a table. Titles without a value are left out."""
    cells = [
        {
            **{label(axis): text(value) for axis, value in axes_of(row).items()},
            "time": _cost(row, TIME),
            "FLOP/s": _rate(row, "flops", "FLOP/s"),
            "bandwidth": _rate(row, "bytes", "B/s"),
            "time/sample": _each(row, TIME),
            "above least": _above(row, TIME),
            "energy": _cost(row, ENERGY),
            "energy/sample": _each(row, ENERGY),
            "energy above least": _above(row, ENERGY),
            f"EDP/{_unit(row)}": _edp(row),
            "front": {True: "*", False: ""}.get(row["is_on_front"], _NOTHING),
            "new tuples": str(row["new_tuples"]) if row["tuple_id"] is None else _NOTHING,
            "flags": ", ".join(row["flags"] or ()) or _NOTHING,
        }
        for row in points
    ]
    shown = [title for title in cells[0] if any(row[title] != _NOTHING for row in cells)]
    return [{title: row[title] for title in shown} for row in cells]


def _notes(points: Sequence[Row]) -> list[str]:
    """The meaning of intervals and flags of operators without a model: those of models are stated
    beside the comparison.
    """
    measured = [row for row in points if TIME.read(row) is not None]
    found = {flag for row in measured for flag in row["flags"] or ()}
    unknown = names_by_text(
        (row[f"{TIME}_reason"], described(axes_of(row), " ") or row["model"])
        for row in points
        if row[f"{TIME}_reason"]
    )
    return [
        *([f"{INTERVAL}."] if measured else []),
        *(
            text
            for sd in dict.fromkeys(row[TIME.run_sd] for row in measured)
            for text in variation_text(sd)
        ),
        *(f"{flag}: {explained(flag)}." for flag in sorted(found)),
        *(f"No time of {some(names, _NAMED)}: {reason}." for reason, names in unknown.items()),
    ]


def _cost(row: Row, quantity: Quantity) -> str:
    shown = with_interval(quantity.read(row), quantity.show)
    return shown + (ESTIMATED if row[f"{quantity}_is_estimate"] else "")


def _each(row: Row, quantity: Quantity) -> str:
    """The cost of a sample; not repeated for an operator without a model, which has no batch."""
    if row["tuple_id"] is not None:
        return _NOTHING
    return with_interval(sample(quantity).read(row), quantity.show)


def _edp(row: Row) -> str:
    """The energy-delay product, where there is another point to compare with."""
    if above_least(ENERGY).read(row) is None:
        return _NOTHING
    return with_interval(sample(EDP).read(row), EDP.show)


def _unit(row: Row) -> str:
    return "sample" if row["tuple_id"] is None else "call"


def _rate(row: Row, work: str, unit: str) -> str:
    """The work per second of an operator without a model, with the digits that its interval
    allows.
    """
    time = TIME.read(row)
    if not row[work] or time is None:
        return _NOTHING
    return scaled(float(f"{row[work] / time.value:.{digits(time) - 1}e}"), unit)


def _above(row: Row, quantity: Quantity) -> str:
    more = above_least(quantity).read(row)
    return "least" if more is not None and not more.value else difference(more)


def _least(points: Sequence[Row]) -> list[str]:
    """The points of least cost, by series and quantity, and those within noise of them."""
    found = []
    axis_of_batch = len({row["batch_size"] for row in points}) > 1
    for series in series_of([dict(row) for row in points]):
        for quantity in COMPARED:
            more = [(row, above_least(quantity).read(row)) for row in series]
            least = next((row for row, each in more if each is not None and not each.value), None)
            if least is None:
                continue
            as_good = [
                _free(row, axis_of_batch)
                for row, each in more
                if row is not least and each is not None and (each.low is None or each.low <= 0)
            ]
            where = described(_but_for_the_batch(least, points))
            cost = with_interval(sample(quantity).read(least), quantity.show)
            found.append(
                f"Least {quantity} per {_unit(least)}{f' at {where}' if where else ''}: "
                f"{_free(least, axis_of_batch)}, {cost}"
                + (f"; within noise: {', '.join(as_good)}." if as_good else ".")
            )
    return found


def _optima(points: Sequence[Row]) -> list[str]:
    """The minimum of curves through the points of each series."""
    found = []
    for series in series_of([dict(row) for row in points]):
        at = _but_for_the_batch(series[0], points)
        unit = _unit(series[0])
        for each in least_along_axes(series):
            values = [axes_of(row)[each.axis] for row in series]
            integers = all(isinstance(value, int) for value in values)
            found.append(_least_along(each, at, unit, integers))
    return found


def _but_for_the_batch(row: Row, points: Sequence[Row]) -> Point:
    """The axes of a row's model that do not follow the batch size."""
    return {a: value for a, value in point_of(row).items() if not follows_batch(points, a)}


def _least_along(found: AlongAxis, at: Point, unit: str, integers: bool) -> str:
    """The interval on an axis of integers has all that may be as good."""
    names = {EDP: "Energy x delay", ED2P: "Energy x delay^2"}
    what = names.get(found.quantity, str(found.quantity).capitalize())
    where = described({**at, **found.at})
    best, axis = found.optimum, label(found.axis)
    places = (best.at, best.low, best.high)
    if integers:
        places = (round(best.at), math.floor(best.low), math.ceil(best.high))
    place, low, high = (f"{each}" if integers else significant(each, 3) for each in places)
    return (
        f"{what} per {unit}{f' at {where}' if where else ''}, on a curve along {axis}: least at "
        f"{axis}={place} [{low}, {high}]{best.beyond}, "
        f"{with_interval(best.cost, found.quantity.show)}."
    )


def _free(row: Row, axis_of_batch: bool) -> str:
    """The name of a point within its series."""
    batch = [f"batch size {row['batch_size']}"] if axis_of_batch else []
    return " with ".join(filter(None, [*batch, described(on_target(row), " with ")]))


def _by_batch(points: Sequence[Row]) -> Iterator[str]:
    """The straight line by batch size, of each series and quantity, where one fits."""
    for series in series_of([dict(row) for row in points], ("point", "target_point")):
        at = described({**_but_for_the_batch(series[0], points), **on_target(series[0])})
        for quantity in COMPARED:
            if line := line_through(series, quantity):
                fixed, each = _part(line.fixed, quantity), _part(line.each, quantity)
                equal = f"; equal at batch size {_place(line.even)}" if line.even else ""
                yield (
                    f"{_what(quantity, at)}: {fixed} for an iteration, and {each} for each sample"
                    f"{equal}."
                )


def _along_axes(points: Sequence[Row]) -> Iterator[str]:
    """The line by each numeric axis of the model but the batch size, or by its square, where one
    fits and the cost grows.
    """
    for axis in dict.fromkeys(axis for row in points for axis in point_of(row)):
        if follows_batch(points, axis):
            continue
        lines: dict[str, list[Row]] = defaultdict(list)
        for row in points:
            others = {each: value for each, value in axes_of(row).items() if each != axis}
            place = number(point_of(row).get(axis))
            if place is not None and place > 0:
                lines[described(others)].append(row)
        for at, rows in lines.items():
            for quantity in COMPARED:
                if sentence := _along(axis, rows, quantity):
                    yield f"{_what(quantity, at)}: {sentence}."


def _along(axis: str, rows: Sequence[Row], quantity: Quantity) -> str | None:
    costs = [(float(point_of(row)[axis]), quantity.read(row)) for row in rows]
    known = [(place, cost) for place, cost in costs if cost is not None and cost.sd]
    grown = growth_with_power(known) if len(known) >= LEAST_POINTS else None
    if grown is None or (grown[1].each.low or 0.0) <= 0:
        return None
    exponent, line = grown
    name = label(axis)
    of = name if exponent == 1 else f"the square of {name}"
    equal = f"; equal at {name}={_place(line.even, exponent)}" if line.even else ""
    return f"{_part(line.fixed, quantity)}, and a part in proportion to {of}{equal}"


def _part(part: Estimate, quantity: Quantity) -> str:
    may_be_zero = (part.low or 0.0) <= 0 or is_too_noisy(part)
    return (with_margin if may_be_zero else with_interval)(part, quantity.show)


def _what(quantity: Quantity, at: str) -> str:
    return f"{str(quantity).capitalize()}{f' at {at}' if at else ''}"


def _place(even: Estimate, exponent: int = 1) -> str:
    """The size at which both parts of a line are equal; the estimate is its power."""
    place, low, high = (
        "?" if power is None else significant(max(power, 0.0) ** (1 / exponent), 2)
        for power in (even.value, even.low, even.high)
    )
    return f"{place} [{low}, {high}]"
