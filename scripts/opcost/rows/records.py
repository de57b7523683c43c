"""Write and read rows as Parquet, with checks."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from opcost import workers
from opcost.errors import OpcostError
from opcost.files import opened, replacing
from opcost.launch_modes import EAGER
from opcost.rows.checks import Together, check
from opcost.rows.columns import SETTINGS
from opcost.rows.comma_separated import write_csv
from opcost.rows.schemas import SCHEMA_VERSION
from opcost.rows.seal import BrokenSeal, check_seal, seal
from opcost.study import Conditions, ModelDefinition
from opcost.tuples.tuple_record import TupleRecord

_REMEDY = "delete {path} and run again to make it again"
# With raw values, a row has some kilobytes: batches have megabytes, row groups tens of them.
_ROWS_OF_BATCH = 4_000
_ROWS_OF_GROUP = 20_000
# A file of one row is mostly metadata of a hundred columns, which compression, dictionaries and
# statistics would slow down.
_SMALL = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
}
_LARGE = {"compression": "zstd", "write_page_checksum": True}
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""The exceptions of pyarrow for a damaged file."""


def operator_columns(record: TupleRecord) -> dict[str, Any]:
    """The columns that identify an operator tuple."""
    operator_tuple = record.operator_tuple
    return {
        "tuple_id": operator_tuple.tuple_id,
        "operator": operator_tuple.operator,
        "canonical_json": operator_tuple.canonical_json,
        "description": str(operator_tuple),
        "flops": record.flops,
        "bytes": record.bytes,
    }


def model_columns(definition: ModelDefinition) -> dict[str, Any]:
    """The columns that identify a model."""
    return {"model": definition.name, "definition_json": definition.to_json()}


def condition_columns(conditions: Conditions, target: str) -> dict[str, Any]:
    """The columns of target and settings, with each setting of the target that has a column."""
    requested = asdict(conditions.target)
    return {
        **{name: requested[name] for name, *_ in SETTINGS if name in requested},
        "target": target,
        "protocol_version": conditions.protocol_version,
        "conditions_json": conditions.to_json(),
        "cache_state": conditions.measurement.cache_state,
        "operation": conditions.measurement.operation,
        "launch_mode": EAGER,
        "worker": workers.kind,
        "schema_version": SCHEMA_VERSION,
    }


def write(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a few rows atomically. Missing columns become null; unknown ones raise ValueError."""
    with replacing(path) as temporary:
        with temporary.open("wb") as file:
            write_to(file, schema, rows)
        seal(temporary)


def write_to(file: IO[bytes], schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a few rows into an open file, as `write` does."""
    complete = []
    for row in rows:
        unknown = row.keys() - set(schema.names)
        if unknown:
            raise ValueError(f"not in the schema: {sorted(unknown)}")
        complete.append({name: _storable(row.get(name)) for name in schema.names})
    pq.write_table(pa.Table.from_pylist(complete, schema=schema), file, **_SMALL)


def _storable(value: Any) -> Any:
    """The value, with lone surrogates, which error messages may quote, escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def write_table(path: Path, table: pa.Table) -> None:
    """Write any table atomically."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, **_LARGE)
        seal(temporary)


def write_with_csv(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as Parquet, and as CSV beside it."""
    write(path, schema, rows)
    with replacing(path.with_suffix(".csv")) as temporary:
        write_csv(temporary, schema, read(path, schema).to_batches())


def write_batches(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    further_metadata: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Write batches of a schema atomically, in bounded memory.

    `further_metadata` is called after the last batch; its result is added to the file's metadata.
    """
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary, schema, **_LARGE) as writer:
            for row_group in _row_groups(batches):
                writer.write_table(row_group.replace_schema_metadata(schema.metadata))
            writer.add_key_value_metadata(further_metadata())
        seal(temporary)


def read(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, remedy: str = _REMEDY
) -> pa.Table:
    """Read all or some columns of a file.

    Raises OpcostError for a file that is damaged, outdated or of another schema.
    """
    return read_all([path], schema, columns, remedy)


def read_all(
    paths: Iterable[Path],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    remedy: str = _REMEDY,
) -> pa.Table:
    """Read many files of one schema, in the order of the paths, as `stream` does."""
    batches = itertools.chain.from_iterable(stream(path, schema, columns, remedy) for path in paths)
    chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.Table.from_batches(batches, chosen)


def stream(
    path: Path,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    remedy: str = _REMEDY,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches, checked. Raises as `read`.

    Messages end with `remedy`, in which `{path}` is replaced.
    """
    remedy = remedy.format(path=path)
    record = schema.metadata[b"opcost.record"].decode()
    together = Together(record)
    count = 0
    try:
        with opened(path) as file:  # once: what is at the path may be replaced meanwhile
            check_seal(file)
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            _check_schema(parquet.schema_arrow, schema, path, remedy)
            wanted = list(schema.names if columns is None else columns)
            read = list(dict.fromkeys([*wanted, *together.keys]))
            for batch in parquet.iter_batches(_ROWS_OF_BATCH, columns=read, use_threads=False):
                rows = batch.select(read)
                check(rows, record, path, remedy)
                together.check(rows, path, remedy)
                count += len(rows)
                yield rows.select(wanted)
            if count != parquet.metadata.num_rows:
                raise BrokenSeal(f"{count} of its {parquet.metadata.num_rows} rows can be read")
    except MemoryError:
        raise
    except (BrokenSeal, *UNREADABLE) as error:
        reason = str(error).strip()
        raise OpcostError(f"{path} is not a readable Parquet file ({reason}): {remedy}") from error


def _check_schema(file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> None:
    """Raise OpcostError unless a file has the record, the schema version and the columns."""
    if file.equals(schema, check_metadata=True):
        return  # most files; checking each column takes as long as reading a row
    for key in ("opcost.record", "opcost.schema_version"):
        found, known = (
            (each.metadata or {}).get(key.encode(), b"none").decode() for each in (file, schema)
        )
        if found != known:
            raise OpcostError(
                f"{path} has {key} {found}; this opcost reads {known}: another version of opcost "
                f"or another program wrote it: {remedy}"
            )
    columns, expected = ({each.name: each.type for each in either} for either in (file, schema))
    if len(file) != len(expected) or columns != expected:
        raise OpcostError(f"{path} does not have the columns of its schema version: {remedy}")


def check_metadata(path: Path, schema: pa.Schema, remedy: str) -> None:
    """Raise OpcostError unless a metadata file has the record, the version and the columns."""
    try:
        found = pq.read_schema(path)
    except UNREADABLE as error:
        raise OpcostError(f"{path} cannot be read ({error}): {remedy}") from error
    _check_schema(found, schema, path, remedy)


def metadata(path: Path) -> dict[str, str]:
    """The key-value metadata of a Parquet file; empty if it cannot be read."""
    try:
        with opened(path) as file:
            found = pq.read_metadata(file).metadata or {}
        return {key.decode(): value.decode() for key, value in found.items()}
    except (OpcostError, *UNREADABLE):
        return {}


def number_of_rows(path: Path) -> int:
    """As a Parquet file states it; 0 for one that cannot be read."""
    with opened(path) as file, suppress(*UNREADABLE):
        return int(pq.read_metadata(file).num_rows)
    return 0


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches into row groups of at least `_ROWS_OF_GROUP` rows, one in memory at a time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        if rows >= _ROWS_OF_GROUP:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)
