"""How the cost of a sweep's points grows, as text: from where on it leaves its floor."""

from collections import defaultdict
from collections.abc import Sequence

from opcost.costs.growth import LEAST_POINTS, Growth, growth_with_power
from opcost.costs.sweeps import (
    axes_of,
    follows_batch,
    line_through,
    on_target,
    point_of,
    series_of,
)
from opcost.costs.terms import Row
from opcost.models.axes import described, label, number
from opcost.rows.quantities import COMPARED, Quantity
from opcost.statistics import Estimate
from opcost.text import significant, with_interval


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
            if len(sizes) < LEAST_POINTS:
                continue
            axes = {
                axis: value
                for axis, value in axes_of(series[0]).items()
                if axis in on_target(series[0]) or not follows_batch(points, axis)
            }
            what = _what(quantity, described(axes))
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
                lines[described(others)].append(row)
        for at, rows in lines.items():
            found += [
                f"{_what(quantity, at)}: {sentence}."
                for quantity in COMPARED
                if (sentence := _along(axis, rows, quantity))
            ]
    return found


def _along(axis: str, rows: Sequence[Row], quantity: Quantity) -> str | None:
    """None for fewer than three places with a cost and its interval."""
    costs = [(float(point_of(row)[axis]), quantity.read(row)) for row in rows]
    known = [(place, cost) for place, cost in costs if cost is not None and cost.sd]
    if len(known) < LEAST_POINTS:
        return None
    name, grown = label(axis), growth_with_power(known)
    if grown is None:
        return f"it grows neither in proportion to {name} nor to its square"
    exponent, line = grown
    of = name if exponent == 1 else f"the square of {name}"
    fixed = with_interval(line.fixed, quantity.show)
    if line.even is not None:
        return (
            f"{fixed} whatever {name} is, and the rest in proportion to {of}, which outweighs the "
            f"former from {name}={_place(line.even, exponent)} on"
        )
    if _is_positive(line.each):
        return f"in proportion to {of}; no floor is seen, at most {_most(line.fixed, quantity)}"
    if line.each.high is not None and line.each.high < 0:
        return f"it falls with {name}"
    return f"{fixed} whatever {name} is; that it grows with {name} is not told from noise"


def _line(line: Growth, quantity: Quantity) -> str:
    fixed, each = (with_interval(part, quantity.show) for part in (line.fixed, line.each))
    if line.even is not None:
        return (
            f"{fixed} for an iteration, and {each} for each sample, which outweigh the former from "
            f"a batch size of {_place(line.even)} on"
        )
    most_fixed, most_each = (_most(part, quantity) for part in (line.fixed, line.each))
    if _is_positive(line.each):
        return f"{each} for each sample; no floor is seen, at most {most_fixed}"
    if _is_positive(line.fixed):
        return f"{fixed} for an iteration; no cost of a further sample is seen, at most {most_each}"
    return (
        f"neither the cost of an iteration, at most {most_fixed}, nor that of a further sample, at "
        f"most {most_each}, is told from zero"
    )


def _what(quantity: Quantity, at: str) -> str:
    return f"{str(quantity).capitalize()}{f' at {at}' if at else ''}"


def _place(even: Estimate, exponent: int = 1) -> str:
    """The size at which both parts of a line are equal, whose power is the estimate."""
    place, low, high = (
        "?" if power is None else significant(max(power, 0.0) ** (1 / exponent), 2)
        for power in (even.value, even.low, even.high)
    )
    return f"{place} [{low}, {high}]"


def _most(part: Estimate, quantity: Quantity) -> str:
    return quantity.show(max(0.0, part.high or 0.0), 2)


def _is_positive(part: Estimate) -> bool:
    """Whether it is told from zero."""
    return part.low is not None and part.low > 0
