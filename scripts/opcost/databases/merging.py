"""Merge databases of several machines or days. Merging selects rows and never combines them.

Rows are duplicates if they agree in tuple and conditions (`rows.comparability`). Each row repeats
the state of its target, such as the call overhead. Of several states under the same conditions, a
merge keeps the state of the newest measurement, with its rows, so that all rows of a target agree.
Of other duplicates, it keeps the newer row. Rows of a sealed file come first: a file without a seal
may have been altered. The measured value plays no role. A row in several databases becomes one row.
The result depends neither on the order of the databases nor on earlier merges.

A processor has no serial number. The sentinel's baseline (`quiet_sentinel_time_s`) distinguishes
studies on processors, so rows of two such studies are never duplicates. Failures without a recorded
device are duplicates only of exact copies.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from opcost.databases import model_ratios
from opcost.databases.provenance import Sources, rows_of, sources_of, stating, united
from opcost.errors import OpcostError
from opcost.files import check_output, version_of
from opcost.rows import comparability, records, schemas
from opcost.rows.columns import OVERHEAD

STATE = [column.name for column in OVERHEAD]
"""The columns that are the same in all rows of a target."""

COMPARED = (
    *("tuple_id", "status", "measured_at", "ended_at", "schema_version", "target"),
    *comparability.COLUMNS,
)
"""The columns that decide which rows are duplicates and which of them is preferred."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)


class Group(NamedTuple):
    """The columns by which the summary of a merge groups rows."""

    conditions_id: str | None
    target: str
    device_name: str | None
    driver_version: str | None
    torch_version: str | None
    protocol_version: int | None

    def __str__(self) -> str:
        parts = [self.target, self.device_name or "unknown device"]
        parts += [f"driver {self.driver_version}"] if self.driver_version else []
        parts += [f"torch {self.torch_version}"] if self.torch_version else []
        measured = self.protocol_version is not None
        parts += [f"protocol {self.protocol_version}" if measured else "imported"]
        return f"{self.conditions_id or '-':16}  {', '.join(parts)}"


@dataclass
class Merge:
    """The outcome of a merge, whose text is the summary: rows in each database, distinct rows, kept
    rows by status, and a row of each conditions_id.
    """

    rows: Counter[Path] = field(default_factory=Counter)
    distinct: int = 0
    kept: dict[Group, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        total = self.rows.total()
        kept = sum(statuses.total() for statuses in self.kept.values())
        lines = [f"{rows:>8} rows in {path}" for path, rows in self.rows.items()]
        lines.append(f"{total - self.distinct:>8} exact copies dropped")
        lines.append(f"{self.distinct - kept:>8} superseded by newer measurements of their targets")
        lines.append(f"{kept:>8} rows kept:")
        for group in sorted(self.kept, key=str):
            statuses = self.kept[group]
            failed = statuses.total() - statuses["ok"]
            lines.append(
                f"{statuses.total():>8} {group}" + (f", {failed} of them failed" if failed else "")
            )
        for target, count in sorted(Counter(group.target for group in self.kept).items()):
            if count > 1:
                lines.append(
                    f"Target {target!r} has {count} conditions_ids, whose rows must not be added "
                    f"up. They differ in {self._differences(target)}."
                )
        return "\n".join(lines)

    def _differences(self, target: str) -> str:
        rows = [row for row in self.conditions.values() if row["target"] == target]
        found = comparability.disagreements(rows, comparability.COLUMNS)
        parts = [f"{each.name} ({' and '.join(sorted(each.values))})" for each in found]
        parts += [
            f"{name} (unknown for some)"
            for name in comparability.COLUMNS
            if len({row[name] is None for row in rows}) > 1
        ]
        return "; ".join(parts) or "whether they record their device"


@dataclass(slots=True)
class _Best:
    """The preferred of duplicate rows so far, and another of the same rank, if any."""

    rank: tuple[Any, ...]
    digest: bytes
    position: tuple[int, int]
    sources: frozenset[str]
    rival: "_Best | None" = None


class _Key(NamedTuple):
    """The key of duplicate rows. `tuple_id` is the content of a row without a device."""

    conditions_id: str | None
    tuple_id: Any
    state: bytes


_States = Mapping[str | None, Mapping[bytes, tuple[Any, ...]]]
"""The rank of the newest row of each state, by conditions_id."""


def merge(paths: Sequence[Path], output: Path) -> Merge:
    """Merge databases, merged or not, into `output`, completely or not at all.

    Reads each database twice, in batches: memory holds less than a kilobyte for each row, and no
    raw values. Raises OpcostError for a file that is not a database, was written by a newer opcost,
    is the output, or is replaced meanwhile, and for databases that contradict each other.
    """
    before = [version_of(path) for path in paths]
    sources = [sources_of(path) for path in paths]
    check_output(output, paths)
    done = Merge()
    groups: dict[tuple[Path, str, str], tuple[Any, ...]] = {}
    best, stated = _choose(paths, sources, done, groups)
    schema = stating(schemas.MERGED, united(sources))
    known_ratios = {path: model_ratios.read_ratios(path) for path in paths}
    ratios = model_ratios.united(
        (group, found)
        for path, target, group in sorted(groups, key=lambda each: (groups[each], each))
        for name in (target, group)  # of a database, and of a merged one
        if (found := known_ratios[path].get(name))
    )

    def kept() -> Iterator[pa.RecordBatch]:
        yield from _kept(paths, sources, best, stated, done)
        for path, known in zip(paths, before, strict=True):
            if version_of(path) != known:
                raise OpcostError(f"{path} was replaced while it was read: merge again")

    records.write_batches(output, schema, kept(), lambda: model_ratios.metadata(ratios))
    return done


def _choose(
    paths: Sequence[Path],
    sources: Sequence[Sources],
    done: Merge,
    groups: dict[tuple[Path, str, str], tuple[Any, ...]],
) -> tuple[dict[tuple[int, int], _Best], dict[str, pa.RecordBatch]]:
    """The preferred rows by position (numbers of database and row), and the newest state of each
    target, by conditions_id. Fills `groups`: path, target and conditions_id -> greatest rank.
    """
    best: dict[_Key, _Best] = {}
    states: dict[str | None, dict[bytes, tuple[Any, ...]]] = defaultdict(dict)
    stated: dict[str, dict[bytes, pa.RecordBatch]] = defaultdict(dict)
    distinct = set()
    for number, path in enumerate(paths):
        sealed = records.is_sealed(path)
        for batch, origins in rows_of(path, sources[number]):
            of_rows = (_compared(batch), _digests(batch), _digests(batch.select(STATE)))
            rows = zip(*of_rows, origins, strict=True)
            for index, (row, digest, state, origin) in enumerate(rows, done.rows[path]):
                distinct.add(digest)
                found = _Best(_preference(row, sealed), digest, (number, index), origin)
                group = comparability.conditions_id(row)
                key = _Key(group, row["tuple_id"] if group else digest, state)
                states[group][state] = max(found.rank, states[group].get(state, found.rank))
                if group is not None:
                    place = (path, row["target"], group)
                    groups[place] = max(found.rank, groups.get(place, found.rank))
                if group is not None and state not in stated[group]:
                    stated[group][state] = batch.select(STATE).take(
                        pa.array([index - done.rows[path]])
                    )
                held = best.setdefault(key, found)
                if digest == held.digest:
                    held.rank = max(held.rank, found.rank)
                    held.sources = held.sources if origin <= held.sources else held.sources | origin
                elif found.rank > held.rank:
                    best[key] = found
                elif found.rank == held.rank:
                    held.rival = found
            done.rows[path] += len(batch)
    done.distinct = len(distinct)
    newest = {group: max(ranks, key=lambda state: ranks[state]) for group, ranks in states.items()}
    preferred = {each.position: each for each in _preferred(best, states, newest, paths)}
    return preferred, {group: of_states[newest[group]] for group, of_states in stated.items()}


def _preferred(
    best: Mapping[_Key, _Best],
    states: _States,
    newest: Mapping[str | None, bytes],
    paths: Sequence[Path],
) -> list[_Best]:
    """A row for each tuple: of the newest state of its target, or else of an older one.

    Raises OpcostError if another state, or another row, is as new.
    """
    rows: dict[tuple[str | None, Any], tuple[tuple[Any, ...], _Best]] = {}
    for key, row in best.items():
        group, tuple_id, state = key
        rival = row.rival
        if state != newest[group] and states[group][state] == states[group][newest[group]]:
            rival = next(
                each for other, each in best.items() if other[::2] == (group, newest[group])
            )
        if group is not None and rival is not None:
            names = " and ".join(sorted({str(paths[each.position[0]]) for each in (row, rival)}))
            raise OpcostError(
                f"{names} hold different states of a target (conditions_id {group}, tuple "
                f"{tuple_id}), none of them later than the other, so that neither can be chosen. "
                "Merge only one of them, or give the target of one another name (its folder in "
                "results), and make its database again"
            )
        rank = (state == newest[group], *row.rank)
        if (group, tuple_id) not in rows or rank > rows[group, tuple_id][0]:
            rows[group, tuple_id] = rank, row
    return [row for _, row in rows.values()]


def _kept(
    paths: Sequence[Path],
    sources: Sequence[Sources],
    best: Mapping[tuple[int, int], _Best],
    stated: Mapping[str, pa.RecordBatch],
    done: Merge,
) -> Iterator[pa.RecordBatch]:
    """The preferred rows with the columns that a merge adds; counts them in `done`."""
    origins_type = schemas.MERGED.field("sources").type
    for number, path in enumerate(paths):
        index = 0
        for batch, _ in rows_of(path, sources[number]):
            chosen = [best.get((number, index + offset)) for offset in range(len(batch))]
            index += len(batch)
            batch = batch.filter(pa.array([each is not None for each in chosen], pa.bool_()))
            rows = _compared(batch)
            groups = [_group(row) for row in rows]
            done.conditions |= {
                group.conditions_id: row
                for group, row in zip(groups, rows, strict=True)
                if group.conditions_id is not None
            }
            for group, status in zip(groups, batch["status"].to_pylist(), strict=True):
                done.kept[group][status] += 1
            batch = _restated(batch, [group.conditions_id for group in groups], stated)
            ids = pa.array([group.conditions_id for group in groups], pa.string())
            origins = pa.array([sorted(each.sources) for each in chosen if each], origins_type)
            yield pa.RecordBatch.from_arrays([*batch.columns, ids, origins], schema=schemas.MERGED)


def _restated(
    batch: pa.RecordBatch, groups: Sequence[str | None], stated: Mapping[str, pa.RecordBatch]
) -> pa.RecordBatch:
    places: dict[str | None, int] = {group: place for place, group in enumerate(stated)}
    own = batch.select(STATE)
    known = pa.Table.from_batches([*stated.values(), own], own.schema)
    indices = [places.get(group, len(stated) + row) for row, group in enumerate(groups)]
    found = known.take(pa.array(indices, pa.int64())).combine_chunks()
    columns = [
        found[name].combine_chunks() if name in STATE else batch[name]
        for name in batch.schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _compared(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.select(COMPARED).to_pylist()


def _group(row: Mapping[str, Any]) -> Group:
    return Group(comparability.conditions_id(row), *(row[name] for name in Group._fields[1:]))


def _preference(row: Mapping[str, Any], sealed: bool) -> tuple[Any, ...]:
    """A rank among duplicates; the merge keeps the row with the greatest."""
    times = [row[name] for name in ("ended_at", "measured_at") if row[name] is not None]
    return sealed, max(times, default=_EARLIEST), row["schema_version"] or 0, row["status"] == "ok"


def _digests(batch: pa.RecordBatch) -> Iterator[bytes]:
    for values in zip(*map(_texts, batch.columns), strict=True):
        yield hashlib.sha256(repr(values).encode()).digest()[:16]


def _texts(column: pa.Array) -> list[Any]:
    """Values with distinct representations; for raw values their bytes, which is faster."""
    if not pa.types.is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()
    values, offsets = np.asarray(column.values), column.offsets.to_pylist()
    limits = zip(offsets[:-1], offsets[1:], column.is_valid().to_pylist(), strict=True)
    return [values[start:end].tobytes() if valid else None for start, end, valid in limits]
