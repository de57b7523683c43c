"""What the columns of a measurement mean: name, type and description of each.

Units are in the names: seconds and joules are per iteration.
"""

from typing import Any

import pyarrow as pa

from opcost.rows.column import Column, Role, in_role
from opcost.statistics import Estimate

_SAMPLES = pa.list_(pa.float64())
_TIME = pa.timestamp("us", tz="UTC")

TARGET = Column(
    "target", pa.string(), "the study's name for device and operating point", Role.IDENTITY
)

RESULT = in_role(
    Role.RESULT,
    [
        (
            "status",
            pa.string(),
            "`ok`, or how it failed: `out_of_memory`, `unsupported`, `error`, `timeout`, "
            "`crashed`; then every measured column is null",
        ),
        ("error", pa.string(), "why it failed; null if `ok`"),
        ("time_s", pa.float64(), "seconds per iteration: the median over undisturbed batches"),
        ("time_ci_low_s", pa.float64(), "lower limit of its 95 % interval"),
        ("time_ci_high_s", pa.float64(), "upper limit of its 95 % interval"),
        ("power_w", pa.float64(), "watts under load, by distinct refreshes of the sensor"),
        ("power_ci_low_w", pa.float64(), "lower limit of its 95 % interval"),
        ("power_ci_high_w", pa.float64(), "upper limit of its 95 % interval"),
        ("energy_j", pa.float64(), "gross joules per iteration: `time_s` x `power_w`"),
        ("energy_ci_low_j", pa.float64(), "lower limit of its 95 % interval"),
        ("energy_ci_high_j", pa.float64(), "upper limit of its 95 % interval"),
        ("energy_reason", pa.string(), "why energy is null"),
        ("idle_power_w", pa.float64(), "watts of the idle device: the mean of before and after"),
        (
            "power_converged",
            pa.bool_(),
            "whether the interval of `power_w` is as narrow as asked for",
        ),
        ("power_stop_reason", pa.string(), "why the power phase ended"),
        ("converged", pa.bool_(), "whether the interval of `time_s` is as narrow as asked for"),
        ("stop_reason", pa.string(), "why the timing ended"),
        ("flags", pa.list_(pa.string()), "what a reader should know before using the row"),
        ("repeats", pa.int64(), "trials that were thrown away because they were spoilt"),
    ],
)
"""How a measurement ended, and what it found."""

SETTINGS = in_role(
    Role.SETTING,
    [
        ("protocol_version", pa.int64(), "of the measurement protocol; null for an imported row"),
        (
            "conditions_json",
            pa.string(),
            "target and settings, or source of an imported row, as JSON",
        ),
        ("cache_state", pa.string(), "`model`, `cold` or `warm`: what operands find in the caches"),
        ("launch_mode", pa.string(), "`eager`"),
        ("threads", pa.int64(), "of PyTorch on the processor"),
        ("tf32", pa.bool_(), "whether TF32 was allowed"),
    ],
)
"""How it was asked to be measured."""

CONDITIONS = in_role(
    Role.CONDITION,
    [
        ("power_limit_w", pa.float64(), "the limit in force"),
        ("device_name", pa.string(), "its model"),
        ("device_uuid_hash", pa.string(), "a hash of the GPU's UUID; processors have none"),
        ("last_level_cache_bytes", pa.int64(), "size of its last cache"),
        ("core_cache_bytes", pa.int64(), "size of the cache of one core"),
        ("allocator", pa.string(), "how memory was allocated"),
        ("driver_version", pa.string(), "of NVIDIA's driver"),
        ("cuda_version", pa.string(), "that PyTorch was built with"),
        ("cudnn_version", pa.string(), "that PyTorch runs with"),
        ("torch_version", pa.string(), "of PyTorch"),
        ("cpu_count", pa.int64(), "cores of the machine"),
        (
            "ecc_enabled",
            pa.bool_(),
            "whether the GPU's memory corrects errors, which costs bandwidth",
        ),
        (
            "sm_clock_target_mhz",
            pa.float64(),
            "the clock that the multiprocessors were set to, by lock or application clock",
        ),
        ("memory_clock_target_mhz", pa.float64(), "the clock that the memory was set to"),
        ("machine_id_hash", pa.string(), "a hash that tells machines apart and names none"),
        (
            "thread_library",
            pa.string(),
            "what runs PyTorch's threads on a processor, with the instruction set in use",
        ),
    ],
)
"""On what it was measured. Power limit and clocks are those in force."""

PROVENANCE = in_role(
    Role.PROVENANCE,
    [
        (
            "quiet_sentinel_time_s",
            pa.float64(),
            "seconds of the sentinel (`sentinel_time_s`) on the quiet core, when the study began",
        ),
        ("torchvision_version", pa.string(), "of torchvision"),
        ("python_version", pa.string(), "of Python"),
        ("os", pa.string(), "operating system and kernel"),
    ],
)
"""What else was there."""

CIRCUMSTANCES = in_role(
    Role.CIRCUMSTANCE,
    [
        (
            "meter",
            pa.string(),
            "what reads power, such as `nvml_power_instant`; null without a meter",
        ),
        ("sensor_source", pa.string(), "whether the sensor was characterised or assumed"),
        ("sm_clock_mhz", pa.float64(), "clock of the multiprocessors under load"),
        ("memory_clock_mhz", pa.float64(), "clock of the memory under load"),
        ("temperature_end_c", pa.float64(), "degrees Celsius after the load"),
        (
            "worker",
            pa.string(),
            "`plain`: a process by itself; `warm`: a fork with PyTorch imported",
        ),
        ("device", pa.string(), "PyTorch's name of the device"),
        ("opcost_version", pa.string(), "of opcost"),
        (
            "persistence_mode",
            pa.bool_(),
            "whether the driver stays loaded while nothing uses the GPU",
        ),
        ("performance_state", pa.string(), "of the GPU under load: `P0` is the fastest"),
        (
            "workflow_commit",
            pa.string(),
            "git commit of the workflow; ends in `+` if files had changed since",
        ),
    ],
)
"""How the trial went."""

RAW = in_role(
    Role.RAW,
    [
        (
            "enqueue_time_s",
            pa.float64(),
            "seconds that the host took to issue an iteration: on a GPU, the device may still work",
        ),
        ("batch_time_s", _SAMPLES, "seconds per iteration in each batch, in order"),
        (
            "batch_undisturbed",
            pa.list_(pa.bool_()),
            "for each batch, whether nothing was noticed to disturb it; `time_s` is that of these",
        ),
        ("batch_iterations", pa.int64(), "iterations in a batch"),
        (
            "power_gain_uncertainty",
            pa.float64(),
            "relative error of the sensor's own gain, common to all rows of a device; "
            "in no interval",
        ),
        ("idle_power_before_w", pa.float64(), "watts of the idle device before the load"),
        ("idle_power_after_w", pa.float64(), "watts of the idle device after the load"),
        (
            "counter_power_w",
            pa.float64(),
            "watts by the energy counter over the whole window, pauses between windows included",
        ),
        ("power_window_s", pa.float64(), "seconds of load that `power_w` was taken over"),
        ("power_segments", pa.int64(), "windows, shifted against the sensor's refreshes"),
        ("power_refreshes", pa.int64(), "distinct refreshes of the sensor in them"),
        ("power_sample_w", _SAMPLES, "watts of each refresh"),
        ("power_sample_time_s", _SAMPLES, "seconds of each refresh since the window began"),
        ("sensor_refresh_s", pa.float64(), "seconds between two refreshes of the sensor"),
        ("sensor_averaging_s", pa.float64(), "seconds that a reading is averaged over"),
        ("temperature_start_c", pa.float64(), "degrees Celsius before the load"),
        ("utilisation", pa.float64(), "share of the time that kernels ran, by NVML"),
        ("power_capped_s", pa.float64(), "seconds for which the power limit held the device back"),
        ("thermal_throttle_s", pa.float64(), "seconds for which heat held it back"),
        ("brake_throttle_s", pa.float64(), "seconds for which the power brake held it back"),
        ("other_processes", pa.int64(), "other processes that had the device open"),
        (
            "meter_missing",
            pa.map_(pa.string(), pa.string()),
            "quantity -> why meter or device do not tell it",
        ),
        ("footprint_bytes", pa.int64(), "bytes that the operands rotate through"),
        ("operand_sets", pa.int64(), "sets of operands"),
        (
            "sentinel_time_s",
            pa.float64(),
            "seconds of a fixed convolution between the batches: the median over undisturbed "
            "moments",
        ),
        ("cores", pa.list_(pa.int64()), "the cores that the measurement was allowed to use"),
        ("load_average", pa.float64(), "of the last minute"),
        ("measured_at", _TIME, "when the circumstances were noted"),
        ("started_at", _TIME, "when the trial began, with all repeats"),
        ("ended_at", _TIME, "when the trial ended"),
        ("device_time_s", pa.float64(), "seconds for which the job held the device"),
        (
            "memory_used_bytes",
            pa.int64(),
            "of the GPU's memory, by all processes, when the trial began",
        ),
        (
            "schema_version",
            pa.int64(),
            "version of the columns that the row was written with: later columns are null",
        ),
    ],
)
"""Raw values, and the log of the trial."""

OVERHEAD: list[Column] = [
    *(
        column
        for kind, where in (
            ("call", "whose code the core's own cache still holds"),
            ("displaced_call", "whose code the core's own cache has lost"),
            ("view_call", "of a view, the view included"),
        )
        for column in (
            Column(
                f"{kind}_overhead_s",
                pa.float64(),
                f"seconds of a call {where}, beyond its operator; null on a GPU, whose host runs "
                "ahead",
            ),
            Column(f"{kind}_overhead_ci_low_s", pa.float64(), "lower limit of its 95 % interval"),
            Column(f"{kind}_overhead_ci_high_s", pa.float64(), "upper limit of its 95 % interval"),
        )
    ),
    Column(
        "overhead_disturbed",
        pa.bool_(),
        "whether the device was disturbed all the time in which these were measured",
    ),
]
"""What calls cost on the target beyond their operators, measured when a study begins and ends."""

MEASUREMENT = [TARGET, *RESULT, *SETTINGS, *CONDITIONS, *PROVENANCE, *CIRCUMSTANCES, *RAW]
"""The columns of every measurement."""

ANSWER = (
    "status",
    "error",
    "time_s",
    "time_ci_low_s",
    "time_ci_high_s",
    "energy_j",
    "energy_ci_low_j",
    "energy_ci_high_j",
    "energy_reason",
    "converged",
    "flags",
)
"""Names of the columns that are a row's answer, and how far to trust it; no raw values."""


def interval_columns(name: str, unit: str, estimate: Estimate | None) -> dict[str, Any]:
    """The three columns of a value and the limits of its interval."""
    return {
        f"{name}_{unit}": estimate.value if estimate else None,
        f"{name}_ci_low_{unit}": estimate.low if estimate else None,
        f"{name}_ci_high_{unit}": estimate.high if estimate else None,
    }
