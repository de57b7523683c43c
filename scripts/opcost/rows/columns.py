"""The columns of a measurement: name, type and description. Names end with units."""

from opcost.launch_modes import EAGER, FURTHER_MODES_TEXT
from opcost.rows.column import Role, columns
from opcost.rows.quantities import ENERGY, MEASURED, TIME
from opcost.target import SETTINGS as TARGET_SETTINGS

_OF_JSON = {"integer": "int64", "number": "float64", "boolean": "bool", "string": "string"}

[TARGET] = columns("target string: the study's name for a device with its settings", Role.IDENTITY)

RESULT = columns("""
    status string: `ok`, or the kind of failure: `out_of_memory`, `unsupported`, `error`, `timeout`,
        `crashed`; after a failure every measured column is null
    error string: why the measurement failed; null if `ok`
    time_s interval: seconds per iteration: the median over undisturbed blocks of iterations; in a
        database, the geometric mean of the runs, with the interval of only these runs
    power_w interval: watts under load: the mean over distinct sensor refreshes
    energy_j interval: gross joules per iteration: `time_s` x `power_w`
    energy_reason string: why energy is null
    host_time_s interval: seconds in which the host of a GPU launches an iteration
    host_time_reason string: why host time is null
    idle_power_w float64: watts of the idle device: mean of before and after load
    power_converged bool: whether the interval of `power_w` is as narrow as requested
    power_stop_reason string: why the power phase ended
    converged bool, all: whether the interval of `time_s` is as narrow as requested
    stop_reason string: why timing ended
    flags string[], most: caveats: names of flags
    repeats int64, total: number of retries: trials discarded because they were spoilt
""")
"""The outcome and result of a measurement."""

SETTINGS = [
    *columns(
        f"""
        protocol_version int64: version of the measurement protocol; null for an imported row
        conditions_json string: target and settings as JSON; the source if the row was imported
        cache_state string: cache state of the operands: `model`, `cold` or `warm`
        operation string: `burst`, or `sustained`: after seconds of load, when a power limit has
            slowed it down
        launch_mode string: how it is run: `{EAGER}`, or end to end: {FURTHER_MODES_TEXT}
        """,
        Role.SETTING,
    ),
    *(
        column
        for name, setting in TARGET_SETTINGS.items()
        if setting.column
        for column in columns(f"{name} {_OF_JSON[setting.type]}: {setting.column}", Role.SETTING)
    ),
]
"""The requested measurement procedure."""

CONDITIONS = columns(
    """
    power_limit_w float64: enforced power limit
    device_name string: product name of the device
    device_uuid_hash string: hash of the GPU's UUID; null for a processor
    last_level_cache_bytes int64: size of the last-level cache
    core_cache_bytes int64: size of a core's private cache
    allocator string: configuration of the memory allocator
    driver_version string: version of the NVIDIA driver
    cuda_version string: CUDA version that PyTorch was built with
    cudnn_version string: cuDNN version that PyTorch runs with
    torch_version string: version of PyTorch
    cpu_count int64: number of cores of the machine
    ecc_enabled bool: whether the GPU's memory has ECC enabled, which costs bandwidth
    sm_clock_target_mhz float64: configured clock of the multiprocessors (locked or application
        clock)
    memory_clock_target_mhz float64: configured clock of the memory
    machine_id_hash string: hash that identifies the machine without naming it
    thread_library string: library that runs PyTorch's threads on a processor, and the instruction
        set in use
    process_environment string: environment variables of allocators, PyTorch and its libraries,
        preloaded libraries, mode of huge pages, where set; `none` if nothing is
    """,
    Role.CONDITION,
)
"""The device and software under which it was measured; power limit and clocks as enforced."""

PROVENANCE = columns(
    """
    quiet_sentinel_time_s float64: baseline of the sentinel (`sentinel_time_s`): seconds on the
        undisturbed core, measured at the start of the study
    max_frequency_mhz float64: highest frequency that Linux allows the cores; null for a GPU, and if
        unknown
    torchvision_version string: version of torchvision
    python_version string: version of Python
    os string: operating system and kernel
    """,
    Role.PROVENANCE,
)
"""Other software, and the sentinel's baseline."""

CIRCUMSTANCES = columns(
    """
    meter string: source of power readings, such as `nvml_power_instant`; null without a meter
    sensor_source string: whether the sensor was characterised or assumed
    sm_clock_mhz float64: clock of the multiprocessors under load
    memory_clock_mhz float64: clock of the memory under load
    temperature_end_c float64: degrees Celsius after the load
    worker string: process of the job: `plain`, started afresh; `warm`, forked with PyTorch imported
    device string: PyTorch's name of the device
    opcost_version string: version of opcost
    persistence_mode bool: whether the driver stays loaded while nothing uses the GPU
    performance_state string: performance state of the GPU under load; `P0` is top
    workflow_commit string: git commit of the workflow, followed by `+` if files were modified
    """,
    Role.CIRCUMSTANCE,
)
"""The state of device and process during the trial."""

RAW = columns(
    """
    block_time_s float64[], in_order: seconds per iteration in each block of iterations, in order
    block_undisturbed bool[], in_order: for each block, whether it was free of detected
        interference; `time_s` uses these
    block_iterations int64: iterations in a block
    power_gain_uncertainty float64: relative uncertainty of the sensor's gain, common to all rows of
        a device and included in no interval
    idle_power_before_w float64: watts of the idle device before the load
    idle_power_after_w float64: watts of the idle device after the load
    counter_power_w float64: watts from the energy counter over the power phase, pauses between
        windows included
    power_window_s float64: seconds of load over which `power_w` is averaged
    power_pace float64: time of an iteration in these seconds, as a multiple of the timed one
    power_is_of_burst bool: whether the power limit slowed the device down, and `power_w` is the
        mean of `power_sample_w` until one is first below `power_limit_w`: the power of a burst, as
        `time_s` is its time
    power_segments int64: number of windows, each at another phase of the sensor's refreshes
    power_refreshes int64: distinct sensor refreshes in these windows
    power_sample_w float64[]: watts at each refresh
    power_sample_time_s float64[]: seconds from the start of the window to each refresh
    sensor_refresh_s float64: refresh period of the sensor, in seconds
    sensor_averaging_s float64: averaging window of a reading, in seconds
    temperature_start_c float64: degrees Celsius before the load
    utilisation float64: share of the time in which kernels ran, from NVML
    power_capped_s float64: seconds in which the power limit reduced clocks
    thermal_throttle_s float64: seconds of thermal throttling
    brake_throttle_s float64: seconds of throttling by the power brake
    other_processes int64: number of other processes that had the device open
    meter_missing reasons: quantity -> why meter or device do not provide it
    footprint_bytes int64: total size of the operand sets that calls rotate through
    operand_sets int64: number of operand sets
    sentinel_time_s float64: seconds of the sentinel, a fixed convolution timed between blocks: the
        median over undisturbed moments
    cores int64[]: cores that the measurement was allowed to use
    load_average float64: load average over the last minute
    measured_at time: when the circumstances were recorded
    started_at time: start of the first trial, retries included
    ended_at time, last: end of the last trial
    device_time_s float64, total: seconds for which the job held the device's lock
    memory_used_bytes int64: GPU memory in use by all processes at the start of the trial
    schema_version int64: schema version of the row's columns
    """,
    Role.RAW,
)
"""Raw values and the log of the trial."""

OVERHEAD = columns("""
    call_overhead_s interval: call overhead in seconds of a call whose code is in the private cache;
        on a GPU, of any call on its host
    cold_call_overhead_s interval: call overhead in seconds of a call with cold code, not in the
        private cache; null on a GPU
    view_call_overhead_s interval: call overhead in seconds of a call of a view, the view included
    forward_call_overhead_s interval: call overhead in seconds of a call in forward or the loss of
        training
    backward_call_overhead_s interval: call overhead in seconds of a call in backward
    optimizer_call_overhead_s interval: call overhead in seconds of a call in an optimizer
    backward_start_overhead_s interval: call overhead in seconds of a backward, in addition to its
        calls
    optimizer_start_overhead_s interval: call overhead in seconds of a step of an optimizer, in
        addition to its calls
    overhead_disturbed bool: whether interference lasted throughout the measurement of call overhead
""")
"""Call overhead of the target, measured in each round."""

RUNS = [
    *columns("""
    runs int64: number of runs that count, each in its own process
    disturbed_runs int64: further runs with a result that are left out: they are flagged
        `disturbed`, and others are not
"""),
    *columns(
        """
        run_round int64[]: the round of each run
        run_blocks int64[]: number of blocks of each run: `block_time_s` holds one run after another
        run_temperature_c float64[]: `temperature_end_c` of each run
        """,
        Role.RAW,
    ),
    *(
        column
        for quantity in MEASURED
        for column in columns(
            f"""
            {quantity.runs} float64[]: `{quantity.value}` of each run
            {quantity.run_errors} float64[]: relative standard error of each of `{quantity.runs}`,
                from its blocks or readings
            """,
            Role.RAW,
        )
    ),
]
"""The runs of an operator, in the order of rounds."""

MEASUREMENT = [TARGET, *RESULT, *SETTINGS, *CONDITIONS, *PROVENANCE, *CIRCUMSTANCES, *RAW]
"""The columns of every measurement."""

ANSWER = (
    *("status", "error", *TIME.names, *ENERGY.names),
    *("energy_reason", "converged", "flags"),
)
"""The columns of a row's result and its quality, without raw values."""
