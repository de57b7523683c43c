"""What two sets of rows were not measured under alike: hardware, software, settings, and speed."""

import json
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from opcost.costs.terms import Row

_NAMED = (
    "protocol_version",
    "launch_mode",
    "worker",
    "device_name",
    "device_uuid_hash",
    "driver_version",
    "cuda_version",
    "cudnn_version",
    "torch_version",
    "torchvision_version",
    "python_version",
    "opcost_version",
    "os",
    "cpu_count",
    "last_level_cache_bytes",
    "core_cache_bytes",
    "allocator",
    "meter",
    "sensor_source",
    "power_limit_w",
)
_MEASURED = ("sm_clock_mhz", "memory_clock_mhz", "temperature_end_c", "quiet_sentinel_time_s")
_MUST_AGREE = ("protocol_version", "launch_mode")
_MAY_DIFFER = ("target.device", "target.any_of_kind")
_LEAST = 0.005  # what is measured is never quite the same

CONDITION_COLUMNS = ("conditions_json", *_NAMED, *_MEASURED)
"""The columns that are looked at."""


class Condition(NamedTuple):
    """Something that the two databases were not measured under alike, as text.

    `comparable` is false where numbers mean something else because of it.
    """

    name: str
    before: str
    after: str
    comparable: bool


def conditions_between(before: Iterable[Row], after: Iterable[Row]) -> list[Condition]:
    """What the results among the rows were not measured under alike."""
    first, second = ([row for row in rows if row["status"] == "ok"] for rows in (before, after))
    found = [
        _difference(name, _values(first, name), _values(second, name), name not in _MUST_AGREE)
        for name in _NAMED
    ]
    settings = _settings(first), _settings(second)
    for name in sorted({*settings[0], *settings[1]}):
        old, new = (document.get(name, {"not set"} if document else set()) for document in settings)
        found.append(_difference(name, old, new, name in _MAY_DIFFER))
    found += [_measured_difference(name, first, second) for name in _MEASURED]
    return [each for each in found if each is not None]


def _values(rows: Iterable[Row], name: str) -> set[str]:
    return {"not known" if row[name] is None else str(row[name]) for row in rows}


def _settings(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Target and settings by name: `measurement.cache_state`."""
    result: dict[str, set[str]] = {}
    for text in {row["conditions_json"] for row in rows if row["conditions_json"]}:
        for section, content in json.loads(text).items():
            for name, value in content.items() if isinstance(content, dict) else ():
                result.setdefault(f"{section}.{name}", set()).add(json.dumps(value))
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
    if abs(second - first) <= _LEAST * abs(first):
        return None
    change = f" ({second / first - 1:+.1%})" if first else ""
    return Condition(name, f"{first:.4g}", f"{second:.4g}{change}", True)


def listed(names: Iterable[Any]) -> str:
    """Names in their order, with commas."""
    return ", ".join(sorted(map(str, names)))
