"""What is written as Parquet is whole, typed, versioned, and refused when it is not ours."""

import csv
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.station import open_station
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.measuring.target_identity import TargetFiles
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows import records, schemas
from opcost.rows.flags import ABOVE_ROOF
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

from tests.stations import station_of

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def relu():
    spec = TensorSpec((4, 4), "float32")
    operator_tuple = OperatorTuple("aten.relu.default", (("self", spec),))
    return TupleRecord(operator_tuple, (spec,), True, 0, 128)


def test_a_subject_is_measured_once(relu, cpu, watch, conditions):
    class Counted(OperatorSubject):
        set_ups = 0

        def set_up(self, station):
            type(self).set_ups += 1
            return super().set_up(station)

    assert measure(Counted(relu), station_of(cpu, conditions, watch))["status"] == "ok"
    assert Counted.set_ups == 1


def test_a_measurement_fills_the_columns_that_others_rely_on(
    relu, cpu, watch, conditions, tmp_path
):
    row = measure(OperatorSubject(relu), station_of(cpu, conditions, watch))
    records.write(tmp_path / "row.parquet", schemas.OPERATOR, [row])
    [again] = records.read(tmp_path / "row.parquet", schemas.OPERATOR).to_pylist()
    assert again["tuple_id"] == relu.operator_tuple.tuple_id
    assert again["operator"] == "aten.relu.default"
    assert again["canonical_json"] == relu.operator_tuple.canonical_json
    assert (again["target"], again["status"], again["error"]) == ("local", "ok", None)
    assert 0 < again["time_ci_low_s"] <= again["time_s"] <= again["time_ci_high_s"]
    batches = again["block_time_s"]
    counted = list(itertools.compress(batches, again["block_undisturbed"]))
    if len(counted) < conditions.measurement.min_batches:
        counted = batches
    assert again["time_s"] == pytest.approx(statistics.median(counted))
    # Whether this machine lets its energy counters be read or not:
    assert (again["energy_j"] is None) == (again["energy_reason"] is not None)
    assert (again["flops"], again["bytes"]) == (0, 128)
    assert isinstance(again["converged"], bool)
    assert again["stop_reason"] in ("converged", "time_budget")
    assert isinstance(again["flags"], list)
    assert again["quiet_sentinel_time_s"] > 0
    for column in ("device_name", "torch_version", "python_version", "os", "measured_at"):
        assert again[column]


def test_a_cold_operator_rotates_through_more_than_the_cache(relu, cpu, cold_conditions, watch):
    row = measure(OperatorSubject(relu), station_of(cpu, cold_conditions, watch))
    assert row["operand_sets"] > 1000
    # 16 values in a slot of 512 bytes: too many sets would be needed to outgrow a large cache.
    within = row["footprint_bytes"] < cpu.last_level_cache_bytes
    assert ("footprint_within_cache" in row["flags"]) == within


def test_as_inside_a_model_only_what_the_model_holds_comes_from_memory(cpu, watch, conditions):
    image, weight = TensorSpec((1, 2048), "float32"), TensorSpec((256, 2048), "float32")
    linear = OperatorTuple("aten.linear.default", (("input", image), ("weight", weight)))
    record = TupleRecord(linear, (TensorSpec((1, 256), "float32"),), True, 0, 0, ("weight",))
    settings = dataclasses.replace(conditions.measurement, cache_state="model")
    as_model = dataclasses.replace(conditions, measurement=settings)
    row = measure(OperatorSubject(record), station_of(cpu, as_model, watch))
    assert row["parameters"] == ["weight"]
    assert row["footprint_bytes"] > 3 * cpu.last_level_cache_bytes
    assert row["operand_sets"] >= 3 * cpu.last_level_cache_bytes / (256 * 2048 * 4)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"outputs": (TensorSpec((9,), "float32"),)}, "error", "the replayed call returned [4x4]"),
        (
            {"operator_tuple": OperatorTuple("aten.gone.default", ())},
            "unsupported",
            "does not exist in torch",
        ),
        (
            {
                "operator_tuple": OperatorTuple(
                    "aten.relu.default", (("self", TensorSpec((2**45,), "float32")),)
                )
            },
            "out_of_memory",
            "the arguments need 134217728 MiB",
        ),
        (
            {
                "operator_tuple": OperatorTuple(
                    "aten.mm.default",
                    (("mat2", TensorSpec((3, 3), "int64")), ("self", TensorSpec((4,), "int64"))),
                )
            },
            "error",
            "self must be a matrix",
        ),
    ],
    ids=["mismatch", "unknown operator", "memory", "raises"],
)
def test_a_failure_is_a_row(relu, cpu, watch, conditions, tmp_path, change, status, message):
    row = measure(
        OperatorSubject(dataclasses.replace(relu, **change)), station_of(cpu, conditions, watch)
    )
    assert row["status"] == status
    assert message in row["error"]
    assert row.get("time_s") is None
    assert row["device_name"]
    records.write(tmp_path / "row.parquet", schemas.OPERATOR, [row])


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"schema_version": 0}', "schema version 0; this opcost reads"), ("{", "is not valid JSON")],
)
def test_a_sensor_file_that_cannot_be_read_fails_no_row_but_the_job(
    cpu, watch, conditions, tmp_path, monkeypatch, content, message
):
    sensor = tmp_path / "sensor.json"
    sensor.write_text(content)
    monkeypatch.setattr("opcost.measuring.station.expected_device", lambda *_: (cpu, watch))
    files = TargetFiles("local", conditions, tmp_path / "device.json", sensor)
    with pytest.raises(OpcostError, match=f"{message}.*delete it and run again"):
        open_station(files)


def test_a_model_that_cannot_run_is_a_row(cpu, conditions, watch):
    definition = ModelDefinition("net", (InputSpec((1, 9)),), factory="torch.nn:Identity")
    assert measure(ModelSubject(definition), station_of(cpu, conditions, watch))["status"] == "ok"
    wrong = dataclasses.replace(
        definition, factory="torch.nn:Linear", arguments={"in_features": 3, "out_features": 2}
    )
    row = measure(ModelSubject(wrong), station_of(cpu, conditions, watch))
    assert row["status"] == "error"
    assert "mat1 and mat2 shapes cannot be multiplied" in row["error"]


@pytest.mark.parametrize(("cache_state", "copies"), [("warm", False), ("model", True)])
def test_a_models_weights_come_from_where_its_operators_weights_do(
    cpu, watch, conditions, cache_state, copies
):
    half_of_the_cache = cpu.last_level_cache_bytes // 2
    arguments = {"in_features": 2048, "out_features": half_of_the_cache // (4 * 2048)}
    definition = ModelDefinition(
        "net", (InputSpec((1, 2048)),), factory="torch.nn:Linear", arguments=arguments
    )
    settings = dataclasses.replace(conditions.measurement, cache_state=cache_state)
    row = measure(ModelSubject(definition), station_of(cpu, settings, watch))
    assert row["status"] == "ok"
    assert (row["footprint_bytes"] > cpu.last_level_cache_bytes) == copies
    assert (row["operand_sets"] > 1) == copies


def test_a_model_whose_output_is_not_finite_is_flagged(cpu, conditions, watch):
    definition = ModelDefinition(
        "net",
        (InputSpec((4,)),),
        factory="torch.nn:Threshold",
        arguments={"threshold": 100.0, "value": float("inf")},
    )
    assert (
        "degenerate_values"
        in measure(ModelSubject(definition), station_of(cpu, conditions, watch))["flags"]
    )


@pytest.mark.parametrize(("flops_per_s", "is_flagged"), [(1e9, False), (3e12, True)])
def test_more_flops_a_second_than_a_core_computes_are_flagged(
    relu, cpu, conditions, watch, flops_per_s, is_flagged
):
    """3 TFLOP/s on one core were those of a gradient whose groups were not counted."""
    station = station_of(cpu, conditions, watch)
    time_s = measure(OperatorSubject(relu), station)["time_s"]
    counted = dataclasses.replace(relu, flops=round(flops_per_s * torch.get_num_threads() * time_s))
    assert (ABOVE_ROOF in measure(OperatorSubject(counted), station)["flags"]) == is_flagged


def test_a_column_that_the_schema_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not in the schema: \\['speed'\\]"):
        records.write(tmp_path / "row.parquet", schemas.OPERATOR, [{"speed": 1}])
    assert list(tmp_path.iterdir()) == []


def test_a_table_beside_its_csv_says_the_same(tmp_path):
    flags = {"drifting": 2, "disturbed": 1}
    row = {
        "model": "one",
        "tuples": 3,
        "time_run_sd": 0.1,
        "end_to_end_flags": [],
        "flag_counts": flags,
    }
    records.write_with_csv(tmp_path / "table.parquet", schemas.MODEL_COSTS, [row])
    (table,) = records.read(tmp_path / "table.parquet", schemas.MODEL_COSTS).to_pylist()
    with (tmp_path / "table.csv").open(newline="") as file:
        (text,) = csv.DictReader(file)
    assert text.keys() == table.keys()
    assert (text["model"], text["tuples"], text["time_run_sd"]) == ("one", "3", "0.1")
    assert (text["end_to_end_flags"], json.loads(text["flag_counts"])) == ("[]", flags)
    assert text["target"] == ""


def test_a_table_is_made_without_pandas_which_still_reads_it():
    code = """
import sys
from opcost.arrow import skip_pandas_import
import pyarrow as pa
skip_pandas_import()
table = pa.table({"a": [1, None]})
print("pandas" in sys.modules, table.to_pandas().a.sum(), "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False 1.0 True\n"


def test_some_columns_are_read_alone(tmp_path):
    records.write(tmp_path / "row.parquet", schemas.MODEL, [{"model": "net", "status": "error"}])
    table = records.read(tmp_path / "row.parquet", schemas.MODEL, ["status", "model"])
    assert table.to_pylist() == [{"status": "error", "model": "net"}]


def with_metadata(path, **changes):
    table = pq.read_table(path)
    metadata = {
        **table.schema.metadata,
        **{f"opcost.{k}".encode(): str(v).encode() for k, v in changes.items()},
    }
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "is not a readable Parquet file"),
        (lambda path: path.write_bytes(b""), "is not a readable Parquet file"),
        (lambda path: with_metadata(path, schema_version=0), "opcost.schema_version 0"),
        (lambda path: with_metadata(path, record="operator"), "opcost.record operator"),
        (lambda path: pq.write_table(pa.table({"x": [1]}), path), "opcost.record none"),
    ],
    ids=["truncated", "empty", "no version", "other record", "foreign"],
)
def test_a_file_that_is_not_ours_is_refused_with_the_remedy(tmp_path, damage, message):
    path = tmp_path / "row.parquet"
    records.write(path, schemas.MODEL, [{"model": "net"}])
    damage(path)
    with pytest.raises(OpcostError) as caught:
        records.read(path, schemas.MODEL)
    assert message in str(caught.value)
    assert f"delete {path} and run again" in str(caught.value)


@pytest.mark.parametrize("schema", [schemas.MODEL, schemas.COMPARISON])
def test_a_file_of_another_version_is_named_as_such(tmp_path, schema):
    path = tmp_path / "row.parquet"
    records.write(path, schema, [{"model": "net"}])
    for version in (schemas.SCHEMA_VERSION - 1, schemas.SCHEMA_VERSION + 1):
        with_metadata(path, schema_version=version)
        with pytest.raises(OpcostError, match="another version of opcost or another program"):
            records.read(path, schema)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append_column("moon", pa.array(["full"])),
        lambda table: table.append_column("status", pa.array(["ok"])),
        lambda table: table.drop_columns(["worker"]),
        lambda table: table.set_column(0, "model", pa.array([1])),
    ],
    ids=["another column", "a column twice", "a column less", "another type"],
)
def test_a_file_with_other_columns_than_its_version_has_is_damaged(tmp_path, change):
    path = tmp_path / "row.parquet"
    records.write(path, schemas.MODEL, [{"model": "net"}])
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(OpcostError, match="does not have the columns of its schema version"):
        records.read(path, schemas.MODEL)
