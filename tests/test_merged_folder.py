"""A merged folder holds what a merged file holds, and is read like any database."""

import json
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases import collection, model_ratios
from opcost.databases.database import read_database
from opcost.databases.merging import merge
from opcost.errors import OpcostError
from opcost.queries.query import Filter, query
from opcost.rows import records, schemas
from opcost.rows.runs import ModelRatio

from tests.test_merging import FAILED, NEWER, OTHER, ROW, database

NAMES = ("NVIDIA H100 80GB HBM3", "../../etc", None)
DEVICES = [
    {"device_uuid_hash": letter * 16, "device_name": name}
    for letter, name in zip("abc", NAMES, strict=True)
]


@pytest.fixture
def labs(tmp_path):
    """Databases of three devices, each of two tuples, and failures without a device."""
    nowhere = {"device_uuid_hash": None, "tuple_id": "2" * 16} | FAILED
    ratios = {"local": [ModelRatio("net", False, 0.02, None, None)]}
    return [
        database(tmp_path / f"{number}.parquet", device, device | OTHER, nowhere, ratios=ratios)
        for number, device in enumerate(DEVICES)
    ]


@pytest.fixture
def folder(labs, tmp_path):
    merge(labs, tmp_path / "merged")
    return tmp_path / "merged"


def sorted_rows(path):
    return sorted(map(repr, read_database(path).to_pylist()))


def files(folder):
    return {path.relative_to(folder): path.stat() for path in folder.rglob("*.parquet")}


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_it_holds_what_a_merged_file_holds(labs, folder, tmp_path):
    merge(labs, tmp_path / "merged.parquet")
    assert sorted_rows(folder) == sorted_rows(tmp_path / "merged.parquet")
    for name in ("opcost.sources", "opcost.model_ratios"):
        in_folder = records.metadata(folder / "_common_metadata")[name]
        assert json.loads(in_folder) == json.loads(
            records.metadata(tmp_path / "merged.parquet")[name]
        )
    assert len(model_ratios.read_ratios(folder)) == len(DEVICES)


def test_each_conditions_id_has_a_file_of_rows_and_one_of_raw_values_in_the_same_order(folder):
    parts = sorted((folder / "rows").glob("*/*/*.parquet"))
    known = [part for part in parts if not part.stem.startswith("unknown")]
    assert {part.parents[1].name for part in known} == {"NVIDIA_H100_80GB_HBM3", "etc", "unknown"}
    for part in known:
        rows = pq.read_table(part, partitioning=None)
        raw = pq.read_table(folder / "raw" / part.relative_to(folder / "rows"), partitioning=None)
        assert {*rows["conditions_id"].to_pylist()} == {part.stem.partition("-")[0]}
        assert rows["tuple_id"].to_pylist() == raw["tuple_id"].to_pylist()
        assert raw["block_time_s"].to_pylist() == [ROW["block_time_s"]] * len(rows)
        assert not {*rows.column_names} & {*schemas.RAW_BLOCKS}


def test_a_later_merge_leaves_the_files_alone_to_which_it_adds_nothing(folder, tmp_path):
    before = files(folder)
    new = database(tmp_path / "new.parquet", DEVICES[0] | NEWER | {"time_s": 2e-3})
    merge([folder, new], folder)
    after = files(folder)
    assert {path.parts[1] for path in before.keys() ^ after.keys()} == {"NVIDIA_H100_80GB_HBM3"}
    for path in before.keys() & after.keys():
        assert before[path].st_ino == after[path].st_ino
    times = [row["time_s"] for row in read_database(folder).to_pylist() if row["time_s"]]
    assert sorted(times) == [1e-3] * 5 + [2e-3]


def test_failures_without_a_device_of_several_merges_are_all_kept(folder, tmp_path):
    nowhere = {"device_uuid_hash": None, "tuple_id": "3" * 16} | FAILED
    merge([folder, database(tmp_path / "new.parquet", nowhere)], folder)
    failed = query([folder], Filter(statuses=["timeout"]), columns=["tuple_id"])
    assert sorted(failed["tuple_id"].to_pylist()) == ["2" * 16, "3" * 16]


def test_merging_a_folder_and_its_databases_again_changes_no_row(labs, folder, tmp_path):
    merge([folder, *labs], tmp_path / "again")
    assert sorted_rows(tmp_path / "again") == sorted_rows(folder)
    merge([folder], tmp_path / "alone.parquet")
    assert sorted_rows(tmp_path / "alone.parquet") == sorted_rows(folder)


def test_what_contradicts_leaves_the_folder_as_it_was(folder, tmp_path):
    before = sorted_rows(folder)
    rival = database(tmp_path / "rival.parquet", DEVICES[0] | {"time_s": 5e-3})
    with pytest.raises(OpcostError, match="none of them later"):
        merge([folder, rival], folder)
    assert sorted_rows(folder) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_folder_of_other_files_is_not_replaced(labs, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OpcostError, match="mine exists, and is not a merged folder"):
        merge(labs, tmp_path / "mine")


def _cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def _change(path):
    table = pq.read_table(path, partitioning=None)
    content = bytearray(path.read_bytes())
    assert len(table)
    content[200] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_cut, _change])
@pytest.mark.parametrize("where", ["rows", "raw"])
def test_a_damaged_file_does_not_enter_another_merge(folder, tmp_path, damage, where):
    damage(sorted((folder / where).rglob("*.parquet"))[0])
    with pytest.raises(OpcostError, match="merge its databases again"):
        merge([folder], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_folder_of_another_version_is_refused_with_the_remedy(folder):
    schema = schemas.MERGED.with_metadata({"opcost.record": "merged", "opcost.schema_version": "4"})
    pq.write_metadata(schema, folder / "_common_metadata")
    with pytest.raises(OpcostError, match="schema_version 4; this opcost reads"):
        read_database(folder)


def test_queries_select_from_it_as_from_a_file(folder):
    found = query(
        [folder], Filter(tuple_ids=["1"]), columns=["tuple_id", "block_time_s", "database"]
    )
    assert found.to_pylist() == [
        {"tuple_id": "1" * 16, "block_time_s": ROW["block_time_s"], "database": str(folder)}
    ] * len(DEVICES)
    assert len(query([folder], Filter(statuses=["timeout"]))) == 1


def test_other_programs_read_it(folder):
    number = len(read_database(folder))
    assert len(pd.read_parquet(folder / "rows", partitioning=None)) == number
    assert len(pl.read_parquet(folder / "rows/**/*.parquet")) == number
    [(counted,)] = duckdb.sql(f"SELECT count(*) FROM '{folder}/rows/**/*.parquet'").fetchall()
    assert counted == number


def test_commands_take_it_like_any_database(folder, tmp_path):
    exported = run("export", folder, tmp_path / "out.sqlite")
    assert exported.exit_code == 0, exported.stderr
    with sqlite3.connect(tmp_path / "out.sqlite") as connection:
        [(raw,), *_] = connection.execute("SELECT block_time_s FROM operators WHERE status = 'ok'")
    assert json.loads(raw) == ROW["block_time_s"]
    [first, second, *_] = (
        read_database(folder, ["conditions_id"])["conditions_id"].unique().to_pylist()
    )
    compared = run(
        "diff", folder, folder, "--before-conditions", first, "--after-conditions", second
    )
    assert "device_uuid_hash" in compared.stdout
    unknown = run("diff", folder, folder, "--before-conditions", "*", "--after-conditions", second)
    assert "has no conditions_id '*'" in unknown.stderr


SQL = "SELECT target, count(*) AS tuples FROM operators WHERE status = 'ok' GROUP BY ALL"


def test_sql_answers_from_files_and_folders(labs, folder):
    answers = [
        run("sql", SQL, *chosen, "--json").stdout
        for chosen in (["-d", folder], [option for lab in labs for option in ("-d", lab)])
    ]
    assert [json.loads(answer) for answer in answers] == [{"target": "local", "tuples": 6}] * 2
    assert run("sql", SQL, "-d", folder, "--csv").stdout.splitlines() == [
        "target,tuples",
        "local,6",
    ]
    assert "tuples" in run("sql", SQL, "-d", folder).stdout


def test_sql_writes_parquet_and_knows_the_tables_beside_a_study(tmp_path):
    database(tmp_path / "database.parquet", {})
    pq.write_table(
        pa.table({"model": ["net"], "time": [datetime(2026, 1, 1, tzinfo=UTC)]}),
        tmp_path / "shares.parquet",
    )
    output = tmp_path / "out" / "answer.parquet"
    done = run("sql", "FROM shares", "-d", tmp_path / "database.parquet", "--parquet", output)
    assert done.exit_code == 0, done.stderr
    assert pq.read_table(output)["model"].to_pylist() == ["net"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT tiem_s FROM operators", 'Candidate bindings: "time_s"'),
        ("SELEC 1", "syntax error"),
        ("", "write one SELECT of SQL, not ''"),
        ("SELECT 1; SELECT 2", "write one SELECT"),
        ("COPY (SELECT 1) TO 'x.csv'", "write one SELECT"),
        ("ATTACH 'x.duckdb'", "write one SELECT"),
        ("FROM answers", "answers does not exist!\nTables: operators"),
        ("SELECT 1 AS a, 2 AS a", "two columns have one name"),
        ("SELECT * FROM statement", "statement does not exist"),
    ],
)
def test_what_sql_cannot_answer_is_one_message(folder, statement, message):
    answer = run("sql", statement, "-d", folder, "--json")
    assert answer.exit_code == 1
    assert "no_rows" not in answer.stderr
    assert message in answer.stderr


def test_sql_gives_raw_values_to_statements_that_name_them(labs, folder):
    for database_of in (folder, labs[0]):
        [first, *_] = run(
            "sql",
            "SELECT block_time_s FROM operators WHERE status = 'ok'",
            "-d",
            database_of,
            "--json",
        ).stdout.splitlines()
        assert json.loads(first) == {"block_time_s": ROW["block_time_s"]}
        listed = run(
            "sql", "SELECT * FROM operators", "-d", database_of, "--json"
        ).stdout.splitlines()
        assert "block_time_s" not in json.loads(listed[0])


def test_sql_answers_what_is_not_plain_as_text_and_what_is_not_finite_as_null(folder):
    columns = "1.5::DECIMAL(3, 1) AS a, DATE '2026-01-02' AS b, 'nan'::DOUBLE AS c, {'x': 1} AS d"
    statement = f"SELECT sum(flops) AS s, {columns} FROM operators"
    found = json.loads(run("sql", statement, "-d", folder, "--json").stdout)
    assert found == {"s": None, "a": 1.5, "b": "2026-01-02", "c": None, "d": "{'x': 1}"}
    nothing = f"SELECT {columns} FROM operators WHERE false"
    assert run("sql", nothing, "-d", folder, "--json").stdout == ""


@pytest.mark.parametrize("name", ["target=zz", "time_s=5", "a*", "c?", "b[1]", "it's"])
def test_names_of_folders_mean_nothing_to_queries(folder, tmp_path, name):
    for copy in (name, "aa", "cc", "b1"):
        shutil.copytree(folder, tmp_path / copy / "merged")
    found = query([tmp_path / name / "merged"], columns=["target", "time_s"])
    assert len(found) == len(read_database(folder))
    assert {*found["target"].to_pylist()} == {"local"}
    assert {*found["time_s"].to_pylist()} == {1e-3, None}


def test_two_merges_into_one_folder_at_once_both_count(labs, tmp_path):
    command = [sys.executable, "-m", "opcost", "merge", tmp_path / "merged"]
    merge(labs[:1], tmp_path / "merged")
    started = [
        subprocess.Popen([*map(str, [*command, lab, "-o", tmp_path / "merged"])])
        for lab in labs[1:]
    ]
    assert [each.wait() for each in started] == [0, 0]
    merge(labs, tmp_path / "expected")
    assert sorted_rows(tmp_path / "merged") == sorted_rows(tmp_path / "expected")


def test_other_files_of_the_folder_stay(folder, tmp_path):
    (folder / "NOTES.txt").write_text("mine")
    merge([folder, database(tmp_path / "new.parquet", DEVICES[0] | NEWER)], folder)
    assert (folder / "NOTES.txt").read_text() == "mine"


@pytest.mark.parametrize("arguments", [["query"], ["sql", "SELECT 1"], ["merge"]])
def test_nothing_is_written_into_a_database_or_over_it(labs, folder, arguments):
    before = sorted_rows(folder), labs[0].read_bytes()
    part = next((folder / "rows").rglob("*.parquet"))
    option = "-o" if arguments[0] == "merge" else "--parquet"
    for source, output in (
        (folder, part),
        (folder, folder / "_common_metadata.parquet"),
        (labs[0], labs[0]),
    ):
        named = ["-d", source] if arguments[0] == "sql" else [source]
        answer = run(*arguments, *named, option, output)
        assert answer.exit_code == 1
        assert "is also an input" in answer.stderr or "is inside of an input" in answer.stderr
    assert (sorted_rows(folder), labs[0].read_bytes()) == before


def _remove(part):
    part.unlink()


@pytest.mark.parametrize("damage", [_remove, _cut])
def test_a_damaged_folder_is_refused_with_the_file_and_the_remedy(folder, damage):
    part = sorted((folder / "rows").rglob("*.parquet"))[0]
    damage(part)
    for command in ("query", folder), ("export", folder, "x.csv"), ("merge", folder, "-o", "x"):
        answer = run(*command)
        assert answer.exit_code == 1
        assert part.name in answer.stderr
        assert "copy the folder again, or merge its databases again" in answer.stderr


def test_raw_values_of_other_rows_are_refused(folder, tmp_path):
    parts = collection.parts(folder)
    raw = collection.raw_of(parts[0])
    table = pq.read_table(raw, partitioning=None)
    others = pa.array(["3" * 16] * len(table), pa.string())
    records.write_table(raw, table.set_column(1, "tuple_id", others))
    collection.finish(folder, parts, {})
    answer = run("export", folder, tmp_path / "x.csv")
    assert answer.exit_code == 1
    assert f"{raw} has raw values of other rows" in answer.stderr


def test_files_beside_those_of_the_list_do_not_count(folder):
    part = sorted((folder / "rows").rglob("*.parquet"))[0]
    shutil.copy(part, part.with_name("copy.parquet"))
    assert len(query([folder])) == len(read_database(folder)) == 7
