"""Section: devices, software and settings."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from opcost.report.results import Results
from opcost.rows.column import Role
from opcost.rows.columns import MEASUREMENT

_FEW = 3
_FIRST = ("device_name", "device", "driver_version", "torch_version", "os", "cpu_count", "threads")
_SHOWN = (Role.SETTING, Role.CONDITION, Role.PROVENANCE, Role.CIRCUMSTANCE)
_NOT_SHOWN = ("conditions_json",)
_RAW_SHOWN = (
    "footprint_bytes",
    "operand_sets",
    "sentinel_time_s",
    "cores",
    "load_average",
    "measured_at",
    "device_time_s",
    "power_gain_uncertainty",
)


def machine(results: Results) -> list[tuple[str, str, list[str]]]:
    """(column, meaning, value on each target), without columns that have no value."""
    meanings = {column.name: column.meaning for column in MEASUREMENT}
    known = [column.name for column in MEASUREMENT if column.role in _SHOWN]
    names = [*_FIRST, *(name for name in known if name not in (*_FIRST, *_NOT_SHOWN))]
    frame = results.operators
    parts = [frame[frame["target"] == target] for target in results.targets]
    table = [
        (
            name,
            meanings[name].replace("`", ""),
            [_summary(map(_hashable, part[name])) for part in parts],
        )
        for name in [*names, *_RAW_SHOWN]
    ]
    return [row for row in table if any(row[2])]


def settings(results: Results) -> list[tuple[str, list[str]]]:
    """(setting, its value on each target), from the conditions that rows were measured under."""
    frame = results.operators
    found: list[dict[str, list[Any]]] = []
    for target in results.targets:
        texts = frame.loc[frame["target"] == target, "conditions_json"].dropna().unique()
        values: dict[str, list[Any]] = {}
        for text in texts:
            for group, entries in json.loads(text).items():
                pairs = entries.items() if isinstance(entries, dict) else [("", entries)]
                for name, value in pairs:
                    values.setdefault(f"{group}.{name}".rstrip("."), []).append(value)
        found.append(values)
    names = dict.fromkeys(name for values in found for name in values)
    return [(name, [_summary(values.get(name, [])) for values in found]) for name in names]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, np.ndarray) else value


def _summary(values: Iterable[Any]) -> str:
    """One value, a few, or the range of many."""
    known = [value for value in values if value is not None and value == value]
    distinct: dict[str, None] = {}
    for value in known:
        distinct[_shown(value)] = None
        if len(distinct) > _FEW:
            return f"{_shown(min(known))} to {_shown(max(known))}"
    return "; ".join(distinct)


def _shown(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return value.isoformat(sep=" ", timespec="minutes")
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
