"""Values that cannot be true are named where rows are read, and never become a number."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.rows.quantities import HOST_TIME, TIME
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

RELU = OperatorTuple("aten.relu.default", (("self", TensorSpec((2,), "float32")),))
CONDITIONS = {
    "target": {"device": "cpu", "threads": 1, "tf32": False},
    "measurement": {"cache_state": "model"},
    "protocol_version": 4,
}
ROW = {
    "tuple_id": RELU.tuple_id,
    "canonical_json": RELU.canonical_json,
    "target": "local",
    "status": "ok",
    "time_s": 1e-3,
    "time_ci_low_s": 0.9e-3,
    "time_ci_high_s": 1.1e-3,
    "host_time_s": 2e-6,
    "host_time_ci_low_s": 2e-6,
    "host_time_ci_high_s": 2e-6,
    "power_w": 100.0,
    "energy_j": 0.1,
    "flags": [],
    "flops": 100,
    "block_time_s": [1e-3, 1.1e-3],
    "utilisation": 0.5,
    "conditions_json": json.dumps(CONDITIONS),
    "cache_state": "model",
    "threads": 1,
    "tf32": False,
    "protocol_version": 4,
}
NEG = OperatorTuple("aten.neg.default", (("self", TensorSpec((2,), "float32")),))
OTHER_TUPLE = {"tuple_id": NEG.tuple_id, "canonical_json": NEG.canonical_json}
FAILED = {"status": "timeout", "power_w": None, "energy_j": None, "flags": None}
FAILED |= dict.fromkeys([*TIME.names, *HOST_TIME.names])


def read(path, row):
    records.write(path, schemas.OPERATOR, [row])
    return records.read(path, schemas.OPERATOR).to_pylist()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "row.parquet"


RESET = {"counter_power_w": -250.0, "power_capped_s": -1.0, "power_sample_time_s": [-1e-3, 0.1]}


@pytest.mark.parametrize("changes", [{}, FAILED, {"energy_j": None, "power_w": None}, RESET])
def test_what_can_be_true_is_read(path, changes):
    assert len(read(path, ROW | changes)) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "bogus"),
        ("time_s", -1.0),
        ("time_s", 1e30),
        ("time_s", None),
        ("time_ci_low_s", 2e-3),
        ("host_time_s", 0.0),
        ("time_ci_high_s", 0.5e-3),
        ("power_w", -3.0),
        ("sm_clock_mhz", -1.0),
        ("block_time_s", [-1e-3]),
        ("energy_j", 1e3),
        ("target", None),
        ("energy_j", 0.0),
        ("flops", -5),
        ("utilisation", 1.5),
        ("block_time_s", [1e-3, math.nan]),
        ("load_average", math.inf),
        ("flags", None),
        ("conditions_json", "{"),
        ("threads", 2),
        ("cache_state", "cold"),
        ("target", "local\nTarget local: forged"),
        ("protocol_version", 3),
        ("tuple_id", "0" * 16),
    ],
)
def test_a_value_that_cannot_be_true_is_named_with_file_and_remedy(path, column, value):
    with pytest.raises(OpcostError) as caught:
        read(path, ROW | {column: value})
    message = str(caught.value)
    assert message.startswith(f"{path} is damaged: {column} of ")
    assert f"delete {path}" in message


@pytest.mark.parametrize(
    ("schema", "first", "second", "contradiction"),
    [
        (schemas.DATABASE, {}, {"time_s": 1.5e-3}, "two rows of local"),
        (schemas.DATABASE, {}, {"flags": ["drifting"]}, "two rows of local"),
        (schemas.MERGED, {}, {"target": "other"}, "two rows of 0123456789abcdef"),
        (schemas.MODEL, {}, {}, "two rows of net"),
        (
            schemas.DATABASE,
            {"call_overhead_s": 1e-6},
            {"call_overhead_s": 2e-6, **OTHER_TUPLE},
            "two call overheads of local",
        ),
        (schemas.DATABASE, {"call_overhead_s": 1e-6}, OTHER_TUPLE, "two call overheads of local"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(path, schema, first, second, contradiction):
    """By each reader, also of columns that do not differ."""
    keys = {"target": "local", "conditions_id": "0123456789abcdef", "model": "net"}
    rows = [{**ROW, **keys, **each} for each in (first, second)]
    held = [{name: row[name] for name in row if name in schema.names} for row in rows]
    records.write(path, schema, held)
    columns = ["status", "call_overhead_s"] if "call_overhead_s" in first else ["status"]
    with pytest.raises(OpcostError, match=contradiction):
        records.read(path, schema, columns)


RUNS = {"run_round": [1, 2], "run_time_s": [1e-3, 1.1e-3]}


def read_of_database(path, row):
    records.write(path, schemas.DATABASE, [row])
    return records.read(path, schemas.DATABASE).to_pylist()


@pytest.mark.parametrize("runs", [[], [None]])
def test_a_time_that_lists_its_runs_has_one(path, runs):
    with pytest.raises(OpcostError, match=r"run_time_s of .*; allowed: a value of at least one"):
        read_of_database(path, ROW | {"run_time_s": runs, "run_round": [1] * len(runs)})


@pytest.mark.parametrize("errors", [None, [0.01, None], [0.0, 0.5]])
def test_a_run_may_have_an_unknown_error(path, errors):
    assert len(read_of_database(path, ROW | RUNS | {"run_time_error": errors})) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("run_time_error", [0.01]),
        ("run_time_error", [0.01, 0.01, None]),
        ("run_blocks", [1]),
        ("run_power_w", [100.0]),
    ],
)
def test_each_run_has_a_value_in_every_list(path, column, values):
    with pytest.raises(OpcostError, match=f"{column} of .*; allowed: a value for each run"):
        read_of_database(path, ROW | RUNS | {column: values})


def test_a_row_with_energy_has_power(path):
    with pytest.raises(OpcostError, match=r"energy_j of .*; allowed: null where power_w is null"):
        read_of_database(path, ROW | {"power_w": None})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("run_time_error", [0.01, -0.01]),
        ("run_time_error", [0.01, 300.0]),
        ("run_time_error", [math.inf, 0.01]),
        ("run_host_time_s", [0.0, 2e-6]),
        ("run_power_w", [100.0, 0.0]),
        ("runs", -1),
        ("disturbed_runs", -1),
    ],
)
def test_a_run_without_a_logarithm_or_below_zero_is_damage(path, column, values):
    with pytest.raises(OpcostError, match=f" is damaged: {column} of "):
        read_of_database(path, ROW | RUNS | {column: values})


def test_energy_with_a_reason_why_there_is_none_is_damage(path):
    with pytest.raises(OpcostError, match=r"energy_j of .*; allowed: null where energy_reason"):
        read(path, ROW | {"energy_reason": "no sensor"})


@pytest.mark.parametrize("column", ["time_s", "host_time_s", "energy_j", "power_w"])
def test_what_failed_has_no_result(path, column):
    with pytest.raises(OpcostError, match=f"damaged: {column}"):
        read(path, ROW | FAILED | {column: 1.0})


@given(
    column=st.sampled_from(
        [field.name for field in schemas.OPERATOR if str(field.type) == "double"]
    ),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_no_column_holds_what_is_no_number(tmp_path_factory, column, value):
    with pytest.raises(OpcostError, match="is damaged"):
        read(tmp_path_factory.mktemp("row") / "row.parquet", ROW | {column: value})
