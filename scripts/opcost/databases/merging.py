"""Merge databases of several machines or days. Merging selects rows and never combines them.

Rows are duplicates if they agree in tuple and conditions (`rows.comparability`). Each row repeats
the state of its target, such as the call overhead. Of several states under the same conditions, a
merge keeps the state of the newest measurement, with its rows, so that all rows of a target agree.
Of other duplicates, it keeps the newer row. The measured value plays no role. A row in several
databases becomes one row. The result depends neither on the order of the databases nor on earlier
merges.

A processor has no serial number. The sentinel's baseline (`quiet_sentinel_time_s`) distinguishes
studies on processors, so rows of two such studies are never duplicates. Failures without a recorded
device are duplicates only of exact copies.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from opcost.databases import model_ratios
from opcost.errors import OpcostError
from opcost.files import check_output, opened, parse_json, version_of
from opcost.rows import comparability, records, schemas
from opcost.rows.columns import OVERHEAD
from opcost.rows.runs import ModelRatio

STATE = [column.name for column in OVERHEAD]
"""The columns that are the same in all rows of a target."""

_DESCRIBED = [
    *("path", "number", "target", "status", "conditions_id", "group", "subject", "digest"),
    *("state", "sources", "measured_at", "schema_version", "ok"),
]
_EARLIEST = datetime.fromtimestamp(0, UTC)
_SOURCES = "opcost.sources"
_REMEDY = (
    "merge results/database.parquet of studies, or outputs of `opcost merge`; create {path} "
    "again where it was measured"
)

Sources = Mapping[str, Mapping[str, Any]]
"""Databases by id: the number of `rows` of each, and the `names` under which it was merged."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Merge:
    """The outcome of a merge, whose text is the summary.

    `rows` are those of each database, `distinct` those without exact copies. `kept` has the
    `status` of each kept row and its `group`: conditions_id, target, device and software.
    `conditions` has a row of each kept conditions_id.
    """

    rows: Mapping[Path, int]
    distinct: int
    kept: pd.DataFrame
    conditions: Mapping[str, Row]

    def __str__(self) -> str:
        copies = sum(self.rows.values()) - self.distinct
        lines = [f"{rows:>8} rows in {path}" for path, rows in self.rows.items()]
        lines.append(f"{copies:>8} exact copies dropped")
        superseded = self.distinct - len(self.kept)
        lines.append(f"{superseded:>8} superseded by newer measurements of their targets")
        lines.append(f"{len(self.kept):>8} rows kept:")
        for group, statuses in self.kept.groupby("group")["status"]:
            failed = sum(statuses != "ok")
            lines.append(
                f"{len(statuses):>8} {group}" + (f", {failed} of them failed" if failed else "")
            )
        for target, count in self.kept.groupby("target")["group"].nunique().items():
            if count > 1:
                lines.append(
                    f"Target {target!r} has {count} conditions_ids, whose rows must not be added "
                    f"up. They differ in {self._differences(str(target))}."
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


def merge(paths: Sequence[Path], output: Path) -> Merge:
    """Merge databases, merged or not, into `output`, completely or not at all.

    Reads each database twice, in batches: memory holds about a kilobyte for each row, and no raw
    values. Raises OpcostError for a file that is not a database, was written by a newer opcost, is
    the output, or is replaced meanwhile, and for databases that contradict each other.
    """
    sources = {path: _sources_of(path) for path in paths}
    versions = {path: version_of(path) for path in sources}
    check_output(output, paths)
    conditions: dict[str, Row] = {}
    states: dict[tuple[str, str], Row] = {}
    found = {path: _described(path, of, conditions, states) for path, of in sources.items()}
    rows = pd.concat(found.values(), ignore_index=True)
    # Of two rows, the one with the greater rank is newer.
    rows["rank"] = rows.groupby(["measured_at", "schema_version", "ok"]).ngroup()
    distinct = _without_copies(rows)
    kept = _newest(distinct)
    of_state = kept.dropna(subset="conditions_id")[["conditions_id", "newest"]]
    newest: dict[str, str] = dict(of_state.itertuples(index=False))
    stated = {name: states[name, state] for name, state in newest.items()}
    ratios = _ratios(rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for path, of in sources.items():
            yield from _kept(path, of, kept[kept["path"] == path], stated)
            if version_of(path) != versions[path]:
                raise OpcostError(f"{path} was replaced while it was read: merge again")

    metadata = {_SOURCES: json.dumps(_united([*sources.values()]), sort_keys=True)}
    schema = schemas.MERGED.with_metadata({**schemas.MERGED.metadata, **metadata})
    records.write_batches(output, schema, batches(), lambda: model_ratios.metadata(ratios))
    numbers = {path: len(each) for path, each in found.items()}
    return Merge(numbers, len(distinct), kept, {name: conditions[name] for name in newest})


def _described(
    path: Path,
    sources: Sources,
    conditions: dict[str, Row],
    states: dict[tuple[str, str], Row],
) -> pd.DataFrame:
    """What decides whether each row of a database is kept. Adds a row of each conditions_id to
    `conditions`, and each state to `states`.
    """
    found: list[dict[str, Any]] = []
    for batch, origins in _batches(path, sources):
        for row, origin in zip(batch.to_pylist(), origins, strict=True):
            state = {name: row[name] for name in STATE}
            conditions_id, digest = comparability.conditions_id(row), _digest(row)
            if conditions_id is not None:
                names = ("target", "tuple_id", *comparability.COLUMNS)
                conditions.setdefault(conditions_id, {name: row[name] for name in names})
                states.setdefault((conditions_id, _digest(state)), state)
            described = {
                "path": path,
                "number": len(found),
                "target": row["target"],
                "status": row["status"],
                "conditions_id": conditions_id,
                "group": _group(conditions_id, row),
                "subject": f"{conditions_id} {row['tuple_id']}" if conditions_id else digest,
                "digest": digest,
                "state": _digest(state),
                "sources": origin,
                "measured_at": row["ended_at"] or row["measured_at"] or _EARLIEST,
                "schema_version": row["schema_version"] or 0,
                "ok": row["status"] == "ok",
            }
            found.append(described)
    return pd.DataFrame(found, columns=_DESCRIBED, dtype=object)  # None stays None


def _without_copies(rows: pd.DataFrame) -> pd.DataFrame:
    """The first of equal rows, with the sources of all of them."""
    sources = {name: frozenset().union(*each) for name, each in rows.groupby("digest")["sources"]}
    distinct = rows.drop_duplicates("digest")
    return distinct.assign(sources=distinct["digest"].map(sources))


def _newest(rows: pd.DataFrame) -> pd.DataFrame:
    """A row of each subject: of the `newest` state of its target, or else of an older one.

    Raises OpcostError if another state, or another row, is as new.
    """
    latest = rows[rows["rank"] == rows.groupby("conditions_id")["rank"].transform("max")]
    states = latest.drop_duplicates(["conditions_id", "state"])
    newest = states.drop_duplicates("conditions_id").set_index("conditions_id")["state"]
    rows = rows.assign(newest=rows["conditions_id"].map(newest))
    rows["is_newest"] = rows["state"] == rows["newest"]
    rows = rows.sort_values(["is_newest", "rank"], ascending=False)
    kept = rows.drop_duplicates("subject")
    of_rank = ["subject", "is_newest", "rank"]
    rivals = rows[rows.duplicated(of_rank, keep=False)].merge(kept[of_rank])
    _refuse(pd.concat([states[states.duplicated("conditions_id", keep=False)], rivals]))
    return kept


def _refuse(rivals: pd.DataFrame) -> None:
    """Raise OpcostError for rows of which none is newer, if there are any."""
    for conditions_id, rows in rivals.groupby("conditions_id"):
        names = " and ".join(sorted({*map(str, rows["path"])}))
        raise OpcostError(
            f"{names} hold different states of a target (conditions_id {conditions_id}), none of "
            "them later than the other, so that neither can be chosen. Merge only one of them, or "
            "give the target of one another name (its folder in results), and make its database "
            "again"
        )


def _ratios(rows: pd.DataFrame) -> dict[str, list[ModelRatio]]:
    """The ratios of models by conditions_id."""
    known = {path: model_ratios.read_ratios(path) for path in rows["path"].unique()}
    described = rows[["path", "target", "conditions_id"]].dropna().drop_duplicates()
    return model_ratios.united(
        (conditions_id, known[path][name])
        for path, target, conditions_id in described.itertuples(index=False)
        for name in (target, conditions_id)  # of a database, and of a merged one
        if name in known[path]
    )


def _kept(
    path: Path, sources: Sources, kept: pd.DataFrame, stated: Mapping[str, Row]
) -> Iterator[pa.RecordBatch]:
    """The kept rows of a database, with the state of their target and the columns of a merge."""
    chosen = kept.set_index("number")[["conditions_id", "sources"]].to_dict("index")
    number = 0
    for batch, _ in _batches(path, sources):
        found = [chosen.get(number + index) for index in range(len(batch))]
        number += len(batch)
        rows = batch.filter(pa.array([each is not None for each in found], pa.bool_()))
        added = [each for each in found if each is not None]
        own = rows.select(STATE)
        state = pa.RecordBatch.from_pylist(
            [
                stated.get(each["conditions_id"], row)
                for each, row in zip(added, own.to_pylist(), strict=True)
            ],
            schema=own.schema,
        )
        columns = {
            **{name: rows[name] for name in rows.schema.names},
            **{name: state[name] for name in STATE},
            "conditions_id": [each["conditions_id"] for each in added],
            "sources": [sorted(each["sources"]) for each in added],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=schemas.MERGED)


def _group(conditions_id: str | None, row: Row) -> str:
    parts = [row["target"], row["device_name"] or "unknown device"]
    parts += [f"driver {row['driver_version']}"] if row["driver_version"] else []
    parts += [f"torch {row['torch_version']}"] if row["torch_version"] else []
    protocol = row["protocol_version"]
    parts += ["imported" if protocol is None else f"protocol {protocol}"]
    return f"{conditions_id or '-':16}  {', '.join(parts)}"


def _digest(row: Row) -> str:
    return hashlib.sha256(repr([*row.values()]).encode()).hexdigest()[:32]


def _sources_of(path: Path) -> Sources:
    """The database itself, or the sources of a merged database.

    A database's id is the first 16 hexadecimal digits of the SHA-256 of its file. Raises
    OpcostError for a file that does not exist; reading its rows detects other files.
    """
    metadata = records.metadata(path)
    if _SOURCES in metadata:
        remedy = "merge its databases again"
        sources: Sources = parse_json(metadata[_SOURCES], f"{path}: its list of sources", remedy)
        return sources
    with opened(path) as file:
        source = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return {source: {"names": [str(path)], "rows": records.number_of_rows(path)}}


def _united(documents: Sequence[Sources]) -> Sources:
    """All databases, each with all names under which it was merged."""
    result: dict[str, Mapping[str, Any]] = {}
    for document in documents:
        for source, entry in document.items():
            names = {*entry["names"], *result.get(source, entry)["names"]}
            result[source] = {"names": sorted(names), "rows": entry["rows"]}
    return result


def _batches(
    path: Path, sources: Sources
) -> Iterator[tuple[pa.RecordBatch, Sequence[frozenset[str]]]]:
    """The measured columns of a database, merged or not, in batches, and each row's sources.

    Raises OpcostError for a file that is not a database or was written by a newer opcost.
    """
    merged = records.metadata(path).get("opcost.record") == "merged"
    schema = schemas.MERGED if merged else schemas.DATABASE
    for batch in records.stream(path, schema, remedy=_REMEDY):
        origins = batch["sources"].to_pylist() if merged else [[*sources]] * len(batch)
        yield batch.select(schemas.DATABASE.names), [*map(frozenset, origins)]
