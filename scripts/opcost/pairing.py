"""Which rows of two databases are measurements of the same, and what they were measured on."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from opcost.database import read_database
from opcost.errors import OpcostError, closest
from opcost.terms import Row

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
_LEAST = 0.005  # what is measured is never quite the same

_COLUMNS = (
    "tuple_id",
    "operator",
    "description",
    "target",
    "status",
    "error",
    "time_s",
    "time_ci_low_s",
    "time_ci_high_s",
    "energy_j",
    "energy_ci_low_j",
    "energy_ci_high_j",
    "converged",
    "power_converged",
    "flags",
    "spread",
    "conditions_json",
    "conditions_id",
    *_NAMED,
    *_MEASURED,
)


class Condition(NamedTuple):
    """Something that the two databases were not measured under alike, as text.

    `comparable` is false where numbers mean something else because of it.
    """

    name: str
    before: str
    after: str
    comparable: bool


@dataclass(frozen=True)
class Pairing:
    """The rows of one target before and of one after, by tuple id."""

    before_target: str
    after_target: str
    before: Mapping[str, Row]
    after: Mapping[str, Row]
    conditions: Sequence[Condition] = field(default=())

    @property
    def pairs(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple, both with a result."""
        return [pair for pair in self._both() if all(row["status"] == "ok" for row in pair)]

    @property
    def failed(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple, of which just one has a result."""
        return [pair for pair in self._both() if len({row["status"] == "ok" for row in pair}) == 2]

    @property
    def only_before(self) -> list[Row]:
        """Rows that the second database has not."""
        return [row for tuple_id, row in self.before.items() if tuple_id not in self.after]

    @property
    def only_after(self) -> list[Row]:
        """Rows that the first database has not."""
        return [row for tuple_id, row in self.after.items() if tuple_id not in self.before]

    def _both(self) -> Iterator[tuple[Row, Row]]:
        for tuple_id, row in self.before.items():
            if tuple_id in self.after:
                yield row, self.after[tuple_id]


def pair_databases(
    before: Path,
    after: Path,
    targets: Mapping[str, str] | None = None,
    before_conditions: str | None = None,
    after_conditions: str | None = None,
) -> list[Pairing]:
    """Pair the rows of two databases by target and tuple id.

    `targets` names the target after for a target before, where the two are not called the same;
    given some, only these are paired. Of a merged database that has a target under several
    conditions, `before_conditions` and `after_conditions` choose the rows by their conditions_id.
    Raises OpcostError for a target or conditions_id that does not exist, where no target is in
    both, and where a target's rows must be chosen and are not.
    """
    first = _by_target(before, before_conditions, "before")
    second = _by_target(after, after_conditions, "after")
    chosen = targets or {name: name for name in first if name in second}
    if not chosen:
        raise OpcostError(
            f"{before} has targets {_list(first)}, {after} {_list(second)}: none is in both. "
            "Name those to compare: --target BEFORE=AFTER"
        )
    for path, names, found in ((before, chosen.keys(), first), (after, chosen.values(), second)):
        for name in names:
            if name not in found:
                raise OpcostError(f"{path} has no target {name!r}. {closest(name, found)}")
    return [
        Pairing(old, new, first[old], second[new], _conditions(first[old], second[new]))
        for old, new in chosen.items()
    ]


def _by_target(path: Path, conditions: str | None, side: str) -> dict[str, dict[str, Row]]:
    rows = read_database(path, _COLUMNS).to_pylist()
    if conditions is not None:
        known = {row["conditions_id"] for row in rows if row.get("conditions_id")}
        if conditions not in known:
            hint = closest(conditions, known) or "Only merged databases have some."
            raise OpcostError(f"{path} has no conditions_id {conditions!r}. {hint}")
        rows = [row for row in rows if row["conditions_id"] == conditions]
    result: dict[str, dict[str, Row]] = {}
    for row in rows:
        held = result.setdefault(row["target"], {})
        other = held.get(row["tuple_id"])
        # A failure that does not say what it ran on has no conditions_id.
        if other is None or other.get("conditions_id") is None:
            held[row["tuple_id"]] = row
        elif row["conditions_id"] is not None:
            raise OpcostError(_ambiguous(path, row["target"], rows, side))
    return result


def _ambiguous(path: Path, target: str, rows: Iterable[Row], side: str) -> str:
    groups = {
        row["conditions_id"]: f"{row['conditions_id']} ({row['device_name']}, "
        f"driver {row['driver_version']}, torch {row['torch_version']})"
        for row in rows
        if row["target"] == target and row["conditions_id"]
    }
    return (
        f"{path} has rows of target {target!r} under several conditions: choose one with "
        f"--{side}-conditions: {'; '.join(groups.values())}"
    )


def _conditions(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[Condition]:
    """What the results of both were not measured under alike."""
    first, second = (
        [row for row in rows.values() if row["status"] == "ok"] for rows in (before, after)
    )
    found = [
        _difference(name, _values(first, name), _values(second, name), name not in _MUST_AGREE)
        for name in _NAMED
    ]
    settings = _settings(first), _settings(second)
    for name in sorted({*settings[0], *settings[1]}):
        old, new = (document.get(name, {"not set"} if document else set()) for document in settings)
        found.append(_difference(name, old, new, comparable=False))
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
    return Condition(name, _list(before), _list(after), comparable)


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


def _list(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names)))
