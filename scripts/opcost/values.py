"""Rules for values read from files; each describes the allowed values."""

import math
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opcost.errors import OpcostError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 80
_SHORT.maxlevel, _SHORT.maxlist = 4, 12


@dataclass(frozen=True)
class Rule:
    """A condition on a value. `allowed` completes the sentence "allowed is ..."."""

    allowed: str
    holds: Callable[[Any], bool]


def number(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Rule:
    """A finite number from `low` (or above it) to `high`."""

    def holds(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        finite = abs(value) <= sys.float_info.max
        return finite and low <= value <= high and not (above and value == low)

    return Rule(f"a finite number{_range(low, high, above)}", holds)


def whole_number(low: int, high: float = math.inf) -> Rule:
    """An integer from `low` to `high`."""

    def holds(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Rule(f"a whole number{_range(low, high, above=False)}", holds)


def text(pattern: str, allowed: str) -> Rule:
    """A string that matches the pattern completely."""
    compiled = re.compile(pattern)
    return Rule(allowed, lambda value: isinstance(value, str) and bool(compiled.fullmatch(value)))


def one_of(*values: Any) -> Rule:
    """One of these values, of the same type."""
    names = " or ".join("null" if value is None else repr(value) for value in values)
    return Rule(names, lambda value: any(type(value) is type(v) and value == v for v in values))


def optional(rule: Rule) -> Rule:
    """Null, or a value that the rule allows."""
    return Rule(f"{rule.allowed}, or null", lambda value: value is None or rule.holds(value))


def list_of(rule: Rule) -> Rule:
    """A list whose elements the rule allows."""

    def holds(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(map(rule.holds, value))

    return Rule(f"a list, each element {rule.allowed}", holds)


def list_like(*rules: Rule) -> Rule:
    """A list with an element for each rule."""

    def holds(value: Any) -> bool:
        return (
            isinstance(value, list | tuple)
            and len(value) == len(rules)
            and all(rule.holds(element) for rule, element in zip(rules, value, strict=True))
        )

    return Rule(f"[{'; '.join(rule.allowed for rule in rules)}]", holds)


BOOLEAN = Rule("true or false", lambda value: isinstance(value, bool))
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
OBJECTS = Rule(
    "an object of objects",
    lambda value: OBJECT.holds(value) and all(map(OBJECT.holds, value.values())),
)
STRING = Rule("a string", lambda value: isinstance(value, str))
TEXT = Rule("a string that is not empty", lambda value: isinstance(value, str) and value != "")
PRINTABLE = Rule(
    "a string of 1 to 300 printable characters",
    lambda value: isinstance(value, str) and 0 < len(value) <= 300 and value.isprintable(),
)


def check_values(
    document: Mapping[str, Any], rules: Mapping[str, Rule], source: object, remedy: str
) -> None:
    """Raise OpcostError for the first key that is missing or breaks its rule."""
    for key, rule in rules.items():
        if key not in document:
            raise OpcostError(f"{source} has no {key} ({rule.allowed}): {remedy}")
        if not rule.holds(document[key]):
            raise OpcostError(
                f"{source}: {key} is {shown(document[key])}; allowed is {rule.allowed}: {remedy}"
            )


def shown(value: object) -> str:
    """A value in messages, cut to fit a line."""
    return "null" if value is None else _SHORT.repr(value)


def _range(low: float, high: float, above: bool) -> str:
    least = "" if low == -math.inf else f" above {low:g}" if above else f" of at least {low:g}"
    most = "" if high == math.inf else f"{' and' if least else ' of'} at most {high:g}"
    return least + most
