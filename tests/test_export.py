"""An exported database holds every value of the Parquet file, whole or not at all."""

import csv
import json
import resource
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases.database import REFERENCE
from opcost.databases.merging import merge
from opcost.errors import OpcostError
from opcost.queries.export import FORMATS, export
from opcost.queries.feature_table import export_features
from opcost.rows import records, schemas
from opcost.tuples.parsing import parse

ROWS = [
    {
        "tuple_id": "0" * 16,
        "operator": "aten.relu.default",
        "description": 'relu(2x3), "quoted"\nand in two lines',
        "target": "local",
        "status": "ok",
        "time_s": 1.5e-6,
        "flops": 2**40,
        "tf32": False,
        "block_time_s": [1e-6, 2e-6],
        "block_undisturbed": [True, False],
        "flags": [],
        "meter_missing": [("clock", "no sensor")],
        "measured_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    },
    {"tuple_id": "1" * 16, "target": "local", "status": "timeout", "error": "gave up"},
]


@pytest.fixture
def path(tmp_path):
    records.write(tmp_path / "database.parquet", schemas.DATABASE, ROWS)
    return tmp_path / "database.parquet"


def test_csv_has_lists_as_json_and_nothing_for_null(path, tmp_path):
    assert export(path, tmp_path / "out.csv") == 2
    with (tmp_path / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first) == schemas.DATABASE.names
    assert float(first["time_s"]) == 1.5e-6
    assert first["description"] == ROWS[0]["description"]
    assert json.loads(first["block_time_s"]) == [1e-6, 2e-6]
    assert json.loads(first["block_undisturbed"]) == [True, False]
    assert json.loads(first["meter_missing"]) == {"clock": "no sensor"}
    assert first["measured_at"] == "2026-01-02T03:04:05+00:00"
    assert (second["time_s"], second["flags"], second["error"]) == ("", "", "gave up")


@pytest.mark.parametrize("ending", ["sqlite", "db"])
def test_sqlite_can_be_asked_in_sql(path, tmp_path, ending):
    export(path, tmp_path / f"out.{ending}")
    connection = sqlite3.connect(tmp_path / f"out.{ending}")
    assert connection.execute(
        "SELECT time_s, flops, tf32, typeof(energy_j), json_extract(block_time_s, '$[1]')"
        "FROM operators WHERE status = 'ok'"
    ).fetchall() == [(1.5e-6, 2**40, 0, "null", 2e-6)]
    assert connection.execute("SELECT count(*) FROM operators").fetchone() == (2,)
    meanings = connection.execute(
        "SELECT column_name, description FROM column_descriptions"
    ).fetchall()
    assert dict(meanings) == schemas.DESCRIPTIONS["database"]
    connection.close()


def test_duckdb_has_lists_and_maps_as_they_are(path, tmp_path):
    export(path, tmp_path / "out.duckdb")
    with duckdb.connect(str(tmp_path / "out.duckdb"), read_only=True) as connection:
        rows = connection.sql("FROM operators ORDER BY tuple_id").to_arrow_table().to_pylist()
        assert rows == records.read(path, schemas.DATABASE).to_pylist()
        times = connection.execute("SELECT list_max(block_time_s) FROM operators").fetchall()
        assert (2e-6,) in times
        [(columns,)] = connection.execute("SELECT count(*) FROM column_descriptions").fetchall()
        assert columns == len(schemas.DATABASE)


def test_a_merged_database_keeps_what_merging_added(path, tmp_path):
    merge([path], tmp_path / "merged.parquet")
    export(tmp_path / "merged.parquet", tmp_path / "out.sqlite")
    connection = sqlite3.connect(tmp_path / "out.sqlite")
    [(sources,), _] = connection.execute("SELECT sources FROM operators").fetchall()
    assert len(json.loads(sources)) == 1
    connection.close()


@pytest.mark.parametrize("ending", FORMATS)
def test_an_export_is_whole_or_not_at_all(path, tmp_path, ending):
    output = tmp_path / f"out{ending}"
    output.write_text("an older export")
    bad = tmp_path / "bad.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 0xFF  # a byte of the values
    bad.write_bytes(content)
    with pytest.raises(OpcostError, match=r"bad\.parquet"):
        export(bad, output)
    assert output.read_text() == "an older export"
    assert {each.name for each in tmp_path.iterdir()} == {path.name, bad.name, output.name}


@pytest.fixture
def full_disk():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_disk_that_is_full_is_said_to_be_and_nothing_is_left(path, tmp_path, ending, full_disk):
    output = tmp_path / "folder" / f"out{ending}"
    answer = CliRunner().invoke(main, ["export", str(path), str(output)])
    assert answer.exit_code == 1
    assert f"{output.parent}" in answer.stderr
    assert "free some space" in answer.stderr
    assert list(output.parent.iterdir()) == []


def test_a_signal_that_ends_a_writing_process_leaves_no_file(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom opcost.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n    print('ready', flush=True)\n    time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", FORMATS)
def test_large_databases_are_exported_piece_by_piece(tmp_path, ending):
    batch = pa.Table.from_pylist(
        [{"tuple_id": f"{number:016x}", "flags": [], "status": "error"} for number in range(1200)]
    )
    columns = [
        batch[field.name].cast(field.type)
        if field.name in batch.column_names
        else pa.nulls(1200, field.type)
        for field in schemas.DATABASE
    ]
    table = pa.table(columns, schema=schemas.DATABASE)
    records.write_batches(tmp_path / "database.parquet", schemas.DATABASE, table.to_batches())
    assert export(tmp_path / "database.parquet", tmp_path / f"out{ending}") == 1200


@pytest.mark.parametrize("name", ["out.xlsx", "out"])
def test_another_ending_is_an_error_that_names_the_known_ones(path, tmp_path, name):
    with pytest.raises(OpcostError, match=r"\.csv, \.sqlite, \.db, \.duckdb"):
        export(path, tmp_path / name)


def test_one_command_exports_and_says_how_much(path, tmp_path):
    completed = CliRunner().invoke(main, ["export", str(path), str(tmp_path / "out.csv")])
    assert (completed.exit_code, completed.stdout) == (0, f"2 rows in {tmp_path / 'out.csv'}\n")
    completed = CliRunner().invoke(main, ["export", str(path), "out.xlsx"])
    assert completed.exit_code == 1
    assert "selects the format" in completed.stderr


def tuple_row(text, **measured):
    """A row of the tuple with this description."""
    call = parse(text)
    return {
        "tuple_id": call.tuple_id,
        "operator": call.operator,
        "canonical_json": call.canonical_json,
        "description": str(call),
        "target": "local",
        "status": "ok",
        "flags": [],
        **measured,
    }


@pytest.fixture
def features(tmp_path):
    """The table of three tuples, by operator."""
    rows = [
        tuple_row("linear(8x16, 4x16)", flops=1024, bytes=512, time_s=2e-6, flags=["disturbed"]),
        tuple_row("cat([2x3,2x3], dim=1)", flops=None, bytes=96, time_s=1e-6),
        tuple_row("relu(8x16)", status="error", error="gave up", flops=0, bytes=1024),
    ]
    records.write(tmp_path / "database.parquet", schemas.DATABASE, rows)
    assert export_features(tmp_path / "database.parquet", tmp_path / "out.parquet") == 3
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    return {row["operator"].split(".")[1]: row for row in table}


def test_features_have_a_column_for_each_argument_and_dimension(features):
    linear, cat = features["linear"], features["cat"]
    assert [linear[f"input_{n}"] for n in range(2)] == [8, 16]
    assert [linear[f"weight_{n}"] for n in range(2)] == [4, 16]
    assert (cat["tensors_count"], cat["tensors_elements"], cat["input_0"]) == (2, 12, None)
    assert (cat["dtype"], json.loads(cat["arguments"])) == ("float32", {"dim": 1})
    assert linear["form"] == "aten.linear.default input:2 weight:2"
    assert (linear["intensity_flops_per_byte"], linear["flags"]) == (2.0, ["disturbed"])


def test_features_that_nobody_knows_are_null_with_the_reason(features):
    failed = features["relu"]
    assert (failed["status"], failed["error"], failed["time_s"]) == ("error", "gave up", None)
    assert failed["intensity_flops_per_byte"] == 0
    assert features["cat"]["intensity_flops_per_byte"] is None
    assert features["cat"]["models"] is None


def test_features_name_the_models_that_call_a_tuple_also_of_a_merged_database(tmp_path):
    merge(sorted(REFERENCE.glob("h*.parquet")), tmp_path / "merged.parquet")
    command = ["export", "--features", str(tmp_path / "merged.parquet"), str(tmp_path / "out.csv")]
    assert CliRunner().invoke(main, command).exit_code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["target"] for row in rows if "resnet50_b32" in row["models"]} == {"h100", "h200"}
    assert [row["models"] for row in rows if row["description"].startswith("mean(8x512")] == ["[]"]


@pytest.mark.parametrize("name", ["out.sqlite", "trace.json"])
def test_features_in_another_format_are_an_error_that_names_the_two(path, tmp_path, name):
    command = ["export", "--features", str(path), str(tmp_path / name)]
    answer = CliRunner().invoke(main, command)
    assert answer.exit_code == 1
    assert "name an output that ends in .csv or .parquet" in answer.stderr
