"""How far a model's breakdown can be trusted: its sum over operators, compared with the whole."""

from collections.abc import Sequence
from dataclasses import dataclass

from opcost.costs.terms import Row
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import COMPARED, HOST_TIME, TIME, Quantity
from opcost.text import TOO_NOISY, difference, digits, is_too_noisy, margin, plus_minus

_REAL = " *"
_HOST = "host"
_MODEL_ERROR = "model error"
_POINTS = " pp"
_MEANINGS = {
    _MODEL_ERROR: "measurement, model error: the interval of the sum is from the uncertainty of "
    "its measurements, and of how far the sums of other models lie from their wholes.",
    "±": "Trust to: the largest difference between the sum over operators and the measured whole "
    "model that its 95 % interval allows.",
    _REAL: "*: the interval excludes zero, so the difference is more than noise.",
    _POINTS: "Shares off: the largest difference, in percentage points, between the share of an "
    "operator, or of call overhead, in the sum and its share in the running model.",
    DISTURBED: "disturbed: other programs slowed the measured model, or operators of the sum: "
    "opcost retry --flag disturbed on a quiet machine decides.",
    _HOST: "host: the device waits for its host most of the time. The host's pace is that of the "
    "whole model, so this comparison says little about the operators.",
}
_MOSTLY = 0.5
_DIGITS = 3
_NEGLIGIBLE = 0.02
_GOOD, _BAD = 0.1, 0.5

TRUSTED, DOUBTFUL, UNKNOWN = "trusted", "doubtful", "unknown"


@dataclass(frozen=True)
class Judgement:
    """The verdict in a sentence, which is `TRUSTED`, `DOUBTFUL` or `UNKNOWN`."""

    kind: str
    sentence: str


def trusted_to(compared: Row, quantity: Quantity = TIME) -> float | None:
    """The largest relative difference between sum and whole that its 95 % interval allows.

    None without a sum, a whole or an interval.
    """
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None:
        return None
    return max(abs(error.low), abs(error.high))


def excludes_zero(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the 95 % interval of the difference between sum and whole does not contain zero; not
    if it is too noisy to say, or what is compared was disturbed.
    """
    error = quantity.error.read(compared)
    if error is None or error.low is None or error.high is None or is_too_noisy(error.plus(1.0)):
        return False
    if _disturbed(compared):
        return False
    return not error.low <= 0 <= error.high


def is_of_the_host(compared: Row, quantity: Quantity = TIME) -> bool:
    """Whether the comparison says little about the operators.

    That of time does, if the device mostly waits for its host, at the pace of the whole model.
    """
    paced = compared[HOST_TIME.of("end_to_end").value] is not None
    return quantity == TIME and paced and (compared["host_bound_share"] or 0.0) > _MOSTLY


def verdict(compared: Row, quantity: Quantity = TIME) -> str:
    """How far the breakdown can be trusted: `±6%`, `±11% *`, `host`, or a dash."""
    bound = trusted_to(compared, quantity)
    if bound is None:
        return "-"
    if is_of_the_host(compared, quantity):
        return _HOST
    if bound >= _GOOD and _disturbed(compared):
        return DISTURBED
    if excludes_zero(compared, quantity):
        return f"{plus_minus(bound)}{_REAL}"
    return TOO_NOISY if bound > _BAD else plus_minus(bound)


def judgement(compared: Row, quantity: Quantity = TIME) -> Judgement:
    """The verdict in words. What cannot exceed 2 % counts as none, noise or not."""
    total, whole = (quantity.of(each).read(compared) for each in ("estimate", "end_to_end"))
    if total is None or whole is None:
        reason = compared[f"{quantity}_reason"] or "the sum or the whole model is unknown"
        return Judgement(UNKNOWN, f"Not verified: {reason}.")
    both = f"sum {quantity.show(total.value, _DIGITS)}, whole {quantity.show(whole.value, _DIGITS)}"
    bound, error = trusted_to(compared, quantity), quantity.error.read(compared)
    if bound is None or error is None:
        return Judgement(UNKNOWN, f"Not verified: the uncertainty is unknown ({both}).")
    if is_of_the_host(compared, quantity):
        share = f"{compared['host_bound_share']:.0%} of the time"
        text = f"The model waits for its host {share}, so the whole says little about operators"
        return Judgement(UNKNOWN, f"{text} ({both}).")
    if bound >= _GOOD and (disturbed := _disturbed(compared)):
        text = f"{disturbed} disturbed by other programs ({both})"
        decides = "opcost retry --flag disturbed on a quiet machine decides"
        return Judgement(UNKNOWN, f"Not verified: {text}: {decides}.")
    kind, more = TRUSTED if bound < _GOOD else DOUBTFUL, ""
    if excludes_zero(compared, quantity) and bound > _NEGLIGIBLE:
        side = "low" if error.value < 0 else "high"
        off = f"The sum is {margin(abs(error.value))} too {side}, which is more than noise"
        if kind == DOUBTFUL:
            trust = f"trust the breakdown to {plus_minus(bound)}"
            trust = "do not trust the breakdown" if bound > _BAD else trust
            return Judgement(kind, f"{off}: {trust} ({both}).")
        more = f" {off}."
    if bound > _BAD:
        noisy = f"{TOO_NOISY.capitalize()} whether to trust the breakdown ({both})"
        return Judgement(kind, f"{noisy}: run again on a quiet machine.")
    if points := _shares(compared, quantity):
        more += f" Shares differ by up to {points} from those in the running model."
        kind = kind if compared["largest_share_difference"] < _GOOD else DOUBTFUL
    return Judgement(kind, f"The breakdown can be trusted to {plus_minus(bound)} ({both}).{more}")


def _disturbed(compared: Row) -> str:
    """What of the comparison was disturbed, with its verb; nothing if it was not."""
    if DISTURBED in (compared["end_to_end_flags"] or ()):
        return "the measured model was"
    return "operators of the sum were" if DISTURBED in dict(compared["flag_counts"]) else ""


def _half(width: float | None) -> str:
    return "-" if width is None else plus_minus(width)


def _shares(compared: Row, quantity: Quantity) -> str:
    """How far shares of the sum are from those in the running model; nothing if unknown."""
    difference = compared["largest_share_difference"] if quantity == TIME else None
    if difference is None:
        return ""
    return f"{100 * difference:.{1 if difference < _GOOD else 0}f}{_POINTS}"


def trust_cells(compared: Row, quantity: Quantity) -> dict[str, str]:
    """The sum and what makes up its interval, the whole, their difference, the verdict, how
    far shares of time differ, and how complete the sum is: title -> text.
    """
    total = quantity.of("estimate").read(compared)
    shown = "-" if total is None else quantity.show(total.value, digits(total))
    shares = {"shares off": _shares(compared, quantity) or "-"} if quantity == TIME else {}
    return {
        "sum": TOO_NOISY if is_too_noisy(total) else shown,
        "measurement": _half(compared[quantity.measurement_half]),
        "model error": _half(compared[quantity.model_error_half]),
        "whole model": quantity.of("end_to_end").shown(compared),
        "difference": difference(quantity.error.read(compared)),
        "trust to": verdict(compared, quantity),
        **shares,
        "tuples": f"{compared['measured_tuples']}/{compared['tuples']}",
    }


def meanings(comparison: Sequence[Row]) -> list[str]:
    """What the verdicts of these rows mean."""
    shown = [
        each(row, quantity)
        for row in comparison
        for quantity in COMPARED
        for each in (verdict, _shares)
    ]
    shown += [_MODEL_ERROR for row in comparison if row["model_error_models"] is not None]
    return [text for mark, text in _MEANINGS.items() if any(mark in each for each in shown)]
