"""What files of older schema versions lack, and what that means: they are read like today's.

A row is never measured again for the sake of a column. A column that its file lacks is null; so is
one under whose name the file has another quantity. `schema_version` says which columns a row had.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.rows.quantities import OVERHEADS, Quantity
from opcost.rows.schemas import SCHEMA_VERSION

_OVERHEAD = [name for overhead in OVERHEADS.values() for name in overhead.names]
_MEASUREMENT = {
    1: ["allocator"],
    2: [
        *("batch_undisturbed", "quiet_sentinel_time_s", "power_gain_uncertainty"),
        *("idle_power_before_w", "idle_power_after_w", "power_converged", "power_stop_reason"),
        *("power_window_s", "power_segments", "power_refreshes", "sensor_source"),
        *("sensor_refresh_s", "sensor_averaging_s", "sm_clock_mhz", "memory_clock_mhz"),
        *("temperature_start_c", "temperature_end_c", "utilisation", "power_limit_w"),
        *("power_capped_s", "thermal_throttle_s", "brake_throttle_s", "other_processes"),
        *("meter_missing", "repeats"),
    ],
    3: ["core_cache_bytes"],
    4: ["worker", "cores", "started_at", "ended_at", "device_time_s"],
    8: [
        *("schema_version", "workflow_commit", "machine_id_hash", "thread_library", "ecc_enabled"),
        *("persistence_mode", "performance_state", "memory_used_bytes", "sm_clock_target_mhz"),
        "memory_clock_target_mhz",
    ],
}
_OPERATOR = _MEASUREMENT | {2: [*_MEASUREMENT[2], "parameters"]}
_DATABASE = _OPERATOR | {5: [*_OVERHEAD, "spread"], 6: ["overhead_disturbed"]}

ADDED: dict[str, dict[int, list[str]]] = {
    "operator": _OPERATOR,
    "model": _MEASUREMENT,
    "database": _DATABASE,
    "merged": _DATABASE,
    "comparison": {
        3: ["overhead_time_s", "displaced_calls", "spread"],
        5: ["reference_converged", "reference_flags"],
        6: ["overhead_disturbed", "reference_measurements"],
        8: ["told_differences"],
    },
}
"""Record -> schema version -> the columns that it added; the others were there from the first.

Some came while a version was being worked on: a file may lack those that its own version added.
"""

_DROPPED = {
    "operator": {5: _OVERHEAD, 6: [*_OVERHEAD, "overhead_disturbed"]},
    "model": {
        2: list(Quantity("between_calls", "s").names),
        3: _OVERHEAD,
        4: _OVERHEAD,
    },
}
"""Record -> schema version -> columns that only files of that version have. They are not read:
`between_calls_s` is another quantity than any today, and a database takes what calls cost from
where it is measured."""

_CAME_WITH = {
    # The mean of before and after; earlier, what came before.
    "idle_power_w": "idle_power_before_w",
    # Distinct refreshes; earlier, a reading four times for each.
    "power_sample_w": "power_refreshes",
    "power_sample_time_s": "power_refreshes",
    # Between the batches; earlier, before them.
    "sentinel_time_s": "quiet_sentinel_time_s",
    # Over processes; earlier, within one, which says nothing of others.
    **{
        name: "overhead_disturbed"
        for overhead in OVERHEADS.values()
        for name in (overhead.low, overhead.high)
    },
}
"""Column -> the one that its present meaning came with: in a file without that it is null."""

_STOOD_IN = {"idle_power_before_w": "idle_power_w"}
"""Column -> where the same quantity stood before."""

_OLDEST = {"comparison": 5}
"""Record -> the oldest version whose rows mean the same: earlier sums had other parts."""

FIRST = {
    **{"merged": 4, "extraction": 4},
    **{"database": 5, "modules": 5, "explanation": 5, "difference": 5},
}
"""Record -> the version that it came with; the others came with the first."""


def since(record: str, column: str) -> int:
    """The schema version from which on the column has its present meaning."""
    return _added(record).get(_CAME_WITH.get(column, column), 1)


@cache
def _added(record: str) -> dict[str, int]:
    """Column -> the version that added it, of those that were not there from the first."""
    added = ADDED.get(record, {}).items()
    return {name: version for version, names in added for name in names}


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
            return _STOOD_IN.get(column)
        companion = _CAME_WITH.get(column, column)
        return column if companion in self._held else None

    def _fits(self, file: pa.Schema) -> bool:
        """Whether the columns are such as files of the version had at some time."""
        added = {name: _added(self._record).get(name, 0) for name in self._schema.names}
        needed = {name for name, version in added.items() if version < self._version}
        possible = {name for name, version in added.items() if version <= self._version}
        dropped = _DROPPED.get(self._record, {}).get(self._version, [])
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
    oldest = _OLDEST.get(record, 1)
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
