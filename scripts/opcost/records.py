"""The Arrow schemas of everything written as Parquet, and reading and writing with checks.

SCHEMA_VERSION is bumped when a column changes its name, type or meaning.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.manifest import TupleRecord
from opcost.study import Conditions, ModelDefinition

SCHEMA_VERSION = 3
STATUSES = ("ok", "out_of_memory", "unsupported", "error", "timeout", "crashed")

_SAMPLES = pa.list_(pa.float64())

# `status` says how the measurement ended. Where it is not "ok", `error` says why and every measured
# column is null; a measured column may also be null where `energy_reason` says why.
_MEASUREMENT = [
    ("target", pa.string()),
    ("status", pa.string()),
    ("error", pa.string()),
    # seconds per iteration
    ("time_s", pa.float64()),
    ("time_ci_low_s", pa.float64()),
    ("time_ci_high_s", pa.float64()),
    ("enqueue_time_s", pa.float64()),
    ("batch_time_s", _SAMPLES),
    # whether nothing was noticed to disturb the batch; the time above is that of these batches
    ("batch_undisturbed", pa.list_(pa.bool_())),
    ("batch_iterations", pa.int64()),
    # watts under load, gross joules per iteration
    ("power_w", pa.float64()),
    ("power_ci_low_w", pa.float64()),
    ("power_ci_high_w", pa.float64()),
    ("energy_j", pa.float64()),
    ("energy_ci_low_j", pa.float64()),
    ("energy_ci_high_j", pa.float64()),
    ("energy_reason", pa.string()),
    # the sensor's own gain is in none of these: it is common to all rows of a device
    ("power_gain_uncertainty", pa.float64()),
    # of the idle device: the mean of before and after, and both
    ("idle_power_w", pa.float64()),
    ("idle_power_before_w", pa.float64()),
    ("idle_power_after_w", pa.float64()),
    # by the energy counter over the whole window, pauses between shifted windows included
    ("counter_power_w", pa.float64()),
    ("power_converged", pa.bool_()),
    ("power_stop_reason", pa.string()),
    ("power_window_s", pa.float64()),
    ("power_segments", pa.int64()),
    ("power_refreshes", pa.int64()),
    ("power_sample_w", _SAMPLES),
    ("power_sample_time_s", _SAMPLES),
    # what the readings are, and how they follow power
    ("meter", pa.string()),
    ("sensor_source", pa.string()),
    ("sensor_refresh_s", pa.float64()),
    ("sensor_averaging_s", pa.float64()),
    # the device under load, and how long it was held back during the trial
    ("sm_clock_mhz", pa.float64()),
    ("memory_clock_mhz", pa.float64()),
    ("temperature_start_c", pa.float64()),
    ("temperature_end_c", pa.float64()),
    ("utilisation", pa.float64()),
    ("power_limit_w", pa.float64()),
    ("power_capped_s", pa.float64()),
    ("thermal_throttle_s", pa.float64()),
    ("brake_throttle_s", pa.float64()),
    ("other_processes", pa.int64()),
    # why the meter or the device does not tell something: quantity -> reason
    ("meter_missing", pa.map_(pa.string(), pa.string())),
    # judgement
    ("converged", pa.bool_()),
    ("stop_reason", pa.string()),
    ("flags", pa.list_(pa.string())),
    ("repeats", pa.int64()),
    # conditions
    ("protocol_version", pa.int64()),
    ("conditions_json", pa.string()),
    ("cache_state", pa.string()),
    ("footprint_bytes", pa.int64()),
    ("operand_sets", pa.int64()),
    ("launch_mode", pa.string()),
    ("threads", pa.int64()),
    ("tf32", pa.bool_()),
    # a fixed convolution, timed between the batches to notice what disturbs a processor's core:
    # median over the undisturbed moments of this measurement, and what the study began with
    ("sentinel_time_s", pa.float64()),
    ("quiet_sentinel_time_s", pa.float64()),
    # what it was measured on
    ("device", pa.string()),
    ("device_name", pa.string()),
    ("device_uuid_hash", pa.string()),
    ("last_level_cache_bytes", pa.int64()),
    ("core_cache_bytes", pa.int64()),
    ("allocator", pa.string()),
    ("driver_version", pa.string()),
    ("cuda_version", pa.string()),
    ("cudnn_version", pa.string()),
    ("torch_version", pa.string()),
    ("torchvision_version", pa.string()),
    ("python_version", pa.string()),
    ("opcost_version", pa.string()),
    ("os", pa.string()),
    ("cpu_count", pa.int64()),
    ("load_average", pa.float64()),
    ("measured_at", pa.timestamp("us", tz="UTC")),
]

OPERATOR = pa.schema(
    [
        ("tuple_id", pa.string()),
        ("operator", pa.string()),
        ("canonical_json", pa.string()),
        ("description", pa.string()),
        ("flops", pa.int64()),
        ("bytes", pa.int64()),
        # arguments that models hold themselves; the others are activations
        ("parameters", pa.list_(pa.string())),
        *_MEASUREMENT,
    ],
    metadata={"opcost.record": "operator", "opcost.schema_version": str(SCHEMA_VERSION)},
)

_OVERHEAD = [
    (f"{name}_overhead{part}_s", pa.float64())
    for name in ("call", "displaced_call", "view_call")
    for part in ("", "_ci_low", "_ci_high")
]

MODEL = pa.schema(
    [
        ("model", pa.string()),
        ("definition_json", pa.string()),
        # seconds that a call costs on this target beyond its operator's own time: where the core
        # still holds its code, where not, and a view; null on a GPU, whose host runs ahead
        *_OVERHEAD,
        *_MEASUREMENT,
    ],
    metadata={"opcost.record": "model", "opcost.schema_version": str(SCHEMA_VERSION)},
)

COMPARISON = pa.schema(
    [
        ("model", pa.string()),
        ("target", pa.string()),
        # seconds: the sum over the operators with the overhead of their calls, and the whole model
        ("estimate_time_s", pa.float64()),
        ("estimate_time_ci_low_s", pa.float64()),
        ("estimate_time_ci_high_s", pa.float64()),
        ("reference_time_s", pa.float64()),
        ("reference_time_ci_low_s", pa.float64()),
        ("reference_time_ci_high_s", pa.float64()),
        ("time_relative_error", pa.float64()),
        ("time_relative_error_ci_low", pa.float64()),
        ("time_relative_error_ci_high", pa.float64()),
        ("time_reason", pa.string()),
        # the two parts of the estimate
        ("operators_time_s", pa.float64()),
        ("overhead_time_s", pa.float64()),
        # joules, likewise
        ("estimate_energy_j", pa.float64()),
        ("estimate_energy_ci_low_j", pa.float64()),
        ("estimate_energy_ci_high_j", pa.float64()),
        ("reference_energy_j", pa.float64()),
        ("reference_energy_ci_low_j", pa.float64()),
        ("reference_energy_ci_high_j", pa.float64()),
        ("energy_relative_error", pa.float64()),
        ("energy_relative_error_ci_low", pa.float64()),
        ("energy_relative_error_ci_high", pa.float64()),
        ("energy_reason", pa.string()),
        # what the measured tuples account for; calls are those that launch kernels
        ("partial_time_s", pa.float64()),
        ("coverage_calls", pa.float64()),
        ("coverage_flops", pa.float64()),
        ("coverage_time", pa.float64()),
        ("calls", pa.int64()),
        # of these, calls before which a core's own cache has lost their code; null on a GPU
        ("displaced_calls", pa.int64()),
        ("view_calls", pa.int64()),
        ("tuples", pa.int64()),
        ("measured_tuples", pa.int64()),
        ("failed_tuples", pa.int64()),
        ("filtered_tuples", pa.int64()),
        ("unconverged_tuples", pa.int64()),
        ("flag_counts", pa.map_(pa.string(), pa.int64())),
        ("flops", pa.int64()),
        ("parameters", pa.int64()),
        # relative standard deviation of one measurement among others of the same, from operators
        # that were measured twice; the intervals above contain it
        ("spread", pa.float64()),
        ("cache_state", pa.string()),
        ("device_name", pa.string()),
        ("torch_version", pa.string()),
        ("protocol_version", pa.int64()),
    ],
    metadata={"opcost.record": "comparison", "opcost.schema_version": str(SCHEMA_VERSION)},
)

SHARES = pa.schema(
    [
        ("model", pa.string()),
        ("target", pa.string()),
        ("operator", pa.string()),
        ("launches_kernel", pa.bool_()),
        ("calls", pa.int64()),
        ("tuples", pa.int64()),
        ("measured_tuples", pa.int64()),
        # sums over the measured tuples; null where one of them is not measured
        ("time_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("flops", pa.int64()),
        ("bytes", pa.int64()),
        # share of the time of the whole model, as measured
        ("share_of_reference_time", pa.float64()),
    ],
    metadata={"opcost.record": "shares", "opcost.schema_version": str(SCHEMA_VERSION)},
)


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
    return {name: value for (name, _), value in zip(_OVERHEAD, values, strict=False)}


def condition_columns(conditions: Conditions, target: str) -> dict[str, Any]:
    """The columns that say how a row was to be measured."""
    return {
        "target": target,
        "protocol_version": conditions.protocol_version,
        "conditions_json": conditions.to_json(),
        "cache_state": conditions.measurement.cache_state,
        "launch_mode": "eager",
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


def read_all(paths: Sequence[Path], schema: pa.Schema) -> pa.Table:
    """The rows of many files of one schema, in the order of the paths."""
    if not paths:
        return schema.empty_table()
    return pa.concat_tables([read(path, schema) for path in paths])
