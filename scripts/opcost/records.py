"""Rows: their columns, and reading and writing them as Parquet, with checks."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from opcost import workers
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.manifest import TupleRecord
from opcost.schemas import OVERHEAD
from opcost.study import Conditions, ModelDefinition


def operator_columns(record: TupleRecord) -> dict[str, Any]:
    """The columns that say which tuple a row is about."""
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
    """The columns that say which model a row is about."""
    return {"model": definition.name, "definition_json": definition.to_json()}


def overhead_columns(document: Mapping[str, Sequence[float | None]] | None) -> dict[str, Any]:
    """The columns of what calls cost beyond their operators, from what `Overhead` wrote."""
    values = itertools.chain.from_iterable((document or {}).values())
    return {name: value for (name, _), value in zip(OVERHEAD, values, strict=False)}


def condition_columns(conditions: Conditions, target: str) -> dict[str, Any]:
    """The columns that say how a row was to be measured."""
    return {
        "target": target,
        "protocol_version": conditions.protocol_version,
        "conditions_json": conditions.to_json(),
        "cache_state": conditions.measurement.cache_state,
        "launch_mode": "eager",
        "worker": workers.kind,
        "threads": conditions.target.threads,
        "tf32": conditions.target.tf32,
    }


def write(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows, whole or not at all. A column that a row lacks is null; an unknown one raises."""
    complete = []
    for row in rows:
        unknown = row.keys() - set(schema.names)
        if unknown:
            raise ValueError(f"not in the schema: {sorted(unknown)}")
        complete.append({name: row.get(name) for name in schema.names})
    write_table(path, schema, pa.Table.from_pylist(complete, schema=schema))


def write_table(path: Path, schema: pa.Schema, table: pa.Table) -> None:
    """Write a table that has that schema, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(schema.metadata), temporary, compression="zstd"
        )


def read(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a file of that schema. Raises OpcostError for a damaged, foreign or outdated one."""
    remedy = f"delete {path} and run again to make it anew"
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise OpcostError(f"{path} is not a readable Parquet file ({error}): {remedy}") from error
    metadata = table.schema.metadata or {}
    expected = schema.metadata
    for key in (b"opcost.record", b"opcost.schema_version"):
        if metadata.get(key) != expected[key]:
            found = metadata[key].decode() if key in metadata else "none"
            raise OpcostError(
                f"{path} has {key.decode()} {found}; this opcost reads {expected[key].decode()}: "
                f"{remedy}"
            )
    if table.schema != schema:
        raise OpcostError(f"{path} does not have the columns of its schema version: {remedy}")
    return table


def measured_under(
    conditions: Conditions, directory: Path, schema: pa.Schema, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Some columns of the rows in a folder's files that were measured under those conditions.

    A file of another schema version has none. Raises OpcostError for a damaged one.
    """
    fields = [schema.field(name) for name in {*columns, "conditions_json"}]
    paths = sorted(str(path) for path in directory.glob("*.parquet"))
    try:
        table = ds.dataset(paths, schema=pa.schema(fields)).to_table()
    except (pa.ArrowInvalid, OSError) as error:
        raise OpcostError(f"in {directory}: {error}: delete the file and run again") from error
    wanted = conditions.to_json()
    return [row for row in table.to_pylist() if row.pop("conditions_json") == wanted]


def read_all(paths: Sequence[Path], schema: pa.Schema) -> pa.Table:
    """The rows of many files of one schema, in the order of the paths."""
    if not paths:
        return schema.empty_table()
    return pa.concat_tables([read(path, schema) for path in paths])
