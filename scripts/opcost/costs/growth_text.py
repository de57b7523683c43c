"""How the cost of a sweep's points grows, as text: from where on it leaves its floor."""

from collections import defaultdict
from collections.abc import Sequence

from opcost.costs.growth import Growth, growth_with_power
from opcost.costs.sweeps import (
    axes_of,
    follows_batch,
    line_through,
    on_target,
    point_of,
    series_of,
)
from opcost.costs.terms import Row
from opcost.models.axes import label, number, text
from opcost.rows.quantities import COMPARED, Quantity
from opcost.text import significant, with_interval

_LEAST_PLACES = 3


def growths(points: Sequence[Row]) -> list[str]:
    """Sentences about a sweep: what does not grow with the batch size or another axis of numbers of
    the model, and what does.
    """
    return [*_with_batch(points), *_along_axes(points)]


def _with_batch(points: Sequence[Row]) -> list[str]:
    """What an iteration and each of its samples cost, in each series and of each quantity."""
    found = []
    for series in series_of([dict(row) for row in points], ("point", "target_point")):
        for quantity in COMPARED:
            sizes = {row["batch_size"] for row in series if quantity.read(row) is not None}
            if len(sizes) < 3:
                continue
            axes = {
                axis: value
                for axis, value in axes_of(series[0]).items()
                if axis in on_target(series[0]) or not follows_batch(points, axis)
            }
            at = ", ".join(f"{label(axis)}={text(value)}" for axis, value in axes.items())
            what = f"{str(quantity).capitalize()}{f' at {at}' if at else ''}"
            line = line_through(series, quantity)
            if line is None:
                found.append(f"{what} does not grow in a straight line with the batch size.")
                continue
            found.append(f"{what}: {_line(line, quantity)}.")
    return found


def _along_axes(points: Sequence[Row]) -> list[str]:
    """How a cost grows along each axis of numbers of the model but the batch size."""
    found = []
    for axis in dict.fromkeys(axis for row in points for axis in point_of(row)):
        if follows_batch(points, axis):
            continue
        lines: dict[str, list[Row]] = defaultdict(list)
        for row in points:
            others = {each: value for each, value in axes_of(row).items() if each != axis}
            place = number(point_of(row).get(axis))
            if place is not None and place > 0:
                at = ", ".join(f"{label(each)}={text(value)}" for each, value in others.items())
                lines[at].append(row)
        for at, rows in lines.items():
            found += [
                f"{str(quantity).capitalize()}{f' at {at}' if at else ''}: {sentence}."
                for quantity in COMPARED
                if (sentence := _along(axis, rows, quantity))
            ]
    return found


def _along(axis: str, rows: Sequence[Row], quantity: Quantity) -> str | None:
    """None for fewer than three places with a cost and its interval."""
    costs = [(float(point_of(row)[axis]), quantity.read(row)) for row in rows]
    known = [(place, cost) for place, cost in costs if cost is not None and cost.sd]
    if len(known) < _LEAST_PLACES:
        return None
    name, grown = label(axis), growth_with_power(known)
    if grown is None:
        return f"it grows neither in proportion to {name} nor to its square"
    exponent, line = grown
    of = name if exponent == 1 else f"the square of {name}"
    fixed = with_interval(line.fixed, quantity.show)
    if line.even is not None:
        even, low, high = (
            "?" if place is None else significant(max(place, 0.0) ** (1 / exponent), 2)
            for place in (line.even.value, line.even.low, line.even.high)
        )
        return (
            f"{fixed} whatever {name} is, and the rest in proportion to {of}, which outweighs the "
            f"former from {name}={even} [{low}, {high}] on"
        )
    if line.each.low is not None and line.each.low > 0:
        most = quantity.show(max(0.0, line.fixed.high or 0.0), 2)
        return f"in proportion to {of}; no floor is seen, at most {most}"
    return f"{fixed} whatever {name} is; that it grows with {name} is not told from noise"


def _line(line: Growth, quantity: Quantity) -> str:
    fixed, each = (with_interval(part, quantity.show) for part in (line.fixed, line.each))
    if line.even is not None:
        even, low, high = (
            "?" if place is None else significant(place, 2)
            for place in (line.even.value, line.even.low, line.even.high)
        )
        return (
            f"{fixed} for an iteration, and {each} for each sample, which outweigh the former from "
            f"a batch size of {even} [{low}, {high}] on"
        )
    most_fixed, most_each = (
        quantity.show(max(0.0, part.high or 0.0), 2) for part in (line.fixed, line.each)
    )
    if line.each.low is not None and line.each.low > 0:
        return f"{each} for each sample; no floor is seen, at most {most_fixed}"
    if line.fixed.low is not None and line.fixed.low > 0:
        return f"{fixed} for an iteration; no cost of a further sample is seen, at most {most_each}"
    return (
        f"neither the cost of an iteration, at most {most_fixed}, nor that of a further sample, at "
        f"most {most_each}, is told from zero"
    )
