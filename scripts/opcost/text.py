"""Numbers and tables as people read them."""

from collections.abc import Callable, Iterable, Sequence

from opcost.statistics import Estimate

_PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
_WIDE = 0.05


def seconds(value: float) -> str:
    """A duration with its unit, to four digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"


def joules(value: float) -> str:
    """An energy with its SI prefix, to four digits."""
    return scaled(value, "J", 4)


def duration(value: float) -> str:
    """Whole seconds, or minutes from 100 s."""
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def counted(number: int, noun: str) -> str:
    """The number and the noun, with a plural s unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int) -> str:
    """At most `most` of the names, and how many others there are."""
    others = [counted(len(names) - most, "other")] if len(names) > most else []
    return ", ".join([*names[:most], *others])


def names_by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group pairs of a text and a name by text."""
    found: dict[str, list[str]] = {}
    for text, name in pairs:
        found.setdefault(text, []).append(name)
    return found


def percent(share: float | None) -> str:
    """A share in whole per cent, or a dash."""
    return "-" if share is None else f"{share:.0%}"


def with_interval(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    """A value with half of its 95 % interval in per cent, or a dash.

    With the limits of the interval, if it is wide and lopsided.
    """
    if estimate is None:
        return "-"
    half, value = estimate.relative_half_width, show(estimate.value)
    if half is None or estimate.low is None or estimate.high is None:
        return value
    shorter, longer = sorted([estimate.value - estimate.low, estimate.high - estimate.value])
    if half > _WIDE and longer > 2 * shorter:
        return f"{value} [{show(estimate.low)}, {show(estimate.high)}]"
    return f"{value} ± {half:.1%}"


def shortened(description: str, width: int = 64) -> str:
    """A text, such as a tuple's description, cut to fit a line."""
    return description if len(description) <= width else f"{description[: width - 3]}..."


def difference(error: Estimate | None) -> str:
    """A relative error with half of its 95 % interval, or a dash."""
    if error is None:
        return "-"
    if error.low is None or error.high is None:
        return f"{error.value:+.1%}"
    return f"{error.value:+.1%} ± {(error.high - error.low) / 2:.1%}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, with the first `left` columns aligned left and the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    line = "  ".join(f"%{'-' * (index < left)}{width}s" for index, width in enumerate(widths))
    return [(line % (*cells,)).rstrip() for cells in [header, *rows]]


def scaled(value: float, unit: str, digits: int = 3) -> str:
    """A quantity with its SI prefix: 3.2e12 FLOP/s is `3.2 TFLOP/s`."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = min(max(int(exponent) // 3, -3), 5)
    number = float(mantissa) * 10.0 ** (int(exponent) - 3 * power)
    return f"{number:.{digits}g} {_PREFIXES[power]}{unit}"
