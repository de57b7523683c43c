"""Files of older schema versions are read like today's.

A row is never measured again for the sake of a column. A column that its file lacks is null; so is
one under whose name the file has another quantity. `schema_version` says which columns a row had.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.rows.versions import CAME_WITH, DROPPED, FIRST, OLDEST, SCHEMA_VERSION, STOOD_IN, added


class Reading:
    """How the rows of a file become rows of a schema.

    Raises OpcostError, with what to do, for a file of another record, of a newer version, with
    columns that its version never had, or whose rows meant something else.
    """

    def __init__(self, file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> None:
        self._schema = schema
        self._record = _stated(schema, "record")
        self._held = set(file.names)
        self._version = _version_of(file, self._record, path, remedy)
        # Most files are of today: to look at each column would take as long as to read one row.
        self._same = self._version == SCHEMA_VERSION and file.equals(schema)
        if not self._same and not self._fits(file):
            raise OpcostError(
                f"{path} does not have the columns of its schema version {self._version}: {remedy}"
            )

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """The columns of the file that these are made of; at least one, which counts the rows."""
        if self._same:
            return list(wanted)
        found = [source for name in wanted if (source := self._source(name)) is not None]
        return list(dict.fromkeys(found)) or self._schema.names[:1]

    def rows(self, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
        """The wanted columns, of a batch that has `columns(wanted)`."""
        if self._same:
            return batch.select(wanted).replace_schema_metadata(self._schema.metadata)
        fields = [self._schema.field(name) for name in wanted]
        return pa.RecordBatch.from_arrays(
            [self._values(batch, field) for field in fields],
            schema=pa.schema(fields, self._schema.metadata),
        )

    def _values(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        source = self._source(field.name)
        if source is not None:
            return batch[source]
        if field.name == "schema_version":
            return pa.repeat(pa.scalar(self._version, field.type), len(batch))
        return pa.nulls(len(batch), field.type)

    def _source(self, column: str) -> str | None:
        """The column of the file that has the quantity, if one has."""
        if column not in self._held:
            return STOOD_IN.get(column)
        companion = CAME_WITH.get(column, column)
        return column if companion in self._held else None

    def _fits(self, file: pa.Schema) -> bool:
        """Whether the columns are such as files of the version had at some time."""
        since = {name: added(self._record).get(name, 0) for name in self._schema.names}
        needed = {name for name, version in since.items() if version < self._version}
        possible = {name for name, version in since.items() if version <= self._version}
        dropped = DROPPED.get(self._record, {}).get(self._version, [])
        return (
            len(self._held) == len(file.names)
            and needed <= self._held <= possible.union(dropped)
            and all(
                file.field(name).type == self._schema.field(name).type
                for name in self._held & possible
            )
        )


def _version_of(file: pa.Schema, record: str, path: Path, remedy: str) -> int:
    """The version of a file that can be read as this record."""
    stated, version = _stated(file, "record"), _stated(file, "schema_version")
    number = int(version) if version.isdecimal() else 0
    # A study's database was a file of operators before it had columns of its own.
    early = record == "database" and stated == "operator" and number < FIRST["database"]
    if stated != record and not early:
        raise OpcostError(f"{path} has opcost.record {stated}, not {record}: {remedy}")
    oldest = OLDEST.get(record, 1)
    if oldest <= number <= SCHEMA_VERSION:
        return number
    if number > SCHEMA_VERSION:
        remedy = "it is of a newer opcost, so upgrade opcost"
    raise OpcostError(
        f"{path} has opcost.schema_version {version}; this opcost reads {oldest} to "
        f"{SCHEMA_VERSION} of {record}: {remedy}"
    )


def _stated(schema: pa.Schema, key: str) -> str:
    return (schema.metadata or {}).get(f"opcost.{key}".encode(), b"none").decode()
