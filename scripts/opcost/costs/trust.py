"""How far the breakdown of a model's cost can be trusted: the estimate beside the end-to-end
measurement, in a word and its reason.

`good`: they differ by at most 10 %, which the 95 % interval of the difference includes, and so do
the shares of operators from those in context; `fair`: by at most 25 %; `poor`: by more.
`unverified`: nothing is known that could confirm the estimate.
"""

from typing import NamedTuple

from opcost.costs.terms import Row
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import COMPARED, HOST_TIME, PREDICTION, TIME, Quantity
from opcost.text import TOO_NOISY, difference, digits, is_too_noisy, percent, plus_minus

GOOD, FAIR, POOR, UNVERIFIED = WORDS = ("good", "fair", "poor", "unverified")

ALWAYS_SHOWN = ("estimate", "measurement", "model error", "end-to-end", "difference")
"""The titles of `trust_cells` whose columns stay where all rows have a dash."""

_LIMITS = {GOOD: 0.1, FAIR: 0.25}
_MOSTLY = 0.5
_NEGLIGIBLE = 0.02
_NOTABLE = 0.05
"""The fraction of a model's time that must be disturbed to doubt its breakdown."""


class Trust(NamedTuple):
    """One of `WORDS`, and why."""

    word: str
    reason: str

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"


def trust(compared: Row, quantity: Quantity = TIME) -> Trust:
    """The trust in the breakdown of time or energy of a row of the comparison."""
    estimate, measured = (quantity.of(each).read(compared) for each in ("estimate", "end_to_end"))
    error, bound = quantity.error.read(compared), largest_difference(compared, quantity)
    if measured is None and estimate is not None:
        return Trust(UNVERIFIED, "not measured end to end")
    if measured is None or estimate is None or error is None:
        return Trust(UNVERIFIED, compared[f"{quantity}_reason"] or "there is no estimate")
    if waits_for_host(compared, quantity):
        share = compared["host_bound_share"]
        return Trust(UNVERIFIED, f"the device waits for its host {share:.0%} of the time")
    if bound is None:
        return Trust(UNVERIFIED, "the interval of the difference is unknown")
    if bound > _LIMITS[GOOD] and (what := _disturbed(compared)):
        return Trust(UNVERIFIED, f"{what} disturbed by other programs")
    if is_too_noisy(error.plus(1.0)):
        return Trust(UNVERIFIED, TOO_NOISY)
    off = compared["largest_share_difference"] if quantity == TIME else None
    if off is not None and off > max(bound, _LIMITS[GOOD]):
        return Trust(_word(off), f"shares off by {100 * off:.0f} points")
    noise = ", more than noise" if excludes_zero(compared, quantity) and bound > _NEGLIGIBLE else ""
    share = compared["predicted_share"] or 0.0
    guessed = f", {percent(share)} predicted" if share else ""
    return Trust(_word(bound), f"estimate {difference(error)}{noise}{guessed}")


def trust_in_all(compared: Row) -> Trust:
    """The trust in time and, where it was measured end to end, in energy: the lower of the two."""
    known = [each for each in COMPARED if each.of("end_to_end").read(compared) is not None]
    found = [(trust(compared, each), each) for each in known or [TIME]]
    worst, quantity = max(found, key=lambda pair: WORDS.index(pair[0].word))
    return worst if quantity == TIME else Trust(worst.word, f"{quantity}: {worst.reason}")


def largest_difference(compared: Row, quantity: Quantity = TIME) -> float | None:
    """The largest relative difference between estimate and end-to-end that its 95 % interval
    includes; None if unknown.
    """
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None:
        return None
    return max(abs(error.low), abs(error.high))


def excludes_zero(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the 95 % interval of the difference between estimate and end-to-end does not contain
    zero; not if it is too noisy to say, or what is compared was disturbed.
    """
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None or is_too_noisy(error.plus(1.0)):
        return False
    return not error.low <= 0 <= error.high and not _disturbed(compared)


def waits_for_host(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the comparison says little about the operators: the device waits for its host most
    of the time, at the pace that was measured end to end.
    """
    paced = compared[HOST_TIME.of("end_to_end").value] is not None
    return quantity == TIME and paced and (compared["host_bound_share"] or 0.0) > _MOSTLY


def trust_cells(compared: Row, quantity: Quantity) -> dict[str, str]:
    """A row of the table of estimates and end-to-end measurements: title -> text; rows of all
    models and quantities have the same titles.
    """
    estimate = quantity.of("estimate").read(compared)
    shown = "-" if estimate is None else quantity.show(estimate.value, digits(estimate))
    off = compared["largest_share_difference"] if quantity == TIME else None
    predicted = predicted_range(compared) if quantity == TIME else ""
    return {
        "estimate": TOO_NOISY if is_too_noisy(estimate) else shown,
        "measurement": _half(compared[quantity.measurement_half]),
        "model error": _half(compared[quantity.model_error_half]),
        "predictions": predicted or "-",
        "end-to-end": quantity.of("end_to_end").shown(compared),
        "difference": difference(quantity.error.read(compared)),
        "shares off by": "-" if off is None else f"{100 * off:.2g} points",
        "operators": f"{compared['measured_tuples']}/{compared['tuples']}",
    }


def predicted_range(compared: Row) -> str:
    """By how much predictions may change the estimated time; nothing if there are none."""
    found = PREDICTION.read(compared)
    if found is None or not found.low or not found.high:
        return ""
    return f"{1 / found.high - 1:+.0%} to {1 / found.low - 1:+.0%}"


TRUST_MEANING = (
    "measurement, model error: what makes up the interval of the estimate. Shares off by: the "
    "largest difference, in percentage points, between an operator's share of the estimate and "
    "its share in context, inside the running model."
)


def _word(bound: float) -> str:
    return next((word for word, limit in _LIMITS.items() if bound <= limit), POOR)


def _disturbed(compared: Row) -> str:
    """What of the comparison was disturbed; nothing if it was not."""
    if DISTURBED in (compared["end_to_end_flags"] or ()):
        return "end to end"
    return "operators" if (compared["disturbed_share"] or 0.0) > _NOTABLE else ""


def _half(width: float | None) -> str:
    return "-" if width is None else plus_minus(width)
