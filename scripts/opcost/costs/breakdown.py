"""Where a model's time or energy goes: parts that add up to the total.

The parts are operators, call overhead on a processor or the wait for the host on a GPU, and the
rest that was not measured.
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
"""The rest where call overhead, or a GPU's wait for its host, is unknown too."""

RESTS = (NOT_MEASURED, NOT_TOLD_APART)
"""The rest of an end-to-end measurement beside known parts."""

OTHERS = "other operators"

BEYOND = {CALL_OVERHEAD: "overhead_time_s", WAITING: "idle_time_s"}
"""Parts of an estimate beyond operators, with their column: on a processor, on a GPU."""

_SHOWN = 0.005


@dataclass(frozen=True)
class Part:
    """A part of a model's cost. `amount`, in seconds or joules, and `share` are None if unknown;
    `calls` is None except for operators. Without all tuples (`complete`), it is a lower limit; some
    may be `predicted`.
    """

    name: str
    amount: float | None
    share: float | None
    calls: int | None = None
    complete: bool = True
    predicted: bool = False

    @property
    def is_rest(self) -> bool:
        """Whether it is the rest."""
        return self.name in RESTS


def breakdown(compared: Row, operators: Iterable[Row], quantity: Quantity = TIME) -> list[Part]:
    """The parts of a model's cost on a target, largest first, the rest last; empty without any
    measurement.

    `compared` is its row of the comparison, `operators` are its rows of the shares. Shares are of
    the estimate or, if that is incomplete, of the end-to-end measurement, whose rest also holds the
    model error. Without one, or if known parts exceed it, shares are of these, and the share of the
    rest is unknown.
    """
    measured, calls, partial, predicted = _by_name(operators, quantity)
    parts = {name: amount for name, amount in measured.items() if amount}
    beyond = beyond_operators(compared, quantity, math.fsum(parts.values()))
    parts |= {name: amount for name, amount in beyond.items() if amount}
    known = math.fsum(parts.values())
    total = total_cost(compared, known, quantity)
    if not total:
        return []
    largest = sorted(parts.items(), key=lambda item: -item[1])
    found = [
        Part(
            *(name, amount, amount / total, calls.get(name)),
            complete=name not in partial,
            predicted=name in predicted or (name in BEYOND and bool(predicted)),
        )
        for name, amount in largest
    ]
    if compared[quantity.of("estimate").value] is None:
        rest = total - known or None
        share = None if rest is None else rest / total
        name = NOT_TOLD_APART if beyond[CALL_OVERHEAD] is None else NOT_MEASURED
        found.append(Part(name, rest, share))
    return found


def total_cost(compared: Row, known: float, quantity: Quantity) -> float:
    """The base of shares: the known cost or, if incomplete, the end-to-end measurement."""
    end_to_end = compared.get(quantity.of("end_to_end").value)
    complete = compared[quantity.of("estimate").value] is not None
    return known if complete or end_to_end is None else max(known, end_to_end)


def total_of(parts: Iterable[Part]) -> float | None:
    """The base of the shares, or None without any measurement."""
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
        any(part.predicted for part in others),
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
    """The parts of the time, and the rest of the energy, without a time, if its name differs."""
    named = {part.name for part in parts}
    others = [part for part in of_energy if part.is_rest and part.name not in named]
    return [*parts, *(replace(part, amount=None, share=None) for part in others)]


def beyond_operators(
    compared: Row, quantity: Quantity, operators: float
) -> dict[str, float | None]:
    """The amount of each part beyond operators; without an estimate, the known seconds."""
    estimate = compared[quantity.of("estimate").value]
    if estimate is None:
        is_time = quantity == TIME
        return {part: compared[column] if is_time else None for part, column in BEYOND.items()}
    more = max(0.0, estimate - operators)
    return {part: more if compared[column] else 0.0 for part, column in BEYOND.items()}


def _by_name(
    operators: Iterable[Row], quantity: Quantity
) -> tuple[dict[str, float], dict[str, int], set[str], set[str]]:
    """The known amount and the calls of each operator; the incomplete and the predicted ones."""
    amounts: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, int] = defaultdict(int)
    partial, predicted = set[str](), set[str]()
    for row in operators:
        if row["launches_kernel"]:
            name = short_name(row["operator"])
            amounts[name].append(row[quantity.of("partial").value] or 0.0)
            calls[name] += row["calls"]
            if row["measured_tuples"] + row["predicted_tuples"] < row["tuples"]:
                partial.add(name)
            if row["predicted_tuples"]:
                predicted.add(name)
    known = {name: math.fsum(values) for name, values in amounts.items()}
    return known, calls, partial, predicted
