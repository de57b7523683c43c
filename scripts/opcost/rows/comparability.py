"""Which rows can be combined or compared, derived from the roles of their columns.

- Rows may be added up if they agree in settings and conditions (`conflict`).
- Rows are replicates if they agree in these, in target and provenance (`conditions_id`), and in
  what was measured.
- Rows may be compared if they agree in settings; other differences are listed.

Settings that say only how long and how often to measure (`_OF_PRECISION`) are no difference: the
number means the same, and its interval says how precise it is.

An unknown value (null) agrees with any other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from opcost.devices import kinds
from opcost.rows.column import Role
from opcost.rows.columns import MEASUREMENT
from opcost.text import shortened

Row = Mapping[str, Any]


def names_in(*roles: Role) -> tuple[str, ...]:
    """The columns of a measurement with one of these roles."""
    return tuple(column.name for column in MEASUREMENT if column.role in roles)


MUST_AGREE = names_in(Role.SETTING, Role.CONDITION)
"""Rows that differ in one of these are not added up."""

_NOTED = names_in(Role.PROVENANCE)
"""Rows that differ in one of these are added up, with a note."""

COLUMNS = (*MUST_AGREE, *_NOTED)
"""The columns that determine whether rows can be combined."""

_OF_PRECISION = {
    *("min_batches", "time_relative_ci", "min_time_s", "max_time_s", "model_time_s"),
    *("power_relative_ci", "power_min_s", "power_max_s", "max_repeats", "repeat_pause_s"),
    "timeout_s",
}
"""Settings that do not change what a number means."""

OF_ONE_DEVICE = ("device_uuid_hash", "machine_id_hash")
_OF_ONE_STUDY = "quiet_sentinel_time_s"
"""Differs between studies on one processor; equal within a study."""


class Disagreement(NamedTuple):
    """A column in which rows differ, and the number of rows with each value."""

    name: str
    values: Mapping[str, int]

    def __str__(self) -> str:
        shown = [
            f"{shortened(value, 80)} ({count} row{'s' if count > 1 else ''})"
            for value, count in sorted(self.values.items())
        ]
        return f"{self.name} {' and '.join(shown)}"


def conflict(rows: Iterable[Row]) -> str | None:
    """Why rows with a result must not be added up, with a remedy, or None."""
    ok = [row for row in rows if row["status"] == "ok"]
    found = disagreements(ok, MUST_AGREE)
    if ok and all(_any_of_kind(row["conditions_json"]) for row in ok):
        found = [each for each in found if each.name not in OF_ONE_DEVICE]
    if not found:
        return None
    target = ok[0]["target"]
    return (
        f"measured under different conditions: {'; '.join(map(str, found))}. Move those of one "
        f"of them out of the folder of {target}, and run again"
    )


def provenance_differences(rows: Iterable[Row]) -> str | None:
    """The provenance in which rows with a result differ, or None."""
    ok = [row for row in rows if row["status"] == "ok"]
    names = [name for name in _NOTED if name != _OF_ONE_STUDY]
    return "; ".join(map(str, disagreements(ok, names))) or None


def disagreements(rows: Sequence[Row], names: Iterable[str]) -> list[Disagreement]:
    """The columns among `names` in which rows differ; of `conditions_json`, the settings."""
    found = []
    for name in names:
        counts = Counter(row[name] for row in rows if row[name] is not None)
        if len(counts) < 2:
            continue
        if name == "conditions_json":
            found += _differing_settings(counts)
        else:
            found.append(Disagreement(name, _as_texts(counts)))
    # A setting that has its own column is listed once.
    once: dict[str, Disagreement] = {}
    for each in found:
        once.setdefault(each.name, each)
    return [
        each for name, each in once.items() if name.rpartition(".")[2] not in once.keys() - {name}
    ]


@lru_cache(maxsize=256)
def meaning(conditions_json: str | None) -> str | None:
    """The conditions as JSON that is equal for rows whose numbers mean the same."""
    if conditions_json is None:
        return None
    document = json.loads(conditions_json)
    stated = document.get("measurement")
    if not isinstance(stated, dict):  # an imported row's conditions are its source
        return conditions_json
    meant = {name: value for name, value in stated.items() if name not in _OF_PRECISION}
    return json.dumps({**document, "measurement": meant}, sort_keys=True)


def settings_of(conditions_json: str) -> dict[str, Any]:
    """Name, such as `measurement.cache_state`, -> value of target and settings that change the
    meaning of a number.
    """
    return dict(_settings(conditions_json))


def kind_of(row: Row) -> kinds.Kind | None:
    """The kind of the row's device; None if unknown, as of imported rows."""
    requested = _settings(row["conditions_json"] or "{}").get("target.device")
    return kinds.kind_of(row["device"] if requested == "auto" else requested)


def host_sets_pace(row: Row) -> bool:
    """Whether call overhead adds to the time on the row's target; False if unknown."""
    kind = kind_of(row)
    return kind is not None and kind.host_sets_pace


def conditions_id(row: Row) -> str | None:
    """16 hex digits that are equal for rows of equal target, settings, conditions and provenance.

    None for a row without an identified device, unless it was imported: imported rows, which have
    no protocol version, are distinguished by the source in their conditions.
    """
    unidentified = row["device_uuid_hash"] is None and row[_OF_ONE_STUDY] is None
    if unidentified and row["protocol_version"] is not None:
        return None
    return _digest(tuple(row[name] for name in ("target", *COLUMNS)))


@lru_cache(maxsize=1024)
def _digest(values: tuple[Any, ...]) -> str:
    """A hash of the known values only, so that columns added later change no older row's."""
    named = dict(zip(("target", *COLUMNS), values, strict=True))
    named["conditions_json"] = meaning(named["conditions_json"])
    known = sorted((name, value) for name, value in named.items() if value is not None)
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _differing_settings(documents: Mapping[str, int]) -> list[Disagreement]:
    counts: dict[str, Counter[str]] = {}
    names = {name for text in documents for name in _settings(text)}
    for text, count in documents.items():
        settings = _settings(text)
        for name in names:
            value = json.dumps(settings[name]) if name in settings else "not set"
            counts.setdefault(name, Counter())[value] += count
    return [Disagreement(name, found) for name, found in sorted(counts.items()) if len(found) > 1]


@lru_cache(maxsize=256)
def _settings(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for section, content in json.loads(text).items():
        if isinstance(content, dict):
            found |= {
                f"{section}.{name}": value
                for name, value in content.items()
                if section != "measurement" or name not in _OF_PRECISION
            }
        else:
            found[section] = content
    return found


def _any_of_kind(conditions_json: str | None) -> bool:
    return conditions_json is not None and bool(
        _settings(conditions_json).get("target.any_of_kind")
    )


def _as_texts(counts: Mapping[Any, int]) -> dict[str, int]:
    return {
        f"{value:.10g}" if isinstance(value, float) else str(value): count
        for value, count in counts.items()
    }
