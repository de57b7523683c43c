"""Section: devices, software and settings."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from opcost.report.results import NOTHING, Results, binary
from opcost.rows.column import Role
from opcost.rows.columns import MEASUREMENT

_FEW = 3
_FIRST = ("device_name", "device", "driver_version", "torch_version", "os", "cpu_count", "threads")
_SHOWN = (Role.SETTING, Role.CONDITION, Role.PROVENANCE, Role.CIRCUMSTANCE)
_NOT_SHOWN = (*_FIRST, "conditions_json", "quiet_sentinel_time_s")
_FURTHER = ("load_average", "measured_at", "power_gain_uncertainty")

Cells = list[dict[str, str]]


def machine(results: Results) -> Cells:
    """The devices in a few rows: a property and its value on each target."""
    return _columns(results, _FIRST)


def conditions(results: Results) -> Cells:
    """All other conditions of the measurements, and the settings of the study."""
    names = [column.name for column in MEASUREMENT if column.role in _SHOWN]
    kept = [name for name in names if name not in _NOT_SHOWN]
    return [*_columns(results, [*kept, *_FURTHER]), *settings(results)]


def settings(results: Results) -> Cells:
    """The settings of each target, from the conditions that rows were measured under."""
    frame = results.operators
    found: dict[str, dict[str, list[Any]]] = {}
    for target in results.targets:
        texts = frame.loc[frame["target"] == target, "conditions_json"].dropna().unique()
        for text in texts:
            for group, entries in json.loads(text).items():
                pairs = entries.items() if isinstance(entries, dict) else [("", entries)]
                for name, value in pairs:
                    values = found.setdefault(f"{group}.{name}".rstrip("."), {})
                    values.setdefault(target, []).append(value)
    return [
        {
            "property": name,
            **{target: _summary(name, values.get(target, [])) for target in results.targets},
        }
        for name, values in found.items()
    ]


def _columns(results: Results, names: Iterable[str]) -> Cells:
    """Columns of the database, without those that have no value."""
    frame = results.operators
    parts = {target: frame[frame["target"] == target] for target in results.targets}
    rows = [
        {target: _summary(name, map(_hashable, part[name])) for target, part in parts.items()}
        | {"name": name}
        for name in names
    ]
    return [
        {"property": row.pop("name"), **row}
        for row in rows
        if any(row[target] != NOTHING for target in parts)
    ]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, np.ndarray) else value


def _summary(name: str, values: Iterable[Any]) -> str:
    """One value, a few, or the range of many."""
    known = [value for value in values if value is not None and value == value]
    distinct: dict[str, None] = {}
    for value in known:
        distinct[_shown(name, value)] = None
        if len(distinct) > _FEW:
            return f"{_shown(name, min(known))} to {_shown(name, max(known))}"
    return "; ".join(distinct) or NOTHING


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return binary(value)
    if hasattr(value, "isoformat"):
        return value.isoformat(sep=" ", timespec="minutes")
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
