"""The schema version of files with rows, and how files of earlier ones are read.

Rows of every version stay readable: a column that a later version added is null in them, one that
it removed is left out, and one that it renamed has its present name. A column never gets another
meaning; that is another column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.rows.quantities import OVERHEADS, Quantity


@dataclass(frozen=True)
class Change:
    """What a schema version changed in a record: names of columns; renamed ones, present name by
    former one.
    """

    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


_OF_RUNS = Change(
    removed=(
        *("core_speed_per_s", "evicted_code_time_s", "execution_core_speed_per_s"),
        *("usual_core_speed_per_s", "core_speed_sd"),
        *("time_speed_exponent", "time_speed_exponent_error"),
        *("usual_model_core_speed_per_s", "usual_model_core_speed_error", "model_core_speed_sd"),
        *("round_core_speeds_per_s", "outlying_executions", "method_models"),
        *(
            f"{quantity}_{what}"
            for quantity in ("time", "host_time", "power", "energy")
            for what in (
                *("scatter", "scatter_degrees_of_freedom", "scatter_slope", "scatter_centre"),
                *("scatter_centre_s", "scatter_centre_w", "degrees_of_freedom"),
                *("method_sd", "method_degrees_of_freedom"),
                *("method_differences", "method_difference_errors"),
            )
        ),
    ),
    renamed={
        "executions": "runs",
        "disturbed_executions": "disturbed_runs",
        "execution_round": "run_round",
        "execution_batches": "run_batches",
        "execution_time_s": "run_time_s",
        "execution_time_error": "run_time_error",
        "execution_host_time_s": "run_host_time_s",
        "execution_host_time_error": "run_host_time_error",
        "execution_power_w": "run_power_w",
        "execution_power_error": "run_power_error",
    },
)

_COLD_CALL = OVERHEADS["cold_call"]
_BLOCKS = {
    "batch_time_s": "block_time_s",
    "batch_undisturbed": "block_undisturbed",
    "batch_iterations": "block_iterations",
}
_OF_BLOCKS = Change(
    renamed={
        **_BLOCKS,
        "run_batches": "run_blocks",
        **dict(zip(Quantity("displaced_call_overhead", "s").names, _COLD_CALL.names, strict=True)),
    }
)

CHANGES: Mapping[int, Mapping[str, Change]] = {
    2: {
        "operator": Change(removed=("core_speed_per_s", "evicted_code_time_s")),
        "model": Change(
            removed=("core_speed_per_s", "evicted_code_time_s", "clocked_core_speed_per_s")
        ),
        "database": _OF_RUNS,
        "merged": _OF_RUNS,
    },
    3: {
        "operator": Change(renamed=_BLOCKS),
        "model": Change(renamed={**_BLOCKS, "in_place_reason": "in_context_reason"}),
        "database": _OF_BLOCKS,
        "merged": _OF_BLOCKS,
    },
}
"""Schema version after the first -> record of measurements -> what it changed. A changed column
needs a line here. Tables that are made from measurements are made again instead of read.
"""

SCHEMA_VERSION = max(CHANGES)


class Reading:
    """Converts the rows of a file to rows of a schema.

    Raises OpcostError that ends with `remedy` for a file of another record, of a version that this
    opcost does not know, or with other columns than its version has.
    """

    def __init__(self, file: pa.Schema, schema: pa.Schema, path: Path, remedy: str) -> None:
        self._schema = schema
        self._lacks: set[str] = set()
        self._former: dict[str, str] = {}
        if file.equals(schema, check_metadata=True):
            return  # most files; checking each column takes as long as reading a row
        record, version = _stated(schema, "record"), _version_of(file, schema, path, remedy)
        later = [
            change
            for number, records in CHANGES.items()
            if number > version and (change := records.get(record))
        ]
        names: dict[str, str | None] = {}  # of the file, by present ones; None where it lacks one
        removed: set[str | None] = set()
        for change in later:
            removed |= {names.pop(name, name) for name in change.removed}
            for then, now in change.renamed.items():
                names[now] = names.pop(then, then)
            names |= dict.fromkeys(change.added)
        self._lacks = {now for now, then in names.items() if then is None}
        self._former = {now: then for now, then in names.items() if then is not None}
        found = {each.name: each.type for each in file if each.name not in removed}
        expected = {
            self._former.get(each.name, each.name): each.type
            for each in schema
            if each.name not in self._lacks
        }
        if len(file) > len(found) + len(removed - {None}) or found != expected:
            raise OpcostError(
                f"{path} does not have the columns of its schema version {version}: {remedy}"
            )

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """The columns of the file that `wanted` requires; at least one, to count the rows."""
        held = [self._former.get(name, name) for name in wanted if name not in self._lacks]
        return held or self._schema.names[:1]

    def rows(self, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
        """The wanted columns of a batch that has the columns `columns(wanted)`."""
        fields = [self._schema.field(name) for name in wanted]
        values = [
            pa.nulls(len(batch), each.type)
            if each.name in self._lacks
            else batch[self._former.get(each.name, each.name)]
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
