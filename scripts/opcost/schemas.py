"""The columns of everything written as Parquet: names, types, and what they mean.

SCHEMA_VERSION is bumped when a column changes its name, type or meaning.
"""

import pyarrow as pa

SCHEMA_VERSION = 4

_SAMPLES = pa.list_(pa.float64())

# `status` says how the measurement ended. Where it is not "ok", `error` says why and every measured
# column is null; a measured column may also be null where `energy_reason` says why.
_MEASUREMENT = [
    ("target", pa.string()),
    # ok, or how it failed: out_of_memory, unsupported, error, timeout, crashed
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
    # plain: a process by itself; warm: a fork of one that has imported PyTorch
    ("worker", pa.string()),
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
    # the processor cores that it was allowed to use
    ("cores", pa.list_(pa.int64())),
    ("load_average", pa.float64()),
    ("measured_at", pa.timestamp("us", tz="UTC")),
    # when the trial (all of its repeats) began and ended, and how long the job held the device
    ("started_at", pa.timestamp("us", tz="UTC")),
    ("ended_at", pa.timestamp("us", tz="UTC")),
    ("device_time_s", pa.float64()),
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

MERGED = pa.schema(
    [
        *OPERATOR,
        # the same for rows that may be added up, null where a row does not say what it ran on
        ("conditions_id", pa.string()),
        # the databases that held the row, by the first 16 digits of the SHA-256 of their files
        ("sources", pa.list_(pa.string())),
    ],
    metadata={"opcost.record": "merged", "opcost.schema_version": str(SCHEMA_VERSION)},
)

OVERHEAD = [
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
        *OVERHEAD,
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

EXTRACTION = pa.schema(
    [
        ("model", pa.string()),
        # of torchvision, or null for a factory's model
        ("family", pa.string()),
        ("inputs", pa.string()),
        ("definition_json", pa.string()),
        ("extracted", pa.bool_()),
        # why a model could not be extracted; then the columns below are null
        ("reason", pa.string()),
        # calls are those that launch kernels, and tuples likewise; views apart
        ("calls", pa.int64()),
        ("view_calls", pa.int64()),
        ("tuples", pa.int64()),
        ("view_tuples", pa.int64()),
        # of the tuples, those that another model of the study has, too
        ("shared_tuples", pa.int64()),
        # of the tuples, those that do not occur with another seed of weights and inputs
        ("value_dependent_tuples", pa.int64()),
        # of all calls; null where those of an operator are not known
        ("flops", pa.int64()),
        ("parameters", pa.int64()),
        # seconds of the extraction, the start of its process left out
        ("extraction_s", pa.float64()),
        ("torch_version", pa.string()),
    ],
    metadata={"opcost.record": "extraction", "opcost.schema_version": str(SCHEMA_VERSION)},
)
