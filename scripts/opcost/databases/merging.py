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

import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from opcost.databases import collection, model_ratios
from opcost.databases.database import schema_of
from opcost.errors import OpcostError
from opcost.files import check_output, opened, parse_json, unwinding, version_of
from opcost.rows import comparability, records, schemas
from opcost.rows.columns import OVERHEAD

STATE = [column.name for column in OVERHEAD]
"""The columns that are the same in all rows of a target."""

_CONDITIONS = ["target", *comparability.COLUMNS]
_SHOWN = 20
_SOURCES = "opcost.sources"
_REMEDY = (
    "merge results/database.parquet of studies, or outputs of `opcost merge`; create {path} "
    "again where it was measured"
)
_SPOOLED = pa.schema([*schemas.DATABASE, schemas.MERGED.field("sources"), ("input", pa.int64())])
_DISTINCT = f"""
    SELECT min(number) AS number, list(input) AS inputs,
        list_sort(list_distinct(flatten(list(sources)))) AS sources, min(tuple_id) AS tuple_id,
        min(status) AS status, min(state) AS state, min(rank) AS rank
    FROM (SELECT number, input, sources, tuple_id, status,
            hash({", ".join(schemas.DATABASE.names)}) AS digest, hash({", ".join(STATE)}) AS state,
            dense_rank() OVER (ORDER BY coalesce(ended_at, measured_at, to_timestamp(0)),
                coalesce(schema_version, 0), status = 'ok') AS rank
        FROM rows)
    GROUP BY digest"""
"""Rows without exact copies; of two, the one with the greater rank is newer."""

Sources = Mapping[str, Mapping[str, Any]]
"""Databases by id: the number of `rows` of each, and the `names` under which it was merged."""

Row = Mapping[str, Any]


@dataclass
class Merge:
    """The outcome of a merge, whose text is the summary.

    `rows` are those of each database, `distinct` those without exact copies, `kept` the statuses of
    the kept rows of each conditions_id (None if unknown), and `conditions` a row of each.
    """

    rows: dict[Path, int] = field(default_factory=dict)
    distinct: int = 0
    kept: dict[str | None, Counter[str]] = field(default_factory=dict)
    conditions: dict[str | None, Row] = field(default_factory=dict)

    def __str__(self) -> str:
        given, kept = sum(self.rows.values()), sum(each.total() for each in self.kept.values())
        lines = [f"{rows:>8} rows in {path}" for path, rows in self.rows.items()]
        lines.append(f"{given - self.distinct:>8} exact copies dropped")
        lines.append(f"{self.distinct - kept:>8} superseded by newer measurements of their targets")
        lines.append(f"{kept:>8} rows kept:")
        groups = sorted(map(self._group, self.kept))
        lines += [text for _, text in groups[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(f"{len(groups) - _SHOWN:>8} more conditions_ids")
        targets = Counter(self.conditions[name]["target"] for name in self.kept)
        for target, count in sorted(targets.items()):
            if count > 1:
                lines.append(
                    f"Target {target!r} has {count} conditions_ids, whose rows must not be added "
                    f"up. They differ in {self._differences(target)}."
                )
        return "\n".join(lines)

    def _group(self, name: str | None) -> tuple[str, str]:
        statuses, row = self.kept[name], self.conditions[name]
        parts = [row["target"], row["device_name"] or "unknown device"]
        parts += [f"driver {row['driver_version']}"] if row["driver_version"] else []
        parts += [f"torch {row['torch_version']}"] if row["torch_version"] else []
        protocol = row["protocol_version"]
        parts += ["imported" if protocol is None else f"protocol {protocol}"]
        failed = statuses.total() - statuses["ok"]
        parts += [f"{failed} of them failed"] if failed else []
        return row["target"], f"{statuses.total():>8} {name or '-':16}  {', '.join(parts)}"

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
    """Merge databases, merged or not, into `output`, completely or not at all: a file if its name
    ends in `.parquet`, otherwise a folder, which may be one of the databases.

    Each database is read once, and its rows are checked. Memory holds the rows of one
    conditions_id, and the disk of the output a copy of all rows meanwhile. What a merged folder has
    of a conditions_id, and no other database, stays, or becomes a link in another folder.

    Raises OpcostError for a file that is not a database, was written by a newer opcost, is the
    output, or is replaced meanwhile, and for databases that contradict each other.
    """
    inputs, to_file = list(dict.fromkeys(paths)), output.suffix == ".parquet"
    adds = not to_file and collection.is_collection(output)
    check_output(
        output, [each for each in inputs if not (adds and each.is_dir() and output.samefile(each))]
    )
    if not to_file and not adds and output.exists():
        raise OpcostError(f"{output} exists, and is not a merged folder: name another output")
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = TemporaryDirectory(prefix=".merge.", dir=output.parent)
    with unwinding(), _alone(output.parent), scratch as folder:
        spool = _Spool(inputs, Path(folder))
        linked = spool.fill(link=not to_file)
        if to_file:
            schema = schemas.MERGED.with_metadata({**schemas.MERGED.metadata, **spool.metadata()})
            tables = (rows for _, rows in spool.selected())
            batches = chain.from_iterable(map(pa.Table.to_batches, tables))
            records.write_batches(output, schema, batches)
        else:
            kept = [part for part in linked if part.is_relative_to(output)]
            new = Path(folder, "new")
            parts = [collection.link(part, new) for part in linked if part not in kept]
            parts += [collection.write_part(new, *each) for each in spool.selected()]
            if adds:
                parts = kept + [collection.move(part, output) for part in parts]
            collection.finish(output if adds else new, parts, spool.metadata())
            if not adds:
                new.rename(output)
    return spool.result


class _Spool:
    """The rows of databases on disk, in a file for each conditions_id."""

    def __init__(self, inputs: Sequence[Path], folder: Path) -> None:
        self.result = Merge(dict.fromkeys(inputs, 0))
        self._inputs, self._folder, self._files = inputs, folder, ExitStack()
        self._versions = [version_of(path) for path in inputs]
        self._sources = [_sources_of(path) for path in inputs]
        self._ratios = {path: model_ratios.read_ratios(path) for path in inputs}
        self._writers: dict[str | None, Any] = {}
        self._held: set[tuple[Path, str, str]] = set()

    def fill(self, link: bool) -> list[Path]:
        """Read the databases, except files of merged folders that it returns for links."""
        with self._files:
            for path in self._inputs:
                if not collection.is_collection(path):
                    self._add(path, _stream(path))
            folders = [path for path in self._inputs if collection.is_collection(path)]
            parts = [(path, part) for path in folders for part in collection.parts(path)]
            holders = Counter(collection.conditions_of(part) for _, part in parts)
            holders.update(name or collection.UNKNOWN for name in self._writers)
            linked = []
            for path, part in parts:
                if link and holders[collection.conditions_of(part)] == 1:
                    linked.append(part)
                    self._note(path, part)
                else:
                    self._add(path, collection.checked(part).to_batches())
        return linked

    def _add(self, path: Path, batches: Iterator[pa.RecordBatch]) -> None:
        number = self._inputs.index(path)
        for batch in batches:
            if "sources" not in batch.schema.names:
                own = pa.array([[*self._sources[number]]] * len(batch), pa.list_(pa.string()))
                batch = batch.append_column("sources", own)
            batch = batch.append_column("input", pa.array([number] * len(batch)))
            for row, rows in _by_conditions(batch.select(_SPOOLED.names)):
                name = self._known(path, row)
                self._writer(name).write_batch(rows)
            self.result.rows[path] += len(batch)
        if version_of(path) != self._versions[number]:
            raise OpcostError(f"{path} was replaced while it was read: merge again")

    def _known(self, path: Path, row: Row) -> str | None:
        name = comparability.conditions_id(row)
        self.result.conditions.setdefault(name, row)
        if name is not None:
            self._held.add((path, row["target"], name))
        return name

    def _note(self, path: Path, part: Path) -> None:
        """Count the rows of a file that is linked."""
        rows = collection.read_part(part, ["status", *_CONDITIONS])
        name = self._known(path, rows[:1].to_pylist()[0])
        self.result.kept[name] = Counter(rows["status"].to_pylist())
        self.result.rows[path] += len(rows)
        self.result.distinct += len(rows)

    def _writer(self, name: str | None) -> Any:
        if name not in self._writers:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            writer = pa.ipc.new_file(self._file(name), _SPOOLED, options=options)
            self._writers[name] = self._files.enter_context(writer)
        return self._writers[name]

    def _file(self, name: str | None) -> str:
        return str(self._folder / f"{name}.arrow")

    def selected(self) -> Iterator[tuple[str | None, pa.Table]]:
        """The rows to keep of each conditions_id, in the columns of a merged database."""
        for name in sorted(self._writers, key=str):
            rows = pa.ipc.open_file(self._file(name)).read_all()
            distinct = _distinct(rows)
            kept = distinct if name is None else _newest(distinct, name, self._inputs)
            self.result.distinct += len(distinct)
            self.result.kept[name] = Counter(kept["status"])
            yield name, _merged(rows, kept, name)

    def metadata(self) -> dict[str, str]:
        """The sources of the rows, and the ratios of models by conditions_id."""
        ratios = model_ratios.united(
            (conditions_id, self._ratios[path][name])
            for path, target, conditions_id in self._held
            for name in (target, conditions_id)  # of a database, and of a merged one
            if name in self._ratios[path]
        )
        sources = json.dumps(_united(self._sources), sort_keys=True)
        return {_SOURCES: sources, **model_ratios.metadata(ratios)}


def _by_conditions(batch: pa.RecordBatch) -> Iterator[tuple[Row, pa.RecordBatch]]:
    """The rows of each combination of conditions."""
    numbers = pa.array(range(len(batch)), pa.int64())
    table = pa.table(batch.select(_CONDITIONS)).append_column("number", numbers)
    groups = table.group_by(_CONDITIONS, use_threads=False).aggregate([("number", "list")])
    for row in groups.to_pylist():
        yield row, batch.take(pa.array(row["number_list"], pa.int64()))


def _distinct(rows: pa.Table) -> pd.DataFrame:
    rows = rows.append_column("number", pa.array(range(len(rows)), pa.int64()))
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.sql(_DISTINCT).df().sort_values("number")


def _newest(rows: pd.DataFrame, conditions_id: str, inputs: Sequence[Path]) -> pd.DataFrame:
    """A row of each tuple: of the newest state of the target, or else of an older one.

    Raises OpcostError if another state, or another row, is as new.
    """
    states = rows[rows["rank"] == rows["rank"].max()].drop_duplicates("state")
    if len(states) > 1:
        raise _contradiction(states, conditions_id, inputs)
    order = ["is_newest", "rank"]
    rows = rows.assign(is_newest=rows["state"] == states["state"].iloc[0])
    rows = rows.sort_values(order, ascending=False, kind="stable")
    kept = rows.drop_duplicates("tuple_id")
    rivals = rows[rows.duplicated(["tuple_id", *order], keep=False)]
    rivals = rivals[
        rivals["tuple_id"].isin(rivals.merge(kept, on=["tuple_id", *order])["tuple_id"])
    ]
    if len(rivals):
        raise _contradiction(rivals, conditions_id, inputs)
    return kept.assign(state_number=states["number"].iloc[0]).sort_values("tuple_id")


def _contradiction(rivals: pd.DataFrame, conditions_id: str, inputs: Sequence[Path]) -> OpcostError:
    numbers = {number for each in rivals["inputs"] for number in each}
    names = " and ".join(sorted(str(inputs[number]) for number in numbers))
    return OpcostError(
        f"{names} hold different states of a target (conditions_id {conditions_id}), none of "
        "them later than the other, so that neither can be chosen. Merge only one of them, or "
        "give the target of one another name (its folder in results), and make its database "
        "again"
    )


def _merged(rows: pa.Table, kept: pd.DataFrame, conditions_id: str | None) -> pa.Table:
    """The kept rows, with the state of their target and the columns of a merge."""
    found = rows.select(schemas.DATABASE.names).take(pa.array(kept["number"]))
    columns = dict(zip(found.column_names, found.columns, strict=True))
    if conditions_id is not None:
        newest = pa.array([kept["state_number"].iloc[0]] * len(kept))
        columns |= {name: rows[name].take(newest) for name in STATE}
    columns["conditions_id"] = pa.array([conditions_id] * len(kept), pa.string())
    columns["sources"] = pa.array(map(list, kept["sources"]), pa.list_(pa.string()))
    return pa.table(columns, schema=schemas.MERGED)


def _sources_of(path: Path) -> Sources:
    """The database itself, or the sources of a merged database.

    A database's id is the first 16 hexadecimal digits of the SHA-256 of its file. Raises
    OpcostError for a file that does not exist; reading its rows detects other files.
    """
    metadata = collection.metadata_of(path)
    if _SOURCES in metadata:
        what = f"{path}: its list of sources"
        found = parse_json(metadata[_SOURCES], what, collection.REMEDY)
        try:
            return {name: {**each, "names": [*each["names"]]} for name, each in found.items()}
        except (TypeError, KeyError):
            raise OpcostError(f"{what} is damaged: {collection.REMEDY}") from None
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other merges that write into a folder, and let later ones wait for this one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stream(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file, merged or not, checked.

    Raises OpcostError for a file that is not a database or was written by a newer opcost.
    """
    return records.stream(path, schema_of(path), remedy=_REMEDY)
