"""The schemas of all Parquet files: the columns of each kind of record, with their meanings.

docs/reference/columns.md is generated from this file.
"""

from collections.abc import Sequence

import pyarrow as pa

from opcost.launch_modes import EAGER, FURTHER_MODES_TEXT
from opcost.results_folder import MODELS, OPERATORS
from opcost.rows.column import Column, Role, columns
from opcost.rows.columns import MEASUREMENT, OVERHEAD, RUNS, TARGET
from opcost.rows.quantities import ENERGY, TIME

SCHEMA_VERSION = 5
"""Files of another version are refused: a change of a schema increases this number, and converts
the files that come with opcost (tests/golden/convert.py)."""

DESCRIPTIONS: dict[str, dict[str, str]] = {}
"""Record -> column -> its meaning."""


def _schema(record: str, *parts: Sequence[Column] | str) -> pa.Schema:
    """The schema of a record, and its `DESCRIPTIONS`. Texts are as in `columns`."""
    listed = [each for part in parts for each in (columns(part) if isinstance(part, str) else part)]
    DESCRIPTIONS[record] = {column.name: column.meaning for column in listed}
    return pa.schema(
        [(column.name, column.type) for column in listed],
        metadata={"opcost.record": record, "opcost.schema_version": str(SCHEMA_VERSION)},
    )


_OPERATOR = [
    *columns(
        """
        tuple_id string: the first 16 digits of the SHA-256 of `canonical_json`
        operator string: the dispatcher's name, such as `aten.conv2d.default`
        canonical_json string: the operator tuple as JSON: operator, attributes, and the shape,
            dtype and layout of tensors, their share of zeros if one is requested, and the memory of
            those on the host of a GPU
        description string: readable form of the operator tuple
        flops int64: floating-point operations of matrix products, convolutions and attention: a
            multiplication and an addition are 2, of complex numbers 8; 0 for other operators; null
            if unknown
        bytes int64: minimum bytes moved: arguments read plus results written; of a table from which
            entries are taken, these; of a copy between host and device, those that pass between
            them
        parameters string[]: arguments that are weights or buffers of the model; the others are
            activations
        """,
        Role.IDENTITY,
    ),
    *MEASUREMENT,
]
OPERATOR = _schema("operator", _OPERATOR)

_DATABASE = [*_OPERATOR, *OVERHEAD, *RUNS]
DATABASE = _schema("database", _DATABASE)

RAW_BLOCKS = ["block_time_s", "block_undisturbed", "power_sample_w", "power_sample_time_s"]
"""Columns that hold many values in each row."""

MERGED = _schema(
    "merged",
    _DATABASE,
    """
    conditions_id string: equal for rows that may be added up; null if a row does not name its
        device
    sources string[]: databases that held the row: the first 16 digits of the SHA-256 of each file
    """,
)

_UNITS = {TIME: "seconds", ENERGY: "gross joules"}
_COMPARED_PHASES = {
    "forward": "forward and loss",
    "backward": "backward",
    "optimizer": "the optimizer",
}
_SUBJECT = f"""
model string: the model's name in the study
target string: {TARGET.meaning}
"""

MODEL = _schema(
    "model",
    """
    model string: the model's name in the study
    definition_json string: definition of the model as JSON
    """,
    MEASUREMENT,
    """
    differing_calls string[]: kernels that the model launched more (+) or less (-) often than were
        recorded or extracted before, such as `+12 reshape(...)`; null if not compared
    calls_hash string: 16 hex digits that change with the kernels that the model launched: the
        operator tuples, and how often it called each
    """,
    *(
        f"""
        {phase}_time_s interval: seconds of {what} in a training step; null for inference, and on a
            GPU
        """
        for phase, what in _COMPARED_PHASES.items()
    ),
    """
    call_tuple_id string[]: the operator tuple of each call, in order; null without their times in
        context
    call_time_s interval[]: seconds of each call in context, inside the running model: on a GPU, of
        its kernels; the median over passes with a clock around each call
    clocked_time_s float64: seconds of such a pass: the clock slows the model down between the calls
    clocked_passes int64: number of these passes that count
    in_context_reason string: why the times in context are null
    """,
)

MEASUREMENTS = {OPERATORS: OPERATOR, MODELS: MODEL}
"""The schema of each kind of measurement."""

_PHASE = "phase of a training step: `forward`, `loss`, `backward` or `optimizer`"

MODEL_COSTS = _schema(
    "model_costs",
    _SUBJECT,
    """
    estimate_time_s interval: estimated seconds of an iteration: on a processor, the sum over
        operators plus call overhead; on a GPU, the larger of the host's and the device's seconds,
        plus waits; null if an operator is missing
    end_to_end_time_s interval: seconds measured end to end: the geometric mean of the runs
    end_to_end_measurements int64: number of end-to-end runs, each in its own process, that are
        averaged
    end_to_end_disagreeing_s float64[]: seconds of each of them, if they differ by more than
        run-to-run variation explains
    end_to_end_disturbed_s float64[]: seconds of further ones that are left out: they are flagged
        `disturbed`, and others are not
    end_to_end_flags string[]: flags of the end-to-end measurement
    differing_calls string[]: kernels that the model launched more (+) or less (-) often than the
        estimate assumes
    time_relative_error interval: estimate / end-to-end - 1
    time_reason string: why there is no estimate or no end-to-end measurement
    operators_time_s float64: the operators' part of the estimate
    overhead_time_s float64: call overhead of all calls: a part of the estimate, and known without
        it where only operators are not measured; null on a GPU
    idle_time_s float64: the part of the estimate in which the GPU waits for its host; null on a
        processor
    host_bound_share float64: `idle_time_s` / `estimate_time_s`
    host_time_s float64: estimated seconds in which the host launches an iteration, call overhead
        included; null on a processor
    end_to_end_host_time_s float64: seconds in which the host launches the model end to end: the
        host's part of the estimate, if not null
    overhead_disturbed bool: whether interference lasted for the whole measurement of call overhead
    in_context_time_s interval: seconds of the operators inside the running model, views left out
    between_calls_time_s float64: `end_to_end_time_s` - `in_context_time_s`: seconds of the model
        outside its operators; on a GPU, those in which it waits
    clocked_time_s float64: seconds of the model with a clock around each call, which gave the time
        in context
    largest_share_difference float64: the largest difference, of all operators and of what is
        between calls, between the share in the estimated time and that in the running model
    in_context_reason string: why the time in context is null
    estimate_energy_j interval: estimated gross joules of an iteration
    end_to_end_energy_j interval: gross joules measured end to end
    energy_relative_error interval: estimate / end-to-end - 1
    energy_reason string: why there is no estimate or no end-to-end measurement
    partial_time_s float64: seconds of the measured operators
    predicted_tuples int64: tuples without a result whose cost is predicted
    predicted_share float64: share of the operators' time that is predicted
    time_prediction_ratio interval: 1, in the interval of estimated over actual time, as far as
        predictions are off
    coverage_flops float64: share of FLOPs that measured operators account for
    """,
    *(
        f"""
        estimate_{phase}_time_s interval: estimated seconds of {what} of a training step, in the
            interval of its measurement; null for inference
        end_to_end_{phase}_time_s interval: seconds of {what}, measured in the whole step
        """
        for phase, what in _COMPARED_PHASES.items()
    ),
    """
    calls int64: calls that launch kernels
    cold_calls int64: calls whose code is cold, and is not in their operators' benchmarks; null on a
        GPU
    view_calls int64: calls that move no data
    tuples int64: distinct operator tuples that launch kernels
    measured_tuples int64: tuples with a result
    failed_tuples int64: tuples whose measurement failed
    flag_counts counts: flag -> number of tuples with it
    disturbed_runs int64: disturbed runs of the tuples, left out
    disturbed_share float64: fraction of the measured operators' time that is flagged `disturbed`
    flops int64: FLOPs of all calls; null if those of an operator are unknown
    parameters int64: number of parameters of the model
    activation_peak_bytes int64: the most bytes that live at once of what an iteration makes:
        activations, gradients and temporaries, without weights, optimizer state, inputs and
        kernels' workspaces
    weights_read_again float64: fraction of the bytes of weights that calls read after other calls
        of the same pass, which may have left them in a cache; null for training, and if unknown
    inputs string: shapes of the inputs, and their dtypes if not the model's
    dtype string: dtypes of the parameters, in their order, and of autocast if any
    batch_size int64: samples of an iteration: the first size of the inputs, or the length of their
        list; null if the inputs differ in it
    """,
    *(
        f"""
        {quantity.measurement_half} float64: half of the 95 % interval of
            `{quantity.of("estimate").value}`, relative, as far as measurement explains it
        {quantity.model_error_half} float64: half of the 95 % interval of the model error, relative,
            which the interval of `{quantity.of("estimate").value}` includes; null if no other model
            was measured end to end
        """
        for quantity in (TIME, ENERGY)
    ),
    """
    model_error_models int64: number of other models that the model error is from
    energy_gain_uncertainty float64: relative uncertainty of the sensor's gain, which all joules and
        watts of the target have in common and no interval holds; null if there are none, or if it
        is unknown
    requested_half_width float64: relative half-width that the study's `precision` requests of each
        model's time, as a sum, without the model error, and as a whole; null if it requests none
    time_run_sd float64: relative standard deviation of runs of an operator on the target, which the
        intervals of this table include
    provenance_differences string: provenance in which the added rows differ, such as the kernel
    cache_state string: cache state of the operands: `model`, `cold` or `warm`
    operation string: `burst` or `sustained`; null in rows of earlier versions
    device_name string: product name of the device
    torch_version string: version of PyTorch
    protocol_version int64: version of the measurement protocol
    """,
)
"""What is known of a model on a target, in memory; a file holds it as answers."""

ANSWERS = _schema(
    "answers",
    """
    model string: the model's name in the study, or the name of a request
    target string: the study's name for a device with its settings
    conditions string: device, PyTorch, cache state and protocol as JSON
    axes string: inputs, dtype and batch size, or the point of a sweep, as JSON
    part string: what of the model: `model`, a phase, `operator:NAME`, `module:PATH`, `tuple:ID`,
        `run:N` or `flag:NAME`; behind an @ stands a phase of training but forward
    source string: how it is known: `estimate`, `end_to_end`, `in_context`, `isolated`, `sweep` or a
        launch mode
    quantity string: what it is, with its unit as a suffix: `time_s`
    value float64: the number; null with a `reason`
    low float64: lower limit of its 95 % interval; null if unknown
    high float64: upper limit of its 95 % interval; null if unknown
    calls int64: calls of the part in an iteration
    reason string: why it, or what follows from it, is unknown
    flags string[]: flags of the end-to-end measurement; differing calls
    """,
)

_COMPARED_COLUMNS = (
    *("model", "target", "inputs", "batch_size", "device_name"),
    *TIME.of("estimate").names,
    *TIME.of("end_to_end").names,
    *TIME.error.names,
    *ENERGY.of("estimate").names,
    *ENERGY.of("end_to_end").names,
    *(ENERGY.error.value, "time_reason", "energy_reason", "coverage_flops", "predicted_share"),
)
COMPARISON = _schema(
    "comparison",
    [
        Column(name, MODEL_COSTS.field(name).type, DESCRIPTIONS["model_costs"][name])
        for name in _COMPARED_COLUMNS
    ],
    "trust string: trust in the breakdown, in a word with its reason",
)

_SHARE = """
    calls int64: number of calls
    tuples int64: distinct operator tuples of these calls
    measured_tuples int64: tuples with a result
    predicted_tuples int64: tuples without a result whose cost is predicted
    time_s float64: seconds of the operators; null if one is unknown
    energy_j float64: joules of the operators; null if one is unknown
    partial_time_s float64: seconds of the known operators; null for views
    partial_energy_j float64: joules of the known operators; null for views
    flops int64: FLOPs of all calls; null if those of an operator are unknown
    bytes int64: minimum bytes moved by all calls
"""

SHARES = _schema(
    "shares",
    _SUBJECT,
    f"""
    operator string: the dispatcher's name
    phase string: {_PHASE}
    launches_kernel bool: false for views, which are counted and not measured
    """,
    _SHARE,
)

MODULES = _schema(
    "modules",
    _SUBJECT,
    f"""
    module_path string: path such as `layer1.0.conv1`; empty for the model itself
    module_class string: class of the module, such as `Conv2d`
    phase string: {_PHASE}
    first_call int64: position of its first call among the model's, from 0
    tuple_ids string[]: the operator tuples of these calls
    tuple_calls int64[]: number of calls of each of `tuple_ids`
    """,
    _SHARE,
    """
    overhead_time_s float64: call overhead of these calls and of the views; null on a GPU, and where
        it is unknown
    in_context_time_s float64: seconds of these calls and of the views inside the running model;
        null if unknown
    """,
)

IN_CONTEXT = _schema(
    "in_context",
    _SUBJECT,
    """
    tuple_id string: as in the database
    operator string: the dispatcher's name
    description string: readable form of the operator tuple
    calls int64: number of calls in one iteration of the model
    isolated_time_s interval: seconds of one isolated call, as in the database
    in_context_time_s interval: seconds of one call inside the running model, in the mean over its
        calls
    time_in_context_ratio interval: `in_context_time_s` / `isolated_time_s`
    added_time_s float64: seconds that all its calls take more in context than isolated
    """,
)

LAUNCHES = _schema(
    "launches",
    _SUBJECT,
    f"""
    launch_mode string: how the model is run: `{EAGER}`; {FURTHER_MODES_TEXT}
    """,
    *(
        f"""
        {quantity.value} interval: measured {what} of an iteration; null if it failed
        {quantity.of("estimate").value} interval: estimated {what}: of `eager` as in the comparison,
            of others the sum over the operators
        {quantity.error} interval: estimate / measured - 1
        """
        for quantity, what in _UNITS.items()
    ),
    """
    reason string: why there is no measurement or no estimate of time
    flags string[]: flags of the measurement
    """,
)

_TOKENS = {
    "": "all tokens of a request, of a whole batch",
    "_prefill": "the prefill of the prompt, which makes the first new token",
    "_token": "a step of decoding, for a further token: the mean over all steps",
}

REQUESTS = _schema(
    "requests",
    f"""
    model string: the name of the generation's model config
    target string: {TARGET.meaning}
    batch_size int64: number of sequences
    prompt_tokens int64: tokens of each prompt
    new_tokens int64: tokens that are generated for each sequence
    interpolation string: at how many cached tokens steps are measured, and how far off the
        interpolated time of others may be; null if all are measured
    """,
    *(
        text
        for quantity, unit in _UNITS.items()
        for text in (
            *(
                f"""
                {quantity.of(f"estimate{part}").value} interval: estimated {unit} of {what}
                {quantity.of(f"end_to_end{part}").value} interval: {unit} of {what}, from
                    measurements of whole steps
                """
                for part, what in _TOKENS.items()
            ),
            f"""
            {quantity.error} interval: estimate / end-to-end - 1, without interpolation
            {quantity}_reason string: why there is no estimate or no end-to-end measurement
            """,
        )
    ),
    """
    flops int64: FLOPs of a request; null if those of one tuple are unknown
    overhead_time_s float64: call overhead of all calls, a part of `estimate_time_s`
    idle_time_s float64: the part in which the GPU waits for its host
    """,
)

SWEEPS = _schema(
    "sweeps",
    """
    sweep string: the name of the model config that has the axes, or of a model without, whose
        target has some
    """,
    _SUBJECT,
    """
    point string: the value of each axis of the model, as JSON
    target_point string: the value of each axis of the target, as JSON
    batch_size int64: samples of an iteration; null if unknown
    tuple_id string: that of an operator without a model; null for a model
    flops int64: FLOPs of an iteration, or of that operator; null if unknown
    bytes int64: minimum bytes moved by that operator
    flags string[]: of that operator, or else of the model end to end; null if this was not measured
    estimated string[]: which of `time` and `energy` are estimates
    least string[]: which of `time`, `energy`, `edp` and `ed2p` of a sample are the least among the
        points that differ from this one in the batch size and the axes of targets alone
    within_noise string[]: which of them noise does not separate from the least: the 95 % interval
        of their ratio includes 1
    """,
    *(
        f"""
        {quantity.value} interval: {unit} of an iteration: measured end to end, or else the sum over
            its operators; of an operator without a model, its own
        {quantity}_reason string: why the {quantity} is null
        """
        for quantity, unit in _UNITS.items()
    ),
    """
    samples_per_s float64: samples per second; null if the batch size is unknown
    sample_energy_j float64: gross joules of a sample, or else of an iteration or call
    sample_edp_js float64: that energy times the time
    sample_ed2p_js2 float64: that energy times the time squared
    """,
)

EXPLANATION = _schema(
    "explanation",
    """
    model string: name of the model
    target string: target of the database
    conditions_id string: as in a merged database; null for other databases
    device_name string: product name of the device
    tuple_id string: as in the database
    operator string: the dispatcher's name
    description string: readable form of the operator tuple
    calls int64: number of calls in one iteration of the model
    flops int64: FLOPs of one call; null if unknown
    bytes int64: minimum bytes moved by one call
    status string: as in the database, or `missing`
    error string: why there is no result
    time_s interval: seconds of one call
    energy_j interval: gross joules of one call
    energy_reason string: why energy is null
    all_calls_time_s float64: seconds of all calls, without call overhead
    all_calls_energy_j float64: gross joules of all calls
    converged bool: as in the database
    flags string[]: as in the database
    """,
)

EXTRACTION = _schema(
    "extraction",
    """
    model string: the model's name in the study
    family string: torchvision's family of models; null for a factory's model
    inputs string: shapes of the inputs
    definition_json string: definition of the model as JSON
    extracted bool: whether the model could be extracted
    reason string: why extraction failed; the columns below are then null
    calls int64: calls that launch kernels
    view_calls int64: calls that move no data
    tuples int64: distinct operator tuples that launch kernels
    view_tuples int64: distinct operator tuples of views
    shared_tuples int64: tuples that another model of the study also has
    value_dependent_tuples int64: tuples that do not occur with another seed of weights and inputs
    flops int64: FLOPs of all calls; null if those of an operator are unknown
    parameters int64: number of parameters of the model
    activation_peak_bytes int64: the most bytes that live at once of what an iteration makes:
        activations, gradients and temporaries, without weights, optimizer state, inputs and
        kernels' workspaces
    extraction_s float64: seconds of extraction, without starting its process
    torch_version string: version of PyTorch
    """,
)

DIFFERENCE = _schema(
    "difference",
    """
    tuple_id string: as in the database
    operator string: the dispatcher's name
    description string: readable form of the operator tuple
    target_before string: the target in the first database
    target_after string: the target in the second database
    status_before string: status of the first row; null if there is none
    status_after string: status of the second row; null if there is none
    flags_before string[]: flags of the first row
    flags_after string[]: flags of the second row
    """,
    *(
        f"""
        {quantity.at("before")} float64: {what} per iteration, before
        {quantity.at("after")} float64: {what} per iteration, after
        {quantity}_ratio interval: after / before; null if one is missing
        {quantity}_deviation float64: ratio divided by the common change
        {quantity}_p float64: p-value of the deviation under no change
        {quantity}_adjusted_p float64: the p-value adjusted for the false discovery rate (Benjamini
            and Hochberg)
        {quantity}_changed bool: whether the adjusted p-value is below the level
        """
        for quantity, what in _UNITS.items()
    ),
)
