"""The schema version of files with rows, and how files of earlier ones are read.

Rows of every version stay readable: a column is null in rows from before it. A column never gets
another meaning; that is another column.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError

ADDED: dict[int, Mapping[str, Sequence[str]]] = {}
"""Schema version after the first -> record -> the columns that it added. A new column needs a line
here."""

SCHEMA_VERSION = max(ADDED, default=1)


class Reading:
    """Converts the rows of a file to rows of a schema.

    Raises OpcostError that ends with `remedy` for a file of another record, of a version that this
    opcost does not know, or with other columns than its version has.
    """

    def __init__(self, file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> None:
        self._schema = schema
        self._lacks: set[str] = set()
        if file.equals(schema, check_metadata=True):
            return  # most files; checking each column takes as long as reading a row
        record, version = _stated(schema, "record"), _version_of(file, schema, path, remedy)
        later = (added for number, added in ADDED.items() if number > version)
        self._lacks = {name for added in later for name in added.get(record, ())}
        expected = {each.name: each.type for each in schema if each.name not in self._lacks}
        if len(file) > len(expected) or {each.name: each.type for each in file} != expected:
            raise OpcostError(
                f"{path} does not have the columns of its schema version {version}: {remedy}"
            )

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """The columns of the file that `wanted` requires; at least one, to count the rows."""
        return [name for name in wanted if name not in self._lacks] or self._schema.names[:1]

    def rows(self, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
        """The wanted columns of a batch that has the columns `columns(wanted)`."""
        fields = [self._schema.field(name) for name in wanted]
        values = [
            pa.nulls(len(batch), each.type) if each.name in self._lacks else batch[each.name]
            for each in fields
        ]
        return pa.RecordBatch.from_arrays(values, schema=pa.schema(fields, self._schema.metadata))


def _version_of(file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> int:
    """The schema version of a file. Raises OpcostError if it cannot be read as this record."""
    stated, record = _stated(file, "record"), _stated(schema, "record")
    if stated != record:
        raise OpcostError(f"{path} has opcost.record {stated}, not {record}: {remedy}")
    version = _stated(file, "schema_version")
    if version.isdecimal() and 1 <= int(version) <= SCHEMA_VERSION:
        return int(version)
    raise OpcostError(
        f"{path} has opcost.schema_version {version}; this opcost reads up to {SCHEMA_VERSION}: "
        "upgrade opcost if a newer one wrote it. What opcost wrote before its first release is not "
        f"read: {remedy}"
    )


def _stated(schema: pa.Schema, key: str) -> str:
    return (schema.metadata or {}).get(f"opcost.{key}".encode(), b"none").decode()
