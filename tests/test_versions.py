"""Files of every schema version that opcost ever had are read like today's.

`tests/versions` holds what the study of seconds left with each; its README says how it was made.
"""

import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases.database import read_database
from opcost.devices.kinds import protocol_version
from opcost.devices.target_device import open_device
from opcost.errors import OpcostError
from opcost.rows import records, schemas, versions
from opcost.target import Target

from tests.checkout import REPOSITORY

ARCHIVES = sorted((REPOSITORY / "tests/versions").glob("*.tar.xz"))
NAMES = [path.name.removesuffix(".tar.xz") for path in ARCHIVES]
MODEL = str(REPOSITORY / "tests/study/models/tiny_mlp.yaml")
TUPLES = 3


def version_of(name):
    return int(name.partition("-")[0])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of each sample, by its name."""
    root = tmp_path_factory.mktemp("versions")
    for name, archive in zip(NAMES, ARCHIVES, strict=True):
        with tarfile.open(archive) as tar:
            tar.extractall(root / name, filter="data")
    return {name: root / name for name in NAMES}


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def sample(unpacked, name):
    return unpacked[name]


@pytest.fixture
def database(sample):
    return sample / "results/database.parquet"


def opcost(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_there_is_a_sample_of_every_version_before_this_one():
    assert {*map(version_of, NAMES)} >= {*range(1, versions.SCHEMA_VERSION)}


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        (schemas.OPERATOR, "results/local/operators/*.parquet"),
        (schemas.MODEL, "results/local/models/*.parquet"),
        (schemas.DATABASE, "results/database.parquet"),
        (schemas.MERGED, "merged.parquet"),
        (schemas.COMPARISON, "results/comparison.parquet"),
        (schemas.SHARES, "results/shares.parquet"),
        (schemas.MODULES, "results/modules.parquet"),
        (schemas.EXTRACTION, "results/models.parquet"),
    ],
)
def test_each_later_column_is_listed_with_its_version(unpacked, schema, file):
    newest = max(NAMES, key=version_of)
    had = pq.read_schema(next(unpacked[newest].glob(file))).names
    record = schema.metadata[b"opcost.record"].decode()
    later = {name for name in schema.names if versions.since(record, name) > version_of(newest)}
    named_otherwise = {name for name in schema.names if versions.FORMER_NAMES.get(name) in had}
    assert set(schema.names) - set(had) - named_otherwise == later - named_otherwise, (
        "see Columns in CONTRIBUTING.md"
    )


@pytest.mark.parametrize("kind", ["operators", "again", "models", "models_again"])
def test_rows_have_all_columns_of_today(sample, name, kind):
    schema = schemas.MODEL if kind.startswith("models") else schemas.OPERATOR
    for path in sample.glob(f"results/local/{kind}/*.parquet"):
        table = records.read(path, schema)
        assert table.schema.equals(schema)
        [row] = table.to_pylist()
        stored = pq.read_table(path).to_pylist()[0]
        assert row["schema_version"] == version_of(name)
        assert row["status"] == "ok"
        unchanged = ("time_s", "conditions_json", "flags", "batch_time_s", "device_name")
        assert [row[column] for column in unchanged] == [stored[column] for column in unchanged]


def test_some_columns_are_read_as_all_are(database):
    whole = read_database(database)
    columns = ["idle_power_before_w", "time_s", "workflow_commit", "schema_version"]
    assert read_database(database, columns).equals(whole.select(columns))
    assert read_database(database, ["workflow_commit"]).num_rows == TUPLES


@pytest.mark.parametrize("record", ["comparison", "shares", "modules", "extraction"])
def test_tables_are_read_unless_their_rows_meant_something_else(sample, name, record):
    file = "models" if record == "extraction" else record
    path = sample / f"results/{file}.parquet"
    schema = getattr(schemas, record.upper())
    if not path.exists():
        assert version_of(name) <= versions.FIRST[record]
    elif record == "comparison" and version_of(name) < 5:
        with pytest.raises(
            OpcostError, match=r"this opcost reads 5 to .*: delete .* and run again"
        ):
            records.read(path, schema)
    else:
        assert records.read(path, schema).num_rows > 0


def test_a_query_shows_the_rows(database):
    answer = opcost("query", database, "--json", "--columns", "time,schema_version,worker")
    assert answer.exit_code == 0
    assert len(answer.stdout.splitlines()) == TUPLES


def test_an_export_has_the_rows(database, tmp_path):
    answer = opcost("export", database, tmp_path / "rows.csv")
    assert answer.exit_code == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + TUPLES


def test_a_sum_needs_what_calls_cost(database, name):
    """A database without it gives none: the operators alone are not what a model costs."""
    answer = opcost("explain", MODEL, "--database", database, "--json")
    document = json.loads(answer.stdout)
    [target] = document["targets"]
    if version_of(name) < 5:
        assert answer.exit_code == 3
        assert target["estimate_time_s"] is None
        assert "has no call overhead" in target["time_reason"]
    else:
        assert answer.exit_code == 0
        assert target["estimate_time_s"] is not None
        assert (target["estimate_time_ci_low_s"] is None) == (version_of(name) == 5)


def test_databases_are_compared_where_they_mean_the_same(database, unpacked):
    """Too few operators to find the variation between measurements, which none of them states."""
    for after in (database, unpacked["7"] / "results/database.parquet"):
        answer = opcost("diff", database, after, "--anyway")
        assert answer.exit_code == 4
        assert f"{TUPLES} operator tuples" in answer.stdout
        assert answer.stdout.endswith(
            "Cannot tell: no test of time, as said above (target local).\n"
        )
    stated = opcost("diff", database, database, "--spread", "0.02").stdout
    assert f"0 of {TUPLES} operators changed." in stated


def test_databases_of_all_versions_are_merged(unpacked, tmp_path):
    paths = [folder / "results/database.parquet" for folder in unpacked.values()]
    merged = tmp_path / "merged.parquet"
    assert opcost("merge", *paths, "-o", merged).exit_code == 0
    rows = records.read(merged, schemas.MERGED).to_pylist()
    assert len(rows) == TUPLES * len(paths)
    assert {row["schema_version"] for row in rows} == {*map(version_of, NAMES)}


def test_a_merged_database_is_merged_again(sample, name, tmp_path):
    merged = sample / "merged.parquet"
    assert merged.exists() == (name == "4-cores" or version_of(name) > 4)
    if merged.exists():
        again = tmp_path / "again.parquet"
        assert opcost("merge", merged, "-o", again).exit_code == 0
        assert records.read(again, schemas.MERGED).num_rows == TUPLES


def changed(path, output, version=None, **columns):
    """A copy of a file with other values; its columns and metadata stay, but for the version."""
    table = pq.read_table(path)
    for column, values in columns.items():
        index = table.schema.get_field_index(column)
        field = table.schema.field(index) if index >= 0 else pa.field(column, pa.float64())
        array = pa.array(values, field.type)
        table = (
            table.set_column(index, field, array)
            if index >= 0
            else table.append_column(field, array)
        )
    stated = {b"opcost.schema_version": version} if version else {}
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **stated}), output)
    return output


def operator_of(folder):
    return next(folder.glob("results/local/operators/*.parquet"))


@pytest.mark.parametrize(
    ("name", "mean", "before"), [("1", None, 50.0), ("2", None, 50.0), ("2-power", 50.0, None)]
)
def test_idle_power_was_that_before_the_load_at_first(unpacked, tmp_path, name, mean, before):
    path = changed(operator_of(unpacked[name]), tmp_path / "row.parquet", idle_power_w=[50.0])
    [row] = records.read(path, schemas.OPERATOR).to_pylist()
    assert (row["idle_power_w"], row["idle_power_before_w"]) == (mean, before)


def test_another_quantity_of_the_same_name_is_null(unpacked):
    first, second = (operator_of(unpacked[name]) for name in ("1", "2"))
    assert pq.read_table(first)["sentinel_time_s"][0].is_valid
    assert not records.read(first, schemas.OPERATOR)["sentinel_time_s"][0].is_valid
    assert records.read(second, schemas.OPERATOR)["sentinel_time_s"][0].is_valid


def test_a_file_of_a_newer_version_asks_for_a_newer_opcost(unpacked, tmp_path):
    newer = str(versions.SCHEMA_VERSION + 1).encode()
    path = changed(operator_of(unpacked["7"]), tmp_path / "row.parquet", newer)
    with pytest.raises(OpcostError, match="upgrade opcost") as caught:
        records.read(path, schemas.OPERATOR)
    assert "delete" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version", "columns"),
    [
        ("7", None, {"speed": [1.0]}),  # a column that no version had
        ("4-cores", None, {"call_overhead_s": [1.0]}),  # one that another version had
        ("7", None, {"memory_used_bytes": [1.0]}),  # one that came later
        ("6", b"7", {}),  # columns of the version before
        ("3", b"7", {}),  # fewer columns than the version had
    ],
)
def test_a_file_whose_columns_do_not_fit_its_version_is_damaged(
    unpacked, tmp_path, name, version, columns
):
    path = changed(operator_of(unpacked[name]), tmp_path / "row.parquet", version, **columns)
    with pytest.raises(OpcostError, match="does not have the columns of its schema version"):
        records.read(path, schemas.OPERATOR)


def test_each_column_says_from_which_version_on_it_exists():
    assert versions.since("operator", "time_s") == 1
    assert versions.since("operator", "sentinel_time_s") == 2
    assert versions.since("database", "call_overhead_ci_low_s") == 6
    assert versions.since("database", "schema_version") == 8
    for record, added in versions.ADDED.items():
        names = [name for columns in added.values() for name in columns]
        assert set(names) <= set(schemas.DESCRIPTIONS[record])
        assert len(names) == len(set(names))


def as_if_measured_here(root):
    """The processor of the samples, and its caches, are those of this machine."""
    here = open_device(Target("cpu", threads=1, tf32=False))
    known = {name: getattr(here, name) for name in ("core_cache_bytes", "last_level_cache_bytes")}
    known["device_name"] = here.model_name
    for path in root.glob("results/local/*/*.parquet"):
        table = pq.read_table(path)
        for name in known.keys() & set(table.column_names):
            index = table.schema.get_field_index(name)
            values = pa.array([known[name]] * len(table), table.schema.field(name).type)
            table = table.set_column(index, table.schema.field(name), values)
        pq.write_table(table, path)
    path = root / "results/local/device.json"
    device = json.loads(path.read_text())
    path.write_text(json.dumps(device | {n: v for n, v in known.items() if n in device}))


def of_the_same_protocol(root):
    """Let this opcost measure by the protocol of the samples: of another, rows are replaced."""
    path, today = root / "scripts/opcost/devices/kinds.py", f"={protocol_version('cpu')},"
    assert path.read_text().count(today) == 1
    path.write_text(path.read_text().replace(today, "=4,"))
