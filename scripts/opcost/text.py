"""Numbers and tables in readable form."""

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from opcost.statistics import Estimate
from opcost.terminal import printable

_PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
_DIGITS = 4
_WIDE, _VERY_WIDE = 0.05, 0.4
_WIDTH, _LEAST_WIDTH = 100, 40

MOST_NOISE = 0.5  # half of an interval, as a share of the value: more is too noisy to say
TOO_NOISY = "too noisy to say"
_MEANING_OF_NOISE = (
    f"{TOO_NOISY.capitalize()}: the 95 % interval is wider than ±50%. It narrows with runs on "
    "a quiet machine (opcost retry --flag disturbed), with more rounds, and with measurements of "
    "what is predicted. The files have the numbers."
)
_CELL, _NARROW = 500, 40


def width() -> int:
    """The longest line, in characters: at most a terminal's, and at most 100."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _WIDTH
    return min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), _WIDTH)


def seconds(value: float, digits: int = _DIGITS) -> str:
    """A duration with its unit, to this number of significant digits."""
    rounded = float(f"{value:.{digits - 1}e}")
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(rounded) >= scale:
            return f"{significant(value / scale, digits)} {unit}"
    return f"{significant(value / 1e-9, digits)} ns"


def prefixed(value: float, unit: str, digits: int = _DIGITS) -> str:
    """A quantity with its SI prefix, to this number of significant digits."""
    number, prefix = _prefixed(value, digits)
    return f"{significant(number, digits)} {prefix}{unit}"


def joules(value: float, digits: int = _DIGITS) -> str:
    """An energy with its SI prefix, to this number of significant digits."""
    return prefixed(value, "J", digits)


def watts(value: float, digits: int = _DIGITS) -> str:
    """A power with its SI prefix, to this number of significant digits."""
    return prefixed(value, "W", digits)


def duration(value: float) -> str:
    """Whole seconds, or minutes from two on."""
    return f"{value:.0f} s" if round(value) < 120 else f"{value / 60:.0f} min"


def counted(number: int, noun: str) -> str:
    """The number and the noun, with a plural s unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int) -> str:
    """At most `most` of the names, and the number of others."""
    others = [counted(len(names) - most, "other")] if len(names) > most else []
    return ", ".join([*names[:most], *others])


def percent(share: float | None, decimals: int = 0) -> str:
    """A share in per cent, or a dash. A positive share is never shown as 0%."""
    if share is None:
        return "-"
    text = f"{share:z.{decimals}%}"
    return f"<{10.0**-decimals:.{decimals}f}%" if share > 0 and not float(text[:-1]) else text


def with_interval(
    estimate: Estimate | None, show: Callable[[float, int], str], runs: Sequence[float] = ()
) -> str:
    """A value with half of its 95 % interval in per cent, or a dash.

    `show` gets the value and the number of digits that the interval allows. A wide and lopsided
    interval is shown by its limits. If the value is too noisy, its `runs` are shown instead, if
    they are known.
    """
    if estimate is None:
        return "-"
    half = estimate.relative_half_width
    if half is None or estimate.low is None or estimate.high is None:
        return show(estimate.value, _DIGITS)
    if is_too_noisy(estimate):
        limits = [show(each, 3) for each in (min(runs), max(runs))] if len(runs) > 1 else []
        joined = (" and " if len(runs) == 2 else " to ").join(limits)
        return f"{TOO_NOISY} ({len(runs)} runs: {joined})" if limits else TOO_NOISY
    shown = digits(estimate)
    value = show(estimate.value, shown)
    if _is_lopsided(half, estimate.value, estimate.low, estimate.high):
        return f"{value} [{show(estimate.low, shown)}, {show(estimate.high, shown)}]"
    return f"{value} ± {margin(half)}"


def is_too_noisy(estimate: Estimate | None) -> bool:
    """Whether half of the interval is so large that the value is meaningless."""
    half = None if estimate is None else estimate.relative_half_width
    return half is not None and half > MOST_NOISE


def with_meaning_of_noise(text: str) -> str:
    """The text, with an explanation of "too noisy" and a remedy if it contains that."""
    if TOO_NOISY not in text:
        return text
    return "\n".join([text, "", *wrapped([_MEANING_OF_NOISE])])


def _is_lopsided(half: float, value: float, low: float, high: float) -> bool:
    """Whether half of an interval, a share, would be misleading: it is wide, and twice as long on
    one side, or very wide and longer by half.
    """
    shorter, longer = sorted([value - low, high - value])
    return half > _WIDE and longer > (1.5 if half > _VERY_WIDE else 2) * shorter


def margin(share: float) -> str:
    """A small share in per cent, to two digits, as half of an interval."""
    if share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def plus_minus(share: float) -> str:
    """Half of an interval as a share: `±6%`."""
    return f"±{margin(share)}" if share <= MOST_NOISE else f">±{margin(MOST_NOISE)}"


def digits(estimate: Estimate | None) -> int:
    """The number of digits, 2 to 4, such that the interval affects the last but one."""
    half = None if estimate is None else estimate.relative_half_width
    if half is None or half <= 0:
        return _DIGITS
    return min(max(1 - math.floor(math.log10(half)), 2), _DIGITS)


def without_interval(
    value: float | None, half: float | None, show: Callable[[float, int], str]
) -> str:
    """A value without its own interval, or a dash.

    It has the digits that an error of `half`, of the total that it is part of, allows; 0 if none.
    """
    if value is None:
        return "-"
    if not half or not value:
        return show(value, _DIGITS)
    left = 1 - math.floor(math.log10(half / abs(value)))
    return show(value, min(left, _DIGITS)) if left > 0 else "0"


def with_margin(estimate: Estimate | None, show: Callable[[float, int], str]) -> str:
    """A value that may be zero, with half of its 95 % interval in the same unit, or a dash.

    Both are rounded to the first digit of the half, or to the second one after a 1.
    """
    if estimate is None:
        return "-"
    half = estimate.half_width
    if not half:
        return show(estimate.value, _DIGITS)
    shown = 2 if f"{half:e}".startswith("1") else 1
    step = 10.0 ** (math.floor(math.log10(half)) + 1 - shown)
    steps = round(estimate.value / step)
    value = show(steps * step, len(str(abs(steps)))) if steps else "0"
    return f"{value} ± {show(half, shown)}"


def significant(number: float, digits: int) -> str:
    """The number to this many significant digits, with trailing zeros and without exponent."""
    rounded = float(f"{number:.{digits - 1}e}")
    if rounded == 0:
        return "0"
    return f"{rounded:.{max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)}f}"


def shortened(description: str, longest: int = 64) -> str:
    """A text, such as a tuple's description, cut to fit a line."""
    cut = description if len(description) <= longest else f"{description[: longest - 3]}..."
    return printable(cut)


def difference(error: Estimate | None) -> str:
    """A relative error, a ratio less 1, with half of its 95 % interval, or with its limits if it is
    wide and lopsided, or a dash.
    """
    if error is None:
        return "-"
    if error.low is None or error.high is None:
        return f"{error.value:+z.1%}"
    if is_too_noisy(error.plus(1.0)):
        return TOO_NOISY
    share = (error.high - error.low) / 2
    if _is_lopsided(share, error.value, error.low, error.high):
        return f"{error.value:+z.0%} [{error.low:+z.0%}, {error.high:+z.0%}]"
    half = margin(share)
    return f"{error.value:+z.{1 if '.' in half else 0}%} ± {half}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, with the first `left` columns aligned left and the others right. Each cell
    is printable, and cut after some hundred characters.
    """
    cells = [[shortened(cell, _CELL) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    line = "  ".join(f"%{'-' * (index < left)}{width}s" for index, width in enumerate(widths))
    return [(line % (*row,)).rstrip() for row in cells]


def with_values(
    cells: Sequence[Mapping[str, str]], always: Collection[str] = ()
) -> list[dict[str, str]]:
    """Title -> text of each row, without titles that are a dash in all but are not in `always`."""
    shown = [
        title
        for title in (cells[0] if cells else ())
        if title in always or any(row[title].strip() != "-" for row in cells)
    ]
    return [{title: row[title] for title in shown} for row in cells]


def table_of(cells: Sequence[Mapping[str, str]], left: int = 1) -> list[str]:
    """Lines of a table, title -> text in each row; none without rows."""
    return table(list(cells[0]), [list(row.values()) for row in cells], left) if cells else []


def fitted(cells: Sequence[Mapping[str, str]], droppable: Iterable[str], left: int) -> list[str]:
    """Lines of a table, title -> text in each row, without the first `droppable` titles as far as
    it would otherwise be wider than `width`. If that is not enough, each row is a few lines on a
    narrow terminal; otherwise, the first `left` titles, which are aligned left, are cut.
    """
    titles = list(cells[0])
    for title in ("", *droppable):
        left -= title in titles[:left]
        titles = [each for each in titles if each != title]
        lines = table(titles, [[row[each] for each in titles] for row in cells], left)
        if max(map(len, lines)) <= width():
            return lines
    if width() < _WIDTH:
        return [
            *wrapped([f"{titles[0]}:"]),
            *(line for row in cells for line in _in_lines(row, titles)),
        ]
    short = [[shortened(row[each], _NARROW) for each in titles[:left]] for row in cells]
    rest = [[row[each] for each in titles[left:]] for row in cells]
    return table(titles, [[*a, *b] for a, b in zip(short, rest, strict=True)], left)


def _in_lines(row: Mapping[str, str], titles: Sequence[str]) -> list[str]:
    """A row of a table for a narrow terminal: its first text, then others with their titles."""
    first, *others = titles
    lines = [f"  {title}: {row[title]}" for title in others if row[title] not in ("", "-")]
    return wrapped(shortened(line, _CELL) for line in (row[first], *lines))


def wrapped(notes: Iterable[str], indent: str = "") -> list[str]:
    """The notes in lines of at most `width`; further lines of a note are indented more."""
    more = f"{indent}  "
    return [
        printable(line)
        for note in notes
        for line in textwrap.wrap(
            note, width(), initial_indent=indent, subsequent_indent=more, break_long_words=False
        )
    ]


def scaled(value: float, unit: str, digits: int = 3) -> str:
    """A quantity with its SI prefix: 3.2e12 FLOP/s is `3.2 TFLOP/s`."""
    number, prefix = _prefixed(value, digits)
    return f"{number:.{digits}g} {prefix}{unit}"


def _prefixed(value: float, digits: int) -> tuple[float, str]:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = min(max(int(exponent) // 3, -3), 5)
    return float(mantissa) * 10.0 ** (int(exponent) - 3 * power), _PREFIXES[power]
