"""The schema versions: what each changed, and what older files lack.

A new column needs a new SCHEMA_VERSION, a line in VERSIONS, and its name in ADDED.
"""

from functools import cache

from opcost.rows.quantities import (
    CALL_TIME,
    ENERGY,
    EVICTED_CODE,
    EXECUTED,
    HOST_TIME,
    INFERENCE_CALLS,
    MODEL_SPEED,
    MODEL_SPEED_ERROR,
    MODEL_SPEED_SD,
    OVERHEADS,
    PHASE_TIMES,
    POWER,
    ROUND_SPEEDS,
    SPEED_COLUMNS,
    SPEED_SD,
    TIME,
    TRAINING_CALLS,
    Quantity,
)

SCHEMA_VERSION = 14

VERSIONS = {
    1: "The first.",
    2: "Columns for the power measurement, the state of the device, and retries.",
    3: "`call_overhead_s`, `displaced_call_overhead_s` and `view_call_overhead_s` replace "
    "`between_calls_s`; `overhead_time_s`, `displaced_calls` and `spread` in the comparison; "
    "`core_cache_bytes`.",
    4: "`worker`, `cores`, `started_at`, `ended_at` and `device_time_s`; rows of failed "
    "measurements hold `quiet_sentinel_time_s`.",
    5: "Call overhead moves from the rows of models to those of operators; `spread` in the "
    "database; new record `modules`.",
    6: "`overhead_disturbed`; intervals of call overhead are over processes; "
    "`reference_measurements`: a reference is the mean over these.",
    7: "Call overhead is in the database only, measured at the start and end of a study.",
    8: "Each column has a role; columns are ordered by role. New: `schema_version`, "
    "`workflow_commit`, `machine_id_hash`, `thread_library`, `ecc_enabled`, `persistence_mode`, "
    "`performance_state`, `memory_used_bytes`, `sm_clock_target_mhz`, `memory_clock_target_mhz`.",
    9: "`host_time_s` with its interval replaces `enqueue_time_s`, which contained the wait for a "
    "full queue; `host_time_reason`; `differing_calls` of models and of the comparison; "
    "`host_spread` in the database; `idle_time_s`, `host_bound_share`, `host_time_s` and "
    "`reference_host_time_s` in the comparison, `idle_time_s` in the modules: estimates for a GPU "
    "are those of a race between host and device. New record `launches`. `inputs`, `dtype` and "
    "`batch_size` in the comparison; `partial_time_s` and `partial_energy_j` in shares and "
    "modules; `overhead_time_s`, `first_call`, `tuple_ids` and `tuple_calls` in the modules.",
    10: "A row of the database combines the executions of all rounds: `time_s`, `power_w` and "
    "`host_time_s` are geometric means, and their intervals hold the mean of further executions. "
    "`execution_...`, `executions`, `outlying_executions`, `..._degrees_of_freedom`; "
    "`time_scatter` replaces `spread`, `host_time_scatter` `host_spread`.",
    11: "The method's own error: `..._method_...` and `method_models` in the database and the "
    "comparison, `..._measurement_half_width` and `requested_half_width` in the comparison. The "
    "intervals of estimates and of their differences from whole models include it. "
    "`..._scatter_slope` and `..._scatter_centre_...`: short operators scatter more.",
    12: "Training: `forward_call_overhead_s`, `backward_call_overhead_s`, "
    "`optimizer_call_overhead_s`, `backward_start_overhead_s` and `optimizer_start_overhead_s` in "
    "the database; `phase` in shares and modules; `forward_time_s`, `backward_time_s` and "
    "`optimizer_time_s` of models; both sides of each phase in the comparison. "
    "`activation_peak_bytes`. New record `requests`.",
    13: "Calls in place: `call_tuple_id`, `call_time_s` with its interval, `clocked_time_s`, "
    "`clocked_passes`, `clocked_core_speed_per_s` and `in_place_reason` of models; "
    "`in_place_time_s`, `between_calls_time_s`, `clocked_time_s`, `largest_share_difference` and "
    "`in_place_reason` in the comparison; `in_place_time_s` in the modules. New record "
    "`in_place`. `max_frequency_mhz`, `numa_node` and `huge_pages`. `power_pace`; "
    "`energy_gain_uncertainty` in the comparison. Times of a database are those at the usual "
    "speed of the core: `core_speed_per_s`, and in the database `execution_core_speed_per_s`, "
    "`usual_core_speed_per_s`, `core_speed_sd`, `time_speed_exponent` with its error, and "
    "`usual_model_core_speed_per_s` with its error, `model_core_speed_sd` and "
    "`round_core_speeds_per_s`. `evicted_code_time_s` of operators. `disturbed_executions` "
    "in the database and the comparison; `outlying_executions`, `reference_outlying_s` and "
    "`reference_disturbed_s` in the comparison.",
    14: "`process_environment`; `weights_read_again` in the comparison.",
}
"""Schema version -> its changes."""

_OVERHEAD = [name for kind in INFERENCE_CALLS for name in OVERHEADS[kind].names]
_TRAINING_OVERHEAD = [name for kind in TRAINING_CALLS for name in OVERHEADS[kind].names]
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
    9: [*HOST_TIME.names, "host_time_reason"],
    13: [
        *("max_frequency_mhz", "numa_node", "huge_pages", "power_pace", "core_speed_per_s"),
        EVICTED_CODE,
    ],
    14: ["process_environment"],
}
_OPERATOR = _MEASUREMENT | {2: [*_MEASUREMENT[2], "parameters"]}
_DATABASE = _OPERATOR | {
    5: [*_OVERHEAD, TIME.scatter],
    6: ["overhead_disturbed"],
    9: [*_OPERATOR[9], HOST_TIME.scatter],
    10: [
        *(HOST_TIME.scatter_degrees, TIME.scatter_degrees, POWER.scatter, POWER.scatter_degrees),
        *("executions", "outlying_executions", "execution_round", "execution_batches"),
        *(name for each in EXECUTED for name in (each.executed, each.executed_error)),
        *(each.degrees for each in (*EXECUTED, ENERGY)),
    ],
    11: [
        "method_models",
        *(name for each in EXECUTED for name in (each.scatter_slope, each.scatter_centre)),
        *(
            name
            for each in (TIME, ENERGY)
            for name in (
                *(each.method_sd, each.method_degrees),
                *(each.method_differences, each.method_errors),
            )
        ),
    ],
    12: _TRAINING_OVERHEAD,
    13: [
        *_OPERATOR[13],
        *("execution_core_speed_per_s", *SPEED_COLUMNS, MODEL_SPEED, MODEL_SPEED_ERROR),
        *(MODEL_SPEED_SD, ROUND_SPEEDS, "disturbed_executions"),
    ],
}

ADDED: dict[str, dict[int, list[str]]] = {
    "operator": _OPERATOR,
    "model": _MEASUREMENT
    | {
        9: [*_MEASUREMENT[9], "differing_calls", "calls_hash"],
        12: [name for quantity in PHASE_TIMES.values() for name in quantity.names],
        13: [
            *_MEASUREMENT[13],
            *("call_tuple_id", *CALL_TIME.names),
            *("clocked_time_s", "clocked_passes", "clocked_core_speed_per_s"),
            "in_place_reason",
        ],
    },
    "database": _DATABASE,
    "merged": _DATABASE,
    "comparison": {
        3: ["overhead_time_s", "displaced_calls", TIME.scatter],
        5: ["reference_converged", "reference_flags"],
        6: ["overhead_disturbed", "reference_measurements"],
        8: ["told_differences"],
        9: [
            *("differing_calls", "idle_time_s", "host_bound_share", "host_time_s"),
            *("reference_host_time_s", "inputs", "dtype", "batch_size"),
        ],
        11: [
            *("method_models", "requested_half_width"),
            *(
                name
                for each in (TIME, ENERGY)
                for name in (each.measurement_half, each.method_half)
            ),
        ],
        12: [
            "activation_peak_bytes",
            *(
                name
                for phase in PHASE_TIMES
                for whose in ("estimate", "reference")
                for name in TIME.of(f"{whose}_{phase}").names
            ),
        ],
        13: [
            *TIME.of("in_place").names,
            *("between_calls_time_s", "clocked_time_s", "in_place_reason"),
            "largest_share_difference",
            *("energy_gain_uncertainty", SPEED_SD, "reference_outlying_s"),
            *("reference_disturbed_s", "outlying_executions", "disturbed_executions"),
        ],
        14: ["weights_read_again"],
    },
    "extraction": {12: ["activation_peak_bytes"]},
    "shares": {9: ["partial_time_s", "partial_energy_j"], 12: ["phase"]},
    "modules": {
        9: [
            *("partial_time_s", "partial_energy_j", "overhead_time_s", "idle_time_s"),
            *("first_call", "tuple_ids", "tuple_calls"),
        ],
        12: ["phase"],
        13: ["in_place_time_s"],
    },
}
"""Record -> schema version -> the columns that it added; all others exist since version 1.

A file may lack columns that its own version added, if it was written during development.
"""

_ENQUEUE = {version: ["enqueue_time_s"] for version in range(1, 9)}

DROPPED: dict[str, dict[int, list[str]]] = {
    "operator": _ENQUEUE
    | {
        5: ["enqueue_time_s", *_OVERHEAD],
        6: ["enqueue_time_s", *_OVERHEAD, "overhead_disturbed"],
    },
    "model": _ENQUEUE
    | {
        2: ["enqueue_time_s", *Quantity("between_calls", "s").names],
        3: ["enqueue_time_s", *_OVERHEAD],
        4: ["enqueue_time_s", *_OVERHEAD],
    },
    "database": _ENQUEUE,
    "merged": _ENQUEUE,
}
"""Record -> schema version -> columns that only files of that version have. They are not read: no
present column means `between_calls_s` or `enqueue_time_s`, and call overhead is read from
`device.json`."""

REDEFINED_WITH = {
    # The mean of before and after; earlier, only before.
    "idle_power_w": "idle_power_before_w",
    # Distinct refreshes; earlier, four readings of each.
    "power_sample_w": "power_refreshes",
    "power_sample_time_s": "power_refreshes",
    # Between the batches; earlier, before them.
    "sentinel_time_s": "quiet_sentinel_time_s",
    # Between processes; earlier, within one process.
    **{
        name: "overhead_disturbed"
        for kind in INFERENCE_CALLS
        for name in (OVERHEADS[kind].low, OVERHEADS[kind].high)
    },
}
"""Column -> a column that was added when its meaning changed: without that, it is null."""

FORMER_NAMES = {
    "idle_power_before_w": "idle_power_w",
    TIME.scatter: "spread",
    HOST_TIME.scatter: "host_spread",
}
"""Column -> the older column of the same quantity."""

OLDEST = {"comparison": 5}
"""Record -> the oldest readable version: earlier sums had other terms."""

FIRST = {
    **{"merged": 4, "extraction": 4},
    "launches": 9,
    "requests": 12,
    "in_place": 13,
    **{"database": 5, "modules": 5, "explanation": 5, "difference": 5},
}
"""Record -> the version that added it; all others exist since version 1."""


def since(record: str, column: str) -> int:
    """The schema version since which the column has its present meaning."""
    return added(record).get(REDEFINED_WITH.get(column, column), 1)


@cache
def added(record: str) -> dict[str, int]:
    """Column -> the version that added it, except columns of version 1."""
    by_version = ADDED.get(record, {}).items()
    return {name: version for version, names in by_version for name in names}
