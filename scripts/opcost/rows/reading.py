"""Read files of older schema versions as rows of the present one.

A column is null if the file lacks it, or has another quantity under its name. `schema_version` is
that of the file.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.rows.versions import (
    DROPPED,
    FIRST,
    FORMER_NAMES,
    OLDEST,
    REDEFINED_WITH,
    SCHEMA_VERSION,
    added,
)


class Reading:
    """Converts the rows of a file to rows of a schema.

    Raises OpcostError that ends with `remedy` for a file of another record or a newer version, with
    columns that its version never had, or whose rows had another meaning.
    """

    def __init__(self, file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> None:
        self._schema = schema
        self._record = _stated(schema, "record")
        self._held = set(file.names)
        self._version = _version_of(file, self._record, path, remedy)
        # Most files are current, and checking each column takes as long as reading a row.
        self._same = self._version == SCHEMA_VERSION and file.equals(schema)
        if not self._same and not self._fits(file):
            raise OpcostError(
                f"{path} does not have the columns of its schema version {self._version}: {remedy}"
            )

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """The columns of the file that `wanted` requires; at least one, to count the rows."""
        if self._same:
            return list(wanted)
        found = [source for name in wanted if (source := self._source(name)) is not None]
        return list(dict.fromkeys(found)) or self._schema.names[:1]

    def rows(self, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
        """The wanted columns of a batch that has the columns `columns(wanted)`."""
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
        """The column of the file with the quantity, if any."""
        if column not in self._held:
            former = FORMER_NAMES.get(column)
            return former if former in self._held else None
        companion = REDEFINED_WITH.get(column, column)
        return column if companion in self._held else None

    def _fits(self, file: pa.Schema) -> bool:
        """Whether files of the version had these columns at some time."""
        since = {name: added(self._record).get(name, 0) for name in self._schema.names}
        needed = {name for name, version in since.items() if version < self._version}
        possible = {name for name, version in since.items() if version <= self._version}
        former = {FORMER_NAMES[name] for name in possible & FORMER_NAMES.keys()}
        dropped = DROPPED.get(self._record, {}).get(self._version, [])
        return (
            len(self._held) == len(file.names)
            and all(name in self._held or FORMER_NAMES.get(name) in self._held for name in needed)
            and self._held <= possible.union(former, dropped)
            and all(
                file.field(name).type == self._schema.field(name).type
                for name in self._held & possible
            )
        )


def _version_of(file: pa.Schema, record: str, path: Path, remedy: str) -> int:
    """The schema version of a file. Raises OpcostError if it cannot be read as this record."""
    stated, version = _stated(file, "record"), _stated(file, "schema_version")
    number = int(version) if version.isdecimal() else 0
    # Early databases of studies were files of operators.
    early = record == "database" and stated == "operator" and number < FIRST["database"]
    if stated != record and not early:
        raise OpcostError(f"{path} has opcost.record {stated}, not {record}: {remedy}")
    oldest = OLDEST.get(record, 1)
    if oldest <= number <= SCHEMA_VERSION:
        return number
    if number > SCHEMA_VERSION:
        remedy = "a newer opcost wrote it: upgrade opcost"
    raise OpcostError(
        f"{path} has opcost.schema_version {version}; this opcost reads {oldest} to "
        f"{SCHEMA_VERSION} of {record}: {remedy}"
    )


def _stated(schema: pa.Schema, key: str) -> str:
    return (schema.metadata or {}).get(f"opcost.{key}".encode(), b"none").decode()
