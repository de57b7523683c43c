"""Differences in hardware, software, settings and speed between two sets of rows."""

import json
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from opcost.costs.terms import Row
from opcost.rows import comparability
from opcost.rows.column import Role
from opcost.rows.columns import MEASUREMENT

_NAMED = comparability.names_in(Role.SETTING, Role.CONDITION, Role.PROVENANCE, Role.CIRCUMSTANCE)
_MAY_DIFFER = ("target.device", "target.any_of_kind")
_MIN_CHANGE = 0.005  # relative; measured values always differ slightly

CONDITION_COLUMNS = _NAMED
"""The columns that are compared."""


class Condition(NamedTuple):
    """A difference between the conditions of two databases, as text.

    `comparable` is false if results are not comparable because of it.
    """

    name: str
    before: str
    after: str
    comparable: bool


def conditions_between(before: Iterable[Row], after: Iterable[Row]) -> list[Condition]:
    """The differences in conditions between two sets of rows, of rows with a result.

    Results under different settings are not comparable. Numbers, such as clocks and temperatures,
    are compared by their medians.
    """
    first, second = ([row for row in rows if row["status"] == "ok"] for rows in (before, after))
    settings = _settings(first), _settings(second)
    in_json = {name.rpartition(".")[2] for name in (*settings[0], *settings[1])}
    found = []
    for column in MEASUREMENT:
        if column.name not in _NAMED or column.name in in_json or column.name == "conditions_json":
            continue
        if pa.types.is_floating(column.type):
            found.append(_measured_difference(column.name, first, second))
        else:
            values = _values(first, column.name), _values(second, column.name)
            comparable = column.role is not Role.SETTING
            found.append(_difference(column.name, *values, comparable))
    for name in sorted({*settings[0], *settings[1]}):
        old, new = (document.get(name, {"not set"} if document else set()) for document in settings)
        found.append(_difference(name, old, new, name in _MAY_DIFFER))
    return [each for each in found if each is not None]


def _values(rows: Iterable[Row], name: str) -> set[str]:
    return {"unknown" if row[name] is None else str(row[name]) for row in rows}


def _settings(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Target and settings by name: `measurement.cache_state`."""
    result: dict[str, set[str]] = {}
    for text in {row["conditions_json"] for row in rows if row["conditions_json"]}:
        for name, value in comparability.settings_of(text).items():
            if "." in name:  # others have their own columns
                result.setdefault(name, set()).add(json.dumps(value))
    return result


def _difference(name: str, before: set[str], after: set[str], comparable: bool) -> Condition | None:
    if before == after or not (before and after):
        return None
    return Condition(name, listed(before), listed(after), comparable)


def _measured_difference(
    name: str, before: Iterable[Row], after: Iterable[Row]
) -> Condition | None:
    values = [[row[name] for row in rows if row[name] is not None] for rows in (before, after)]
    if not all(values):
        return None
    first, second = map(statistics.median, values)
    if abs(second - first) <= _MIN_CHANGE * abs(first):
        return None
    change = f" ({second / first - 1:+.1%})" if first else ""
    return Condition(name, f"{first:.4g}", f"{second:.4g}{change}", True)


def listed(names: Iterable[Any]) -> str:
    """Names in order, separated by commas."""
    return ", ".join(sorted(map(str, names)))
