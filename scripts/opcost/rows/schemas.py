"""Everything that is written as Parquet: for each kind of record its columns, with their meanings.

SCHEMA_VERSION is bumped when a column changes its name, type or meaning, and VERSIONS says what
changed. docs/reference/columns.md is made from this file.
"""

from collections.abc import Iterable

import pyarrow as pa

from opcost.rows.column import Column, Role, in_role
from opcost.rows.columns import MEASUREMENT, OVERHEAD, TARGET

SCHEMA_VERSION = 8

VERSIONS = {
    1: "The first.",
    2: "Columns for how power was measured, the state of the device, and repeats.",
    3: "`call_overhead_s`, `displaced_call_overhead_s` and `view_call_overhead_s` replace "
    "`between_calls_s`; `overhead_time_s`, `displaced_calls` and `spread` in the comparison; "
    "`core_cache_bytes`.",
    4: "`worker`, `cores`, `started_at`, `ended_at` and `device_time_s`; rows of failed "
    "measurements hold `quiet_sentinel_time_s`.",
    5: "What calls cost on a target stands in its operators' rows, no longer in its models'; "
    "`spread` in the database; `modules` is new.",
    6: "`overhead_disturbed`; the intervals of what calls cost are over processes; "
    "`reference_measurements`: a reference is the mean over these.",
    7: "What calls cost stands in the database alone: measured when a study begins and ends.",
    8: "Each column has a role; columns come in the order of roles. New: `schema_version`, "
    "`workflow_commit`, `machine_id_hash`, `thread_library`, `ecc_enabled`, `persistence_mode`, "
    "`performance_state`, `memory_used_bytes`, `sm_clock_target_mhz`, `memory_clock_target_mhz`.",
}
"""Schema version -> what it changed."""

DESCRIPTIONS: dict[str, dict[str, str]] = {}
"""Record -> column -> what it means."""

_Plain = tuple[str, pa.DataType, str]
"""A column without a role: tables that are made of rows need none."""


def _schema(record: str, columns: Iterable[Column | _Plain]) -> pa.Schema:
    listed = [Column(*column) for column in columns]
    DESCRIPTIONS[record] = {column.name: column.meaning for column in listed}
    return pa.schema(
        [(column.name, column.type) for column in listed],
        metadata={"opcost.record": record, "opcost.schema_version": str(SCHEMA_VERSION)},
    )


def _with_interval(name: str, unit: str, description: str) -> list[_Plain]:
    return [
        (f"{name}{unit}", pa.float64(), description),
        (f"{name}_ci_low{unit}", pa.float64(), "lower limit of its 95 % interval"),
        (f"{name}_ci_high{unit}", pa.float64(), "upper limit of its 95 % interval"),
    ]


_OPERATOR: list[Column] = [
    *in_role(
        Role.IDENTITY,
        [
            ("tuple_id", pa.string(), "the first 16 digits of the SHA-256 of `canonical_json`"),
            ("operator", pa.string(), "as the dispatcher names it: `aten.conv2d.default`"),
            (
                "canonical_json",
                pa.string(),
                "operator, parameters, and shape, type and layout of tensors",
            ),
            ("description", pa.string(), "the same as people write it"),
            ("flops", pa.int64(), "floating-point operations; null where they are not known"),
            ("bytes", pa.int64(), "that must be moved at least: arguments read, results written"),
            (
                "parameters",
                pa.list_(pa.string()),
                "arguments that models hold; others are activations",
            ),
        ],
    ),
    *MEASUREMENT,
]
OPERATOR = _schema("operator", _OPERATOR)

_DATABASE: list[Column] = [
    *_OPERATOR,
    *OVERHEAD,
    Column(
        "spread",
        pa.float64(),
        "relative standard deviation of one measurement among others of the same operator on this "
        "target, from those that the study measured twice; null if fewer than 6",
    ),
]
DATABASE = _schema("database", _DATABASE)

MERGED = _schema(
    "merged",
    [
        *_DATABASE,
        (
            "conditions_id",
            pa.string(),
            "the same for rows that may be added up; null where a row does not say what it ran on",
        ),
        (
            "sources",
            pa.list_(pa.string()),
            "the databases that held the row, by the first 16 digits of the SHA-256 of their files",
        ),
    ],
)

MODEL = _schema(
    "model",
    [
        ("model", pa.string(), "its name in the study"),
        ("definition_json", pa.string(), "what the model is, as JSON"),
        *MEASUREMENT,
    ],
)

COMPARISON = _schema(
    "comparison",
    [
        ("model", pa.string(), "its name in the study"),
        TARGET,
        *_with_interval(
            "estimate_time",
            "_s",
            "seconds of an iteration by the sum over its operators, with the overhead of calls; "
            "null if one is missing",
        ),
        *_with_interval("reference_time", "_s", "seconds of the whole model, measured"),
        (
            "reference_measurements",
            pa.int64(),
            "measurements of the whole model, in processes of their own, whose mean that is",
        ),
        ("reference_converged", pa.bool_(), "whether all their intervals are as narrow as asked"),
        ("reference_flags", pa.list_(pa.string()), "what to know before using the reference"),
        *_with_interval("time_relative_error", "", "estimate / reference - 1"),
        ("time_reason", pa.string(), "why there is no estimate or no reference"),
        ("operators_time_s", pa.float64(), "of the estimate, the operators' own"),
        ("overhead_time_s", pa.float64(), "of the estimate, the overhead of calls"),
        (
            "overhead_disturbed",
            pa.bool_(),
            "whether the device was disturbed all the time in which that was measured",
        ),
        *_with_interval("estimate_energy", "_j", "gross joules of an iteration by the sum"),
        *_with_interval("reference_energy", "_j", "gross joules of the whole model, measured"),
        *_with_interval("energy_relative_error", "", "estimate / reference - 1"),
        ("energy_reason", pa.string(), "why there is no estimate or no reference"),
        ("partial_time_s", pa.float64(), "seconds of the operators that are measured"),
        ("coverage_calls", pa.float64(), "share of the calls that these account for"),
        ("coverage_flops", pa.float64(), "share of the FLOPs that these account for"),
        ("coverage_time", pa.float64(), "`partial_time_s` / `reference_time_s`"),
        ("calls", pa.int64(), "calls that launch kernels"),
        (
            "displaced_calls",
            pa.int64(),
            "of these, calls before which a core's own cache has lost their code; null on a GPU",
        ),
        ("view_calls", pa.int64(), "calls that move no data"),
        ("tuples", pa.int64(), "distinct operator tuples that launch kernels"),
        ("measured_tuples", pa.int64(), "of these, measured"),
        ("failed_tuples", pa.int64(), "of these, failed"),
        ("filtered_tuples", pa.int64(), "of these, not benchmarked by the study's choice"),
        ("unconverged_tuples", pa.int64(), "of these, with a wider interval than asked for"),
        ("flag_counts", pa.map_(pa.string(), pa.int64()), "flag -> how many tuples have it"),
        ("flops", pa.int64(), "of all calls; null where those of an operator are not known"),
        ("parameters", pa.int64(), "of the model"),
        (
            "spread",
            pa.float64(),
            "as in the database; the intervals of this table contain it",
        ),
        (
            "told_differences",
            pa.string(),
            "what the rows differ in that are added up all the same, such as the kernel",
        ),
        ("cache_state", pa.string(), "`model`, `cold` or `warm`"),
        ("device_name", pa.string(), "the device's model"),
        ("torch_version", pa.string(), "of PyTorch"),
        ("protocol_version", pa.int64(), "of the measurement protocol"),
    ],
)

_SHARE: list[_Plain] = [
    ("calls", pa.int64(), "how many"),
    ("tuples", pa.int64(), "distinct operator tuples of these"),
    ("measured_tuples", pa.int64(), "of the tuples, measured"),
    ("time_s", pa.float64(), "seconds of the operators; null where one of them is not measured"),
    ("energy_j", pa.float64(), "joules of the operators; null where one is not measured"),
    ("flops", pa.int64(), "of all calls; null where those of an operator are not known"),
    ("bytes", pa.int64(), "that must be moved at least"),
]

SHARES = _schema(
    "shares",
    [
        ("model", pa.string(), "its name in the study"),
        TARGET,
        ("operator", pa.string(), "as the dispatcher names it"),
        ("launches_kernel", pa.bool_(), "false for views, which are counted and not measured"),
        *_SHARE,
        (
            "share_of_reference_time",
            pa.float64(),
            "share of the time of the whole model, as measured",
        ),
    ],
)

MODULES = _schema(
    "modules",
    [
        ("model", pa.string(), "its name in the study"),
        TARGET,
        ("module_path", pa.string(), "`layer1.0.conv1`; empty for the model itself"),
        ("module_class", pa.string(), "`Conv2d`"),
        *_SHARE,
    ],
)

EXPLANATION = _schema(
    "explanation",
    [
        ("model", pa.string(), "its name"),
        ("target", pa.string(), "of the database"),
        ("conditions_id", pa.string(), "as in a merged database; of others null"),
        ("device_name", pa.string(), "the device's model"),
        ("tuple_id", pa.string(), "as in the database"),
        ("operator", pa.string(), "as the dispatcher names it"),
        ("description", pa.string(), "the tuple as people write it"),
        ("calls", pa.int64(), "in one iteration of the model"),
        ("flops", pa.int64(), "of one call; null where they are not known"),
        ("bytes", pa.int64(), "of one call, that must be moved at least"),
        ("status", pa.string(), "as in the database, or `missing`"),
        ("error", pa.string(), "why there is no result"),
        *_with_interval("time", "_s", "seconds of one call"),
        *_with_interval("energy", "_j", "gross joules of one call"),
        ("energy_reason", pa.string(), "why energy is null"),
        ("converged", pa.bool_(), "as in the database"),
        ("flags", pa.list_(pa.string()), "as in the database"),
    ],
)

EXTRACTION = _schema(
    "extraction",
    [
        ("model", pa.string(), "its name in the study"),
        ("family", pa.string(), "of torchvision, null for a factory's model"),
        ("inputs", pa.string(), "their shapes"),
        ("definition_json", pa.string(), "what the model is, as JSON"),
        ("extracted", pa.bool_(), "whether it could be"),
        ("reason", pa.string(), "why not; then the columns below are null"),
        ("calls", pa.int64(), "calls that launch kernels"),
        ("view_calls", pa.int64(), "calls that move no data"),
        ("tuples", pa.int64(), "distinct operator tuples that launch kernels"),
        ("view_tuples", pa.int64(), "distinct ones of views"),
        ("shared_tuples", pa.int64(), "of the tuples, those that another model has, too"),
        (
            "value_dependent_tuples",
            pa.int64(),
            "of the tuples, those that do not occur with another seed of weights and inputs",
        ),
        ("flops", pa.int64(), "of all calls; null where those of an operator are not known"),
        ("parameters", pa.int64(), "of the model"),
        ("extraction_s", pa.float64(), "seconds, the start of its process left out"),
        ("torch_version", pa.string(), "of PyTorch"),
    ],
)

DIFFERENCE = _schema(
    "difference",
    [
        ("tuple_id", pa.string(), "as in the database"),
        ("operator", pa.string(), "as the dispatcher names it"),
        ("description", pa.string(), "the tuple as people write it"),
        ("target_before", pa.string(), "the target in the first database"),
        ("target_after", pa.string(), "the target in the second database"),
        ("status_before", pa.string(), "of the first row; null where there is none"),
        ("status_after", pa.string(), "of the second row; null where there is none"),
        ("flags_before", pa.list_(pa.string()), "of the first row"),
        ("flags_after", pa.list_(pa.string()), "of the second row"),
        *(
            column
            for name, unit, what in (("time", "s", "seconds"), ("energy", "j", "gross joules"))
            for column in (
                (f"{name}_before_{unit}", pa.float64(), f"{what} per iteration, before"),
                (f"{name}_after_{unit}", pa.float64(), f"{what} per iteration, after"),
                *_with_interval(f"{name}_ratio", "", "after / before; null if one is missing"),
                (f"{name}_deviation", pa.float64(), "the ratio over what operators have in common"),
                (f"{name}_p", pa.float64(), "of the test that the deviation is chance"),
                (f"{name}_adjusted_p", pa.float64(), "the same for all tests together, by Holm"),
                (f"{name}_changed", pa.bool_(), "whether that is within the level asked for"),
            )
        ),
    ],
)
