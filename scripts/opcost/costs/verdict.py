"""How far a model's breakdown can be trusted: its sum over operators, compared with the whole."""

from collections.abc import Sequence

from opcost.costs.terms import Row
from opcost.rows.quantities import COMPARED, HOST_TIME, TIME, Quantity
from opcost.text import difference, margin, percent

_REAL = " *"
_HOST = "host"
_MEANINGS = {
    "±": "Trust to: the largest difference between the sum over operators and the measured whole "
    "model that its 95 % interval allows.",
    _REAL: "*: the interval excludes zero, so the difference is more than noise.",
    _HOST: "host: the device waits for its host most of the time. The host's pace is that of the "
    "whole model, so this comparison says little about the operators.",
}
_MOSTLY = 0.5


def trusted_to(compared: Row, quantity: Quantity = TIME) -> float | None:
    """The largest relative difference between sum and whole that its 95 % interval allows.

    None without a sum, a whole or an interval.
    """
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None:
        return None
    return max(abs(error.low), abs(error.high))


def excludes_zero(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the 95 % interval of the difference between sum and whole does not contain zero."""
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None:
        return False
    return not error.low <= 0 <= error.high


def is_of_the_host(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the comparison says little about the operators.

    That of time does, if the device mostly waits for its host, at the pace of the whole model.
    """
    paced = compared[HOST_TIME.of("reference").value] is not None
    return quantity == TIME and paced and (compared["host_bound_share"] or 0.0) > _MOSTLY


def verdict(compared: Row, quantity: Quantity = TIME) -> str:
    """How far the breakdown can be trusted: `±6%`, `±11% *`, `host`, or a dash."""
    bound = trusted_to(compared, quantity)
    if bound is None:
        return "-"
    if is_of_the_host(compared, quantity):
        return _HOST
    return f"±{margin(bound)}{_REAL if excludes_zero(compared, quantity) else ''}"


def trust_cells(compared: Row, quantity: Quantity) -> dict[str, str]:
    """Sum, whole, their difference, the verdict, and how complete the sum is: title -> text."""
    measured, tuples = compared["measured_tuples"], compared["tuples"]
    of_flops = compared["coverage_flops"]
    partial = measured < tuples and of_flops is not None
    return {
        "from operators": quantity.of("estimate").shown(compared),
        "whole model": quantity.of("reference").shown(compared),
        "difference": difference(quantity.error.read(compared)),
        "trust to": verdict(compared, quantity),
        "tuples": f"{measured}/{tuples}{f' ({percent(of_flops)} of FLOPs)' if partial else ''}",
    }


def meanings(comparison: Sequence[Row]) -> list[str]:
    """What the verdicts of these rows mean."""
    shown = [verdict(row, quantity) for row in comparison for quantity in COMPARED]
    return [text for mark, text in _MEANINGS.items() if any(mark in each for each in shown)]
