"""The columns of a measurement: name, type and description. Names end with units."""

import pyarrow as pa

from opcost.launch_modes import EAGER, FURTHER_MODES_TEXT
from opcost.rows.column import Column, Joining, Role, in_role
from opcost.rows.quantities import ENERGY, HOST_TIME, MEASURED, OVERHEADS, POWER, TIME
from opcost.target import SETTINGS as TARGET_SETTINGS

_SAMPLES = pa.list_(pa.float64())
_OF_JSON = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_TIME = pa.timestamp("us", tz="UTC")

TARGET = Column(
    "target", pa.string(), "the study's name for a device with its settings", Role.IDENTITY
)

RESULT = in_role(
    Role.RESULT,
    [
        (
            "status",
            pa.string(),
            "`ok`, or the kind of failure: `out_of_memory`, `unsupported`, `error`, `timeout`, "
            "`crashed`; after a failure every measured column is null",
        ),
        ("error", pa.string(), "why the measurement failed; null if `ok`"),
        *TIME.described(
            "seconds per iteration: the median over undisturbed blocks of iterations; in a "
            "database, the geometric mean of the runs, with the interval of only these runs"
        ),
        *POWER.described("watts under load: the mean over distinct sensor refreshes"),
        *ENERGY.described("gross joules per iteration: `time_s` x `power_w`"),
        ("energy_reason", pa.string(), "why energy is null"),
        *HOST_TIME.described("seconds in which the host of a GPU launches an iteration"),
        ("host_time_reason", pa.string(), "why host time is null"),
        ("idle_power_w", pa.float64(), "watts of the idle device: mean of before and after load"),
        (
            "power_converged",
            pa.bool_(),
            "whether the interval of `power_w` is as narrow as requested",
        ),
        ("power_stop_reason", pa.string(), "why the power phase ended"),
        (
            "converged",
            pa.bool_(),
            "whether the interval of `time_s` is as narrow as requested",
            Joining.ALL,
        ),
        ("stop_reason", pa.string(), "why timing ended"),
        ("flags", pa.list_(pa.string()), "caveats: names of flags", Joining.MOST),
        (
            "repeats",
            pa.int64(),
            "number of retries: trials discarded because they were spoilt",
            Joining.TOTAL,
        ),
    ],
)
"""The outcome and result of a measurement."""

SETTINGS = in_role(
    Role.SETTING,
    [
        (
            "protocol_version",
            pa.int64(),
            "version of the measurement protocol; null for an imported row",
        ),
        (
            "conditions_json",
            pa.string(),
            "target and settings as JSON; the source if the row was imported",
        ),
        ("cache_state", pa.string(), "cache state of the operands: `model`, `cold` or `warm`"),
        (
            "operation",
            pa.string(),
            "`burst`, or `sustained`: after seconds of load, when a power limit has slowed it down",
        ),
        (
            "launch_mode",
            pa.string(),
            f"how it is run: `{EAGER}`, or end to end: {FURTHER_MODES_TEXT}",
        ),
        *(
            (name, _OF_JSON[setting.type], setting.column)
            for name, setting in TARGET_SETTINGS.items()
            if setting.column
        ),
    ],
)
"""The requested measurement procedure."""

CONDITIONS = in_role(
    Role.CONDITION,
    [
        ("power_limit_w", pa.float64(), "enforced power limit"),
        ("device_name", pa.string(), "product name of the device"),
        ("device_uuid_hash", pa.string(), "hash of the GPU's UUID; null for a processor"),
        ("last_level_cache_bytes", pa.int64(), "size of the last-level cache"),
        ("core_cache_bytes", pa.int64(), "size of a core's private cache"),
        ("allocator", pa.string(), "configuration of the memory allocator"),
        ("driver_version", pa.string(), "version of the NVIDIA driver"),
        ("cuda_version", pa.string(), "CUDA version that PyTorch was built with"),
        ("cudnn_version", pa.string(), "cuDNN version that PyTorch runs with"),
        ("torch_version", pa.string(), "version of PyTorch"),
        ("cpu_count", pa.int64(), "number of cores of the machine"),
        (
            "ecc_enabled",
            pa.bool_(),
            "whether the GPU's memory has ECC enabled, which costs bandwidth",
        ),
        (
            "sm_clock_target_mhz",
            pa.float64(),
            "configured clock of the multiprocessors (locked or application clock)",
        ),
        ("memory_clock_target_mhz", pa.float64(), "configured clock of the memory"),
        ("machine_id_hash", pa.string(), "hash that identifies the machine without naming it"),
        (
            "thread_library",
            pa.string(),
            "library that runs PyTorch's threads on a processor, and the instruction set in use",
        ),
        (
            "process_environment",
            pa.string(),
            "environment variables of allocators, PyTorch and its libraries, preloaded libraries, "
            "mode of huge pages, where set; `none` if nothing is",
        ),
    ],
)
"""The device and software under which it was measured; power limit and clocks as enforced."""

PROVENANCE = in_role(
    Role.PROVENANCE,
    [
        (
            "quiet_sentinel_time_s",
            pa.float64(),
            "baseline of the sentinel (`sentinel_time_s`): seconds on the undisturbed core, "
            "measured at the start of the study",
        ),
        (
            "max_frequency_mhz",
            pa.float64(),
            "highest frequency that Linux allows the cores; null for a GPU, and if unknown",
        ),
        ("torchvision_version", pa.string(), "version of torchvision"),
        ("python_version", pa.string(), "version of Python"),
        ("os", pa.string(), "operating system and kernel"),
    ],
)
"""Other software, and the sentinel's baseline."""

CIRCUMSTANCES = in_role(
    Role.CIRCUMSTANCE,
    [
        (
            "meter",
            pa.string(),
            "source of power readings, such as `nvml_power_instant`; null without a meter",
        ),
        ("sensor_source", pa.string(), "whether the sensor was characterised or assumed"),
        ("sm_clock_mhz", pa.float64(), "clock of the multiprocessors under load"),
        ("memory_clock_mhz", pa.float64(), "clock of the memory under load"),
        ("temperature_end_c", pa.float64(), "degrees Celsius after the load"),
        (
            "worker",
            pa.string(),
            "process of the job: `plain`, started afresh; `warm`, forked with PyTorch imported",
        ),
        ("device", pa.string(), "PyTorch's name of the device"),
        ("opcost_version", pa.string(), "version of opcost"),
        (
            "persistence_mode",
            pa.bool_(),
            "whether the driver stays loaded while nothing uses the GPU",
        ),
        ("performance_state", pa.string(), "performance state of the GPU under load; `P0` is top"),
        (
            "workflow_commit",
            pa.string(),
            "git commit of the workflow, followed by `+` if files were modified",
        ),
    ],
)
"""The state of device and process during the trial."""

RAW = in_role(
    Role.RAW,
    [
        (
            "block_time_s",
            _SAMPLES,
            "seconds per iteration in each block of iterations, in order",
            Joining.IN_ORDER,
        ),
        (
            "block_undisturbed",
            pa.list_(pa.bool_()),
            "for each block, whether it was free of detected interference; `time_s` uses these",
            Joining.IN_ORDER,
        ),
        ("block_iterations", pa.int64(), "iterations in a block"),
        (
            "power_gain_uncertainty",
            pa.float64(),
            "relative uncertainty of the sensor's gain, common to all rows of a device and "
            "included in no interval",
        ),
        ("idle_power_before_w", pa.float64(), "watts of the idle device before the load"),
        ("idle_power_after_w", pa.float64(), "watts of the idle device after the load"),
        (
            "counter_power_w",
            pa.float64(),
            "watts from the energy counter over the power phase, pauses between windows included",
        ),
        ("power_window_s", pa.float64(), "seconds of load over which `power_w` is averaged"),
        (
            "power_pace",
            pa.float64(),
            "time of an iteration in these seconds, as a multiple of the timed one",
        ),
        (
            "power_is_of_burst",
            pa.bool_(),
            "whether the power limit slowed the device down, and `power_w` is the mean of "
            "`power_sample_w` until one is first below `power_limit_w`: the power of a burst, as "
            "`time_s` is its time",
        ),
        (
            "power_segments",
            pa.int64(),
            "number of windows, each at another phase of the sensor's refreshes",
        ),
        ("power_refreshes", pa.int64(), "distinct sensor refreshes in these windows"),
        ("power_sample_w", _SAMPLES, "watts at each refresh"),
        ("power_sample_time_s", _SAMPLES, "seconds from the start of the window to each refresh"),
        ("sensor_refresh_s", pa.float64(), "refresh period of the sensor, in seconds"),
        ("sensor_averaging_s", pa.float64(), "averaging window of a reading, in seconds"),
        ("temperature_start_c", pa.float64(), "degrees Celsius before the load"),
        ("utilisation", pa.float64(), "share of the time in which kernels ran, from NVML"),
        ("power_capped_s", pa.float64(), "seconds in which the power limit reduced clocks"),
        ("thermal_throttle_s", pa.float64(), "seconds of thermal throttling"),
        ("brake_throttle_s", pa.float64(), "seconds of throttling by the power brake"),
        ("other_processes", pa.int64(), "number of other processes that had the device open"),
        (
            "meter_missing",
            pa.map_(pa.string(), pa.string()),
            "quantity -> why meter or device do not provide it",
        ),
        ("footprint_bytes", pa.int64(), "total size of the operand sets that calls rotate through"),
        ("operand_sets", pa.int64(), "number of operand sets"),
        (
            "sentinel_time_s",
            pa.float64(),
            "seconds of the sentinel, a fixed convolution timed between blocks: the median over "
            "undisturbed moments",
        ),
        ("cores", pa.list_(pa.int64()), "cores that the measurement was allowed to use"),
        ("load_average", pa.float64(), "load average over the last minute"),
        ("measured_at", _TIME, "when the circumstances were recorded"),
        ("started_at", _TIME, "start of the first trial, retries included"),
        ("ended_at", _TIME, "end of the last trial", Joining.LAST),
        (
            "device_time_s",
            pa.float64(),
            "seconds for which the job held the device's lock",
            Joining.TOTAL,
        ),
        (
            "memory_used_bytes",
            pa.int64(),
            "GPU memory in use by all processes at the start of the trial",
        ),
        (
            "schema_version",
            pa.int64(),
            "schema version of the row's columns",
        ),
    ],
)
"""Raw values and the log of the trial."""

OVERHEAD: list[Column] = [
    *(
        Column(*column)
        for kind, where in (
            (
                "call",
                "call whose code is in the private cache; on a GPU, of any call on its host",
            ),
            ("cold_call", "call with cold code, not in the private cache; null on a GPU"),
            ("view_call", "call of a view, the view included"),
            ("forward_call", "call in forward or the loss of training"),
            ("backward_call", "call in backward"),
            ("optimizer_call", "call in an optimizer"),
            ("backward_start", "backward, in addition to its calls"),
            ("optimizer_start", "step of an optimizer, in addition to its calls"),
        )
        for column in OVERHEADS[kind].described(f"call overhead in seconds of a {where}")
    ),
    Column(
        "overhead_disturbed",
        pa.bool_(),
        "whether interference lasted throughout the measurement of call overhead",
    ),
]
"""Call overhead of the target, measured in each round."""

RUNS: list[Column] = [
    Column("runs", pa.int64(), "number of runs that count, each in its own process"),
    Column(
        "disturbed_runs",
        pa.int64(),
        "further runs with a result that are left out: they are flagged `disturbed`, and others "
        "are not",
    ),
    *in_role(
        Role.RAW,
        [
            ("run_round", pa.list_(pa.int64()), "the round of each run"),
            (
                "run_blocks",
                pa.list_(pa.int64()),
                "number of blocks of each run: `block_time_s` holds one run after another",
            ),
            ("run_temperature_c", _SAMPLES, "`temperature_end_c` of each run"),
            *(
                column
                for quantity in MEASURED
                for column in (
                    (quantity.runs, _SAMPLES, f"`{quantity.value}` of each run"),
                    (
                        quantity.run_errors,
                        _SAMPLES,
                        f"relative standard error of each of `{quantity.runs}`, from its blocks "
                        "or readings",
                    ),
                )
            ),
        ],
    ),
]
"""The runs of an operator, in the order of rounds."""

MEASUREMENT = [TARGET, *RESULT, *SETTINGS, *CONDITIONS, *PROVENANCE, *CIRCUMSTANCES, *RAW]
"""The columns of every measurement."""

ANSWER = (
    "status",
    "error",
    *TIME.names,
    *ENERGY.names,
    "energy_reason",
    "converged",
    "flags",
)
"""The columns of a row's result and its quality, without raw values."""
