"""Where a model's time or energy goes: parts that add up to all of it.

The parts are operators, what an estimate has beyond them (call overhead on a processor, the wait
for the host on a GPU), and what was not measured.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opcost.costs.caveats import CALL_OVERHEAD
from opcost.costs.terms import Row
from opcost.rows.quantities import TIME, Quantity
from opcost.text import percent
from opcost.tuples.operator_tuple import short_name

WAITING = "wait for the host"
NOT_MEASURED = "not measured, or unexplained"
NOT_TOLD_APART = f"not measured, unexplained, or {CALL_OVERHEAD}"
"""The rest where call overhead is unknown, too; on a GPU, that is its wait for the host."""

RESTS = (NOT_MEASURED, NOT_TOLD_APART)
"""What remains of a measured whole beside what is known."""

OTHERS = "other operators"

BEYOND = {CALL_OVERHEAD: "overhead_time_s", WAITING: "idle_time_s"}
"""Parts of an estimate beyond operators, with their column: the first on a processor, the second on
a GPU."""

_SHOWN = 0.005


@dataclass(frozen=True)
class Part:
    """A part of a model's cost. `amount` is in seconds or joules; None, like `share`, if unknown.

    `calls` are those of operators; None for other parts. If a part is not `complete`, some of its
    tuples are not measured, and its amount is a lower limit.
    """

    name: str
    amount: float | None
    share: float | None
    calls: int | None = None
    complete: bool = True

    @property
    def is_rest(self) -> bool:
        """Whether it is what remains of the whole."""
        return self.name in RESTS


def breakdown(compared: Row, operators: Iterable[Row], quantity: Quantity = TIME) -> list[Part]:
    """The parts of a model's cost on a target, the largest first; what was not measured is last.

    `compared` is its row of the comparison, `operators` are its rows of the shares. Shares are of
    the estimate. If that is incomplete, they are of the measured whole, or, without one, of what is
    known, as they are if that is more; the share of what is not measured is then unknown. Otherwise
    that is the rest of the whole, which the model error moves, too. There is no part if
    nothing was measured.
    """
    measured, calls, partial = _by_name(operators, quantity)
    parts = {name: amount for name, amount in measured.items() if amount}
    beyond = beyond_operators(compared, quantity, math.fsum(parts.values()))
    parts |= {name: amount for name, amount in beyond.items() if amount}
    known = math.fsum(parts.values())
    total = total_cost(compared, known, quantity)
    if not total:
        return []
    largest = sorted(parts.items(), key=lambda item: -item[1])
    found = [
        Part(name, amount, amount / total, calls.get(name), name not in partial)
        for name, amount in largest
    ]
    if compared[quantity.of("estimate").value] is None:
        rest = total - known or None
        share = None if rest is None else rest / total
        name = NOT_TOLD_APART if beyond[CALL_OVERHEAD] is None else NOT_MEASURED
        found.append(Part(name, rest, share))
    return found


def total_cost(compared: Row, known: float, quantity: Quantity) -> float:
    """What shares are of: the cost that is known, or the measured whole if that is incomplete."""
    whole = compared.get(quantity.of("end_to_end").value)
    complete = compared[quantity.of("estimate").value] is not None
    return known if complete or whole is None else max(known, whole)


def total_of(parts: Iterable[Part]) -> float | None:
    """What the shares of the parts are of, or None if nothing was measured."""
    return next((part.amount / part.share for part in parts if part.amount and part.share), None)


def costliest(parts: Sequence[Part], most: int) -> list[Part]:
    """The parts, with at most `most` operators, none of which rounds to 0%; the others are one."""
    operators = [part for part in parts if part.calls is not None]
    others = [
        part for rank, part in enumerate(operators) if rank >= most or (part.share or 0.0) < _SHOWN
    ]
    if len(others) < 2:
        return list(parts)
    folded = Part(
        OTHERS,
        math.fsum(part.amount or 0.0 for part in others),
        math.fsum(part.share or 0.0 for part in others),
        sum(part.calls or 0 for part in others),
        all(part.complete for part in others),
    )
    kept = [part for part in parts if part not in others and not part.is_rest]
    return [*kept, folded, *(part for part in parts if part.is_rest)]


def shares_text(parts: Sequence[Part], most: int) -> str:
    """The `costliest` parts with their shares, in a line."""
    return ", ".join(f"{part.name} {percent(part.share)}" for part in costliest(parts, most))


def largest_text(parts: Sequence[Part], most: int) -> str:
    """The `most` largest parts with their shares, and the share of all others, in a line."""
    known = sorted(parts, key=lambda part: -(part.share or 0.0))
    shown, others = known[:most], math.fsum(part.share or 0.0 for part in known[most:])
    texts = [f"{part.name} {percent(part.share)}" for part in shown]
    return ", ".join([*texts, *([f"other {percent(others)}"] if others >= _SHOWN else [])])


def with_rest_of(of_energy: Iterable[Part], parts: Sequence[Part]) -> list[Part]:
    """The parts of the time, and the rest of the energy if that has another name; its time is then
    unknown.
    """
    named = {part.name for part in parts}
    others = [part for part in of_energy if part.is_rest and part.name not in named]
    return [*parts, *(replace(part, amount=None, share=None) for part in others)]


def beyond_operators(
    compared: Row, quantity: Quantity, operators: float
) -> dict[str, float | None]:
    """What an estimate has of each part beyond the sum over its operators.

    Without an estimate, the seconds that are known; the energy is that of an unknown power.
    """
    estimate = compared[quantity.of("estimate").value]
    if estimate is None:
        is_time = quantity == TIME
        return {part: compared[column] if is_time else None for part, column in BEYOND.items()}
    more = max(0.0, estimate - operators)
    return {part: more if compared[column] else 0.0 for part, column in BEYOND.items()}


def _by_name(
    operators: Iterable[Row], quantity: Quantity
) -> tuple[dict[str, float], dict[str, int], set[str]]:
    """What is measured of each operator, its calls, and the operators with tuples that are not."""
    amounts: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, int] = defaultdict(int)
    partial: set[str] = set()
    for row in operators:
        if row["launches_kernel"]:
            name = short_name(row["operator"])
            amounts[name].append(row[quantity.of("partial").value] or 0.0)
            calls[name] += row["calls"]
            if row["measured_tuples"] < row["tuples"]:
                partial.add(name)
    return {name: math.fsum(values) for name, values in amounts.items()}, calls, partial
