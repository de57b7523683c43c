"""Rows of two databases, paired by target and operator tuple, and differences in conditions."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from opcost.databases.database import read_database
from opcost.errors import OpcostError, closest
from opcost.rows import comparability
from opcost.rows.column import Role
from opcost.rows.columns import ANSWER, MEASUREMENT
from opcost.rows.quantities import TIME
from opcost.rows.runs import COLUMNS, Row

_CONDITIONS = comparability.names_in(
    Role.SETTING, Role.CONDITION, Role.PROVENANCE, Role.CIRCUMSTANCE
)
_IDENTITY = ("tuple_id", "operator", "description", "target", "conditions_id")
_COLUMNS = tuple(dict.fromkeys((*_IDENTITY, *ANSWER, *COLUMNS, *_CONDITIONS)))
_MAY_DIFFER = ("target.device", "target.any_of_kind")
_MIN_CHANGE = 0.005  # relative; measured values always differ slightly
_ROW_BYTES = 12_000  # in memory, as Python's objects


class Condition(NamedTuple):
    """A difference between the conditions of two databases, as text; `comparable` is false if
    results are not comparable because of it.
    """

    name: str
    before: str
    after: str
    comparable: bool


@dataclass(frozen=True)
class Pairing:
    """The rows of a target before and after, by tuple id."""

    before_target: str
    after_target: str
    before: Mapping[str, Row]
    after: Mapping[str, Row]

    @property
    def both(self) -> list[tuple[Row, Row]]:
        """Pairs of rows of the same tuple."""
        return [(row, self.after[each]) for each, row in self.before.items() if each in self.after]

    @property
    def pairs(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple, both with a result, unless they are the same measurement."""
        return [pair for pair in self._with_results if _times(pair[0]) != _times(pair[1])]

    @property
    def same(self) -> int:
        """The number of tuples whose rows are the same measurement in both."""
        return len(self._with_results) - len(self.pairs)

    @property
    def _with_results(self) -> list[tuple[Row, Row]]:
        return [pair for pair in self.both if all(row["status"] == "ok" for row in pair)]

    @property
    def failed(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple of which only one has a result."""
        return [pair for pair in self.both if len({row["status"] == "ok" for row in pair}) == 2]

    @property
    def shared(self) -> int:
        """The number of pairs with a run in common, whose difference is too small."""
        times = ([set(_times(row)) for row in pair] for pair in self.pairs)
        return sum(not first.isdisjoint(second) for first, second in times)

    @property
    def conditions(self) -> list[Condition]:
        """The differences in conditions between rows with a result, or else all rows."""
        sides = []
        for rows in (self.before, self.after):
            known = [row for row in rows.values() if row["status"] == "ok"]
            sides.append(known or list(rows.values()))
        return list(_differences(sides)) if all(sides) else []


def _times(row: Row) -> Sequence[float]:
    """The seconds of each run: two measurements never have equal ones to the last digit."""
    times_s: Sequence[float] = row[TIME.runs] or [row[TIME.value]]
    return times_s


def pair_databases(
    before: Path,
    after: Path,
    targets: Mapping[str, str] | None = None,
    before_conditions: str | None = None,
    after_conditions: str | None = None,
) -> list[Pairing]:
    """Pair the rows of two databases by target and tuple id.

    `targets` maps targets before to targets after; if given, only these are paired. If a merged
    database has a target under several conditions, `before_conditions` and `after_conditions`
    select rows by conditions_id. Raises OpcostError for a target or conditions_id that does not
    exist, if no target is in both, and if a target has several conditions and none is selected.
    """
    first = _by_target(before, before_conditions, "before")
    second = _by_target(after, after_conditions, "after")
    chosen = targets or {name: name for name in first if name in second}
    if not chosen:
        raise OpcostError(
            f"{before} has targets {_listed(first)}, {after} {_listed(second)}: none is in both. "
            "Name those to compare: --target BEFORE=AFTER"
        )
    for path, names, found in ((before, chosen.keys(), first), (after, chosen.values(), second)):
        for name in names:
            if name not in found:
                raise OpcostError(f"{path} has no target {name!r}. {closest(name, found)}")
    return [Pairing(old, new, first[old], second[new]) for old, new in chosen.items()]


def _by_target(path: Path, conditions: str | None, side: str) -> dict[str, dict[str, Row]]:
    rows = read_database(path, _COLUMNS, _ROW_BYTES, conditions).to_pylist()
    if conditions is not None and not rows:
        every = read_database(path, ["target", "conditions_id"]).to_pydict()
        hint = closest(conditions, filter(None, every.get("conditions_id", ())))
        hint = hint or "Only merged databases have conditions_ids."
        raise OpcostError(f"{path} has no conditions_id {conditions!r}. {hint}")
    known = {
        row["conditions_id"]: f"{row['conditions_id']} ({row['target']} on {row['device_name']}, "
        f"driver {row['driver_version']}, torch {row['torch_version']})"
        for row in rows
        if row.get("conditions_id")
    }
    result: dict[str, dict[str, Row]] = {}
    for row in rows:
        held = result.setdefault(row["target"], {})
        other = held.get(row["tuple_id"])
        # A failure without a recorded device has no conditions_id.
        if other is None or other.get("conditions_id") is None:
            held[row["tuple_id"]] = row
        elif row["conditions_id"] is not None:
            raise OpcostError(
                f"{path} has rows of target {row['target']!r} under several conditions: choose one "
                f"with --{side}-conditions: {'; '.join(known.values())}"
            )
    return result


def _differences(sides: Sequence[Sequence[Row]]) -> Iterator[Condition]:
    settings = [*map(_settings, sides)]
    in_json = {name.rpartition(".")[2] for each in settings for name in each} | {"conditions_json"}
    for column in MEASUREMENT:
        name, is_number = column.name, pa.types.is_floating(column.type)
        if name not in _CONDITIONS or name in in_json:
            continue
        values = [{row[name] for row in rows} for rows in sides]
        old, new = _medians(name, sides) if is_number else map(_listed, values)
        if old != new:
            yield Condition(name, old, new, is_number or column.role is not Role.SETTING)
    for name in sorted({*settings[0], *settings[1]}) if all(settings) else ():
        old, new = (_listed(each.get(name, {"not set"})) for each in settings)
        if old != new:
            yield Condition(name, old, new, name in _MAY_DIFFER)


def _settings(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Target and settings by name: `measurement.cache_state`."""
    result: dict[str, set[str]] = {}
    for text in {row["conditions_json"] for row in rows if row["conditions_json"]}:
        for name, value in comparability.settings_of(text).items():
            if "." in name:  # others have their own columns
                result.setdefault(name, set()).add(json.dumps(value))
    return result


def _medians(name: str, sides: Iterable[Iterable[Row]]) -> list[str]:
    """Both medians as text; equal texts if they hardly differ or one is unknown."""
    known = [[row[name] for row in rows if row[name] is not None] for rows in sides]
    first, second = (statistics.median(each) if each else math.nan for each in known)
    if not abs(second - first) > _MIN_CHANGE * abs(first):
        return ["", ""]
    change = f" ({second / first - 1:+.1%})" if first else ""
    return [f"{first:.4g}", f"{second:.4g}{change}"]


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(sorted("unknown" if name is None else str(name) for name in names))
