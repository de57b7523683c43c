"""Pairing the rows of two databases by target and operator tuple."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.costs.terms import Row
from opcost.databases.database import read_database
from opcost.difference.circumstances import CONDITION_COLUMNS, Condition, conditions_between, listed
from opcost.errors import OpcostError, closest
from opcost.rows.columns import ANSWER
from opcost.rows.quantities import COMPARED, POWER, SPEED_COLUMNS, TIME

_COLUMNS = (
    "tuple_id",
    "operator",
    "description",
    "target",
    *ANSWER,
    "executions",
    *POWER.names,
    *(each.degrees for each in (*COMPARED, POWER)),
    TIME.executed,
    TIME.scatter,
    *SPEED_COLUMNS,
    "conditions_id",
    *CONDITION_COLUMNS,
)

_ROW_BYTES = 12_000
"""A row in memory, as Python's objects."""


@dataclass(frozen=True)
class Pairing:
    """The rows of a target before and after, by tuple id."""

    before_target: str
    after_target: str
    before: Mapping[str, Row]
    after: Mapping[str, Row]
    conditions: Sequence[Condition]

    @property
    def pairs(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple, both with a result."""
        return [pair for pair in self._both() if all(row["status"] == "ok" for row in pair)]

    @property
    def shared(self) -> int:
        """The number of pairs that have an execution in common: their difference is too small."""
        return sum(not _executed(one).isdisjoint(_executed(other)) for one, other in self.pairs)

    @property
    def failed(self) -> list[tuple[Row, Row]]:
        """Rows of the same tuple of which only one has a result."""
        return [pair for pair in self._both() if len({row["status"] == "ok" for row in pair}) == 2]

    @property
    def only_before(self) -> list[Row]:
        """Rows that are missing in the second database."""
        return [row for tuple_id, row in self.before.items() if tuple_id not in self.after]

    @property
    def only_after(self) -> list[Row]:
        """Rows that are missing in the first database."""
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
            f"{before} has targets {listed(first)}, {after} {listed(second)}: none is in both. "
            "Name those to compare: --target BEFORE=AFTER"
        )
    for path, names, found in ((before, chosen.keys(), first), (after, chosen.values(), second)):
        for name in names:
            if name not in found:
                raise OpcostError(f"{path} has no target {name!r}. {closest(name, found)}")
    return [
        Pairing(
            old,
            new,
            first[old],
            second[new],
            conditions_between(first[old].values(), second[new].values()),
        )
        for old, new in chosen.items()
    ]


def _executed(row: Row) -> set[float]:
    """The times of a row's executions, which no other measurement finds to the last digit."""
    return set(row[TIME.executed] or [row[TIME.value]])


def _by_target(path: Path, conditions: str | None, side: str) -> dict[str, dict[str, Row]]:
    rows = read_database(path, _COLUMNS, _ROW_BYTES).to_pylist()
    if conditions is not None:
        known = {row["conditions_id"] for row in rows if row.get("conditions_id")}
        if conditions not in known:
            hint = closest(conditions, known) or "Only merged databases have conditions_ids."
            raise OpcostError(f"{path} has no conditions_id {conditions!r}. {hint}")
        rows = [row for row in rows if row["conditions_id"] == conditions]
    result: dict[str, dict[str, Row]] = {}
    for row in rows:
        held = result.setdefault(row["target"], {})
        other = held.get(row["tuple_id"])
        # A failure without a recorded device has no conditions_id.
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
