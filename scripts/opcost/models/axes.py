"""Axes of a model or target config: lists of values, each combination of which is a model or
target.

An axis is `$NAME` anywhere in the config, as in `shape: [$batch, 3, $size, $size]`, or `{NAME}`
before more letters, as in `1x{channels}x56x56`. An axis that occurs nowhere is the path of a key,
such as dtype or arguments.width; null removes the key.
"""

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

from opcost.configuration import checked_keys, invalid
from opcost.errors import closest
from opcost.models.definition import named_part
from opcost.values import shown

Value: TypeAlias = str | int | float | bool | None
Point: TypeAlias = dict[str, Value]
"""The value of each axis."""


@dataclass(frozen=True)
class Sweep:
    """A config with axes: the points of its models or targets, by their names."""

    name: str
    points: Mapping[str, Point]


KEYS = ("axes", "skip")
_MOST = 1000
_PLACE = re.compile(r"\$?\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)


class Expanded(NamedTuple):
    """A config without axes, the name of its model or target, and its point."""

    name: str
    config: Any
    point: Point


def expand(name: str, config: Any, source: str, keys: Collection[str]) -> list[Expanded]:
    """The configs of all combinations of the axes, except those that `skip` names. `keys` are the
    keys that may have an axis.

    Raises OpcostError for axes that have no effect or are ambiguous.
    """
    if not isinstance(config, Mapping) or not any(key in config for key in KEYS):
        return [Expanded(name, config, {})]
    checked_keys({key: config[key] for key in KEYS if key in config}, "model", source)
    rest = {key: value for key, value in config.items() if key not in KEYS}
    axes: dict[str, list[Value]] = config.get("axes", {})
    skip = config.get("skip", [])
    if problems := [*_of_axes(axes, rest, keys), *_of_skip(skip, axes)]:
        raise invalid(source, *problems)
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    kept = [point for point in points if not any(_matches(point, each) for each in skip)]
    if not kept:
        raise invalid(source, f"skip: it leaves none of {len(points)} combinations: remove some")
    return [Expanded(_named(name, point), _placed(rest, point), point) for point in kept]


def label(axis: str) -> str:
    """The name of an axis in names and tables: the last part of a key's path."""
    return axis.rpartition(".")[2]


def text(value: Value) -> str:
    """A value as it is written in names."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def described(point: Point, separator: str = ", ") -> str:
    """The value of each axis as text: `batch=8, size=64`."""
    return separator.join(f"{label(axis)}={text(value)}" for axis, value in point.items())


def value_of(written: str) -> Value:
    """The value that `text` wrote into a name. Words that look like numbers become numbers."""
    if written == text(None):
        return None
    try:
        found = json.loads(written, parse_constant=str)
    except ValueError:
        return written
    return found if isinstance(found, int | float) else written


def number(value: Value) -> float | None:
    """The value of a numeric axis, for a curve or chart; None for another axis."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None


def _of_axes(
    axes: Mapping[str, Sequence[Value]], config: Mapping[str, Any], keys: Collection[str]
) -> Iterator[str]:
    """Problems of axes of the right form, and placeholders without an axis."""
    found = set(places(config))
    for axis, values in axes.items():
        if len(texts := [text(value) for value in values]) != len(set(texts)):
            twice = next(each for each in texts if texts.count(each) > 1)
            yield f"axes.{axis}: {twice} occurs twice: names distinguish values"
        alike = [other for other in axes if label(other) == label(axis)]
        if len(alike) > 1:
            yield f"axes: {' and '.join(alike)} would both be called {label(axis)}: use $NAME"
        if axis in found:
            continue
        if axis.partition(".")[0] not in keys:
            yield (
                f"axes.{axis}: no value of the config is ${axis}, and no key that can have an axis "
                f"is called {axis.partition('.')[0]}: write ${axis} where its values belong, as in "
                f"shape: [${axis}, 3, 224, 224] of a model or 1x{{{axis}}}x56x56 of an "
                "operator, or name a key, such as dtype, arguments.width, or threads of a target. "
                f"{closest(axis, sorted({*found, *keys}))}"
            ).rstrip()
            continue
        if broken := _without_keys(config, axis):
            yield (
                f"axes.{axis}: {broken}, which has no keys: write it as a mapping, as in "
                "optimizer: {name: SGD}"
            )
        over = [each for each in axes if axis.startswith(f"{each}.") and each not in found]
        over += [f"${each}" for each in places(_at(config, axis))]
        if over:
            yield f"axes: {over[0]} and {axis} would replace each other: remove one of the two"
    for place in sorted(found - axes.keys()):
        known = ", ".join(f"${axis}" for axis in axes) or "none"
        begun = [axis for axis in axes if place.startswith(axis)]
        braces = f". Before more letters, write {{{begun[0]}}} for ${begun[0]}" if begun else ""
        yield f"${place} is no axis: list its values under axes. Axes: {known}{braces}"
    if (combinations := prod(map(len, axes.values()))) > _MOST:
        yield f"axes: {combinations} combinations, at most {_MOST} are allowed: use fewer values"


def _of_skip(
    skip: Sequence[Mapping[str, Any]], axes: Mapping[str, Sequence[Value]]
) -> Iterator[str]:
    for number, each in enumerate(skip):
        for axis, values in each.items():
            if axis not in axes:
                yield f"skip.{number}: {axis!r} is no axis. {closest(axis, axes)}".rstrip()
                continue
            for value in _listed(values):
                if text(value) not in map(text, axes[axis]):
                    every = ", ".join(map(text, axes[axis]))
                    yield f"skip.{number}.{axis}: {shown(value)} is none of its values: {every}"


def _matches(point: Point, skipped: Mapping[str, Any]) -> bool:
    return all(text(point[axis]) in map(text, _listed(values)) for axis, values in skipped.items())


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def places(config: Any) -> Iterator[str]:
    """The names behind `$` or in braces in a config's values."""
    if isinstance(config, str):
        yield from map(_axis, _PLACE.finditer(config))
    elif isinstance(config, Mapping | list):
        for each in config.values() if isinstance(config, Mapping) else config:
            yield from places(each)


def _axis(place: re.Match[str]) -> str:
    return place[1] or place[2]


def _without_keys(config: Mapping[str, Any], axis: str) -> str | None:
    """The part of the config on the path of an axis that is not a mapping, or None."""
    inside: Any = config
    *path, _ = axis.split(".")
    for depth, part in enumerate(path, 1):
        inside = inside.get(part, {})
        if not isinstance(inside, Mapping):
            return f"{'.'.join(path[:depth])} is {shown(inside)}"
    return None


def _at(config: Mapping[str, Any], axis: str) -> Any:
    """The value at the key of an axis, or None."""
    inside: Any = config
    for part in axis.split("."):
        inside = inside.get(part) if isinstance(inside, Mapping) else None
    return inside


def _placed(config: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """The config with values inserted for the axes."""
    named = set(places(config))
    found: dict[str, Any] = _filled(config, point)
    for axis, value in point.items():
        if axis in named:
            continue
        *path, key = axis.split(".")
        inside = found
        for part in path:
            # null removes a key, and creates no keys on the way to it.
            inside = inside.get(part, {}) if value is None else inside.setdefault(part, {})
        if value is None:
            inside.pop(key, None)
        else:
            inside[key] = value
    return found


def _filled(value: Any, point: Point) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each, point) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, point) for each in value]
    if not isinstance(value, str):
        return deepcopy(value)
    whole = _PLACE.fullmatch(value)
    return point[_axis(whole)] if whole else _PLACE.sub(lambda at: text(point[_axis(at)]), value)


def _named(name: str, point: Point) -> str:
    for axis, value in point.items():
        name = named_part(name, label(axis), text(value))
    return name
