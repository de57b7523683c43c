"""Merged databases hold each thing measured once, and no number that nobody measured."""

import itertools
import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opcost.commands import main
from opcost.databases import model_ratios
from opcost.databases.merging import STATE, merge
from opcost.devices.environment import describe_environment
from opcost.errors import OpcostError
from opcost.rows import comparability, records, schemas
from opcost.rows.column import Role
from opcost.rows.runs import ModelRatio

GPU = {"device_name": "Simulated", "device_uuid_hash": "a" * 16, "torch_version": "2.15.0"}
ROW = {
    **GPU,
    "tuple_id": "0" * 16,
    "target": "local",
    "status": "ok",
    "time_s": 1e-3,
    "block_time_s": [1e-9, 1e-3, 2e-3],
    "converged": True,
    "flags": [],
    "protocol_version": 3,
    "conditions_json": "{}",
    "measured_at": datetime(2026, 1, 1, tzinfo=UTC),
}
FAILED = {"status": "timeout", "time_s": None, "block_time_s": None, "converged": None}
NEWER = {"measured_at": datetime(2026, 1, 2, tzinfo=UTC)}


def database(path, *changes, ratios=None):
    """A database of rows like ROW, each with its changes, and ratios of models by target."""
    table = pa.Table.from_pylist([ROW | change for change in changes], schema=schemas.DATABASE)
    metadata = model_ratios.metadata(ratios or {})
    records.write_batches(path, schemas.DATABASE, table.to_batches(), lambda: metadata)
    return path


def rows_of(path):
    return records.read(path, schemas.MERGED).to_pylist()


@pytest.fixture
def merged(tmp_path):
    """The rows of several databases, merged; each is a list of changes to ROW."""

    def merged(*databases):
        paths = [
            database(tmp_path / f"{name}.parquet", *changes)
            for name, changes in zip("abcde", databases, strict=False)
        ]
        merge(paths, tmp_path / "merged.parquet")
        return rows_of(tmp_path / "merged.parquet")

    return merged


def test_the_same_row_in_two_databases_is_one_and_says_so(merged):
    [row] = merged([{}], [{}, {"tuple_id": "1" * 16}])[:1]
    assert len(row["sources"]) == 2
    assert row["block_time_s"] == ROW["block_time_s"]


@pytest.mark.parametrize("change", [{"time_s": 2e-3}, {"flags": ["drifting"]}, FAILED], ids=str)
def test_of_two_measurements_of_the_same_thing_the_newer_one_is_kept(merged, change):
    for databases in ([{}], [change | NEWER]), ([change | NEWER], [{}]):
        [row] = merged(*databases)
        assert {name: row[name] for name in change} == change


OTHER = {"tuple_id": "1" * 16}
STATES = (
    {"call_overhead_s": 1e-6, "view_call_overhead_s": 1e-6, "overhead_disturbed": False},
    {"call_overhead_s": 2e-6},
)


def check_states_of(rows):
    """Two rows state all of the newest call overhead, and nothing of an older one."""
    assert [row["call_overhead_s"] for row in rows] == [2e-6, 2e-6]
    for name in ("view_call_overhead_s", "overhead_disturbed"):
        assert [row[name] for row in rows] == [None, None]


def test_a_target_comes_whole_from_its_newest_state(merged):
    """Though a row of the older state is flagged in the newer one, or has no newer measurement."""
    older = [STATES[0], STATES[0] | OTHER]
    newer = [STATES[1] | {"flags": ["drifting"]}, STATES[1] | OTHER | NEWER]
    for databases in (older, newer), (newer, older):
        check_states_of(merged(*databases))


def test_a_tuple_that_the_newest_state_lacks_is_kept_and_states_the_same_of_its_target(merged):
    """As of two studies of different models on one GPU."""
    older, newer = [STATES[0], STATES[0] | OTHER | {"time_s": 2e-3}], [STATES[1] | NEWER]
    for databases in (older, newer), (newer, older):
        rows = sorted(merged(*databases), key=lambda row: row["tuple_id"])
        assert [row["time_s"] for row in rows] == [1e-3, 2e-3]
        check_states_of(rows)


def test_the_state_of_a_target_is_its_call_overhead_alone(merged):
    """What else differs between two rows of a target is of their own runs, and stays."""
    overhead = {name for name in schemas.DATABASE.names if "_overhead_" in name}
    assert {*STATE} == overhead | {"overhead_disturbed"}
    own = {"runs": 2, "run_round": [1, 2], "run_time_s": [1e-3, 1.1e-3], "time_s": 1.05e-3}
    rows = merged([STATES[0] | own], [STATES[1] | NEWER | OTHER])
    [older] = [row for row in rows if row["tuple_id"] == ROW["tuple_id"]]
    assert {name: older[name] for name in own} == own


def with_metadata(path, name, text):
    table = pq.read_table(path)
    metadata = table.schema.metadata | {f"opcost.{name}".encode(): text}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([{}], [{"time_s": 2e-3}]),
        ([STATES[0]], [STATES[1]]),
    ],
    ids=["two values", "two states of one time"],
)
def test_databases_of_which_none_is_the_later_one_are_refused(merged, tmp_path, first, second):
    with pytest.raises(OpcostError, match=r"b\.parquet hold different .* Merge only one of them"):
        merged(first, second)
    assert not (tmp_path / "merged.parquet").exists()


def test_what_a_newer_row_supersedes_need_not_agree(merged):
    [row] = merged([{}], [{"time_s": 2e-3}], [{"time_s": 1.5e-3} | NEWER])
    assert row["time_s"] == 1.5e-3


def test_a_database_that_is_replaced_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = database(tmp_path / "a.parquet", {}, OTHER)
    other = database(tmp_path / "other.parquet", OTHER)
    stream = records.stream

    def replace_and_stream(*arguments, **remedy):
        other.replace(path)
        return stream(*arguments, **remedy)

    monkeypatch.setattr(records, "stream", replace_and_stream)
    with pytest.raises(OpcostError, match="replaced while it was read"):
        merge([path], tmp_path / "merged.parquet")
    assert not (tmp_path / "merged.parquet").exists()


@pytest.mark.parametrize("name", ["target", *comparability.COLUMNS])
def test_rows_that_differ_in_what_they_were_measured_on_are_kept_apart(merged, name):
    other = {pa.string(): '{"a": 1}', pa.int64(): 7, pa.float64(): 7.0, pa.bool_(): True}
    first, second = merged([{}], [{name: other[schemas.DATABASE.field(name).type]}])
    assert first["conditions_id"] != second["conditions_id"]


def test_all_that_is_found_out_about_a_machine_has_a_role_that_says_who_may_differ(cpu):
    """Else two machines might be taken for one."""
    free_to_differ = comparability.names_in(Role.CIRCUMSTANCE, Role.RAW)
    assert describe_environment(cpu).keys() <= {*comparability.COLUMNS, *free_to_differ}


CPU = {"device_name": "Generic Processor", "device_uuid_hash": None, "quiet_sentinel_time_s": 1e-4}


def test_two_processors_of_one_name_are_told_apart_by_their_studies(merged):
    rows = merged([CPU], [CPU | {"quiet_sentinel_time_s": 1.1e-4}])
    assert len({row["conditions_id"] for row in rows}) == 2


def test_a_processors_failure_gives_way_to_a_result_of_its_study(merged):
    [row] = merged([CPU | FAILED], [CPU])
    assert row["status"] == "ok"


def test_failures_that_do_not_say_where_are_kept_and_belong_to_nothing(merged):
    unknown = FAILED | {"device_uuid_hash": None, "device_name": None, "error": "killed by SIGSEGV"}
    rows = merged([unknown], [unknown], [unknown | {"error": "killed by SIGKILL"}], [{}])
    assert sorted(row["status"] for row in rows) == ["ok", "timeout", "timeout"]
    assert [row["conditions_id"] is None for row in rows if row["status"] != "ok"] == [True, True]


@st.composite
def changes(draw):
    """A row of few possible things, so that many are of the same one."""
    row = {
        "tuple_id": draw(st.sampled_from("01")) * 16,
        "target": draw(st.sampled_from(["local", "h200"])),
        "device_uuid_hash": draw(st.sampled_from(["a" * 16, None])),
        "measured_at": datetime(2026, 1, draw(st.integers(1, 2)), tzinfo=UTC),
    }
    if draw(st.booleans()):
        return row | FAILED | {"error": f"killed on day {row['measured_at'].day}"}
    return row | {"time_s": 1e-3 * row["measured_at"].day}


def one_for_each_tuple(rows):
    return list({(row["target"], row["tuple_id"]): row for row in rows}.values())


RATIO = st.builds(
    ModelRatio,
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.sampled_from([0.01, -0.02, None]),
    st.sampled_from([0.03, None]),
    st.sampled_from(["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", None]),
)
RATIOS = st.dictionaries(
    st.sampled_from(["local", "h200"]), st.lists(RATIO, max_size=3, unique=True)
)


class Shelf:
    """Databases in a folder: `merge` gives the merged one's path, `content` what matters of it."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.numbers = itertools.count()

    def merge(self, *paths):
        output = self.folder / f"{next(self.numbers)}.parquet"
        merge(paths, output)
        return output

    def content(self, *paths):
        path = self.merge(*paths)
        sources = records.metadata(path)["opcost.sources"]
        return sorted(map(repr, rows_of(path))), sources, model_ratios.read_ratios(path)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(changes(), max_size=4).map(one_for_each_tuple), min_size=3, max_size=3),
    st.lists(RATIOS, min_size=3, max_size=3),
)
def test_neither_the_order_nor_the_grouping_of_merges_matters(databases, ratios):
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(folder)
        a, b, c = (
            database(shelf.folder / f"{name}.parquet", *rows, ratios=known)
            for name, rows, known in zip("abc", databases, ratios, strict=True)
        )
        all_at_once = shelf.content(a, b, c)
        assert shelf.content(c, a, b) == all_at_once
        assert shelf.content(shelf.merge(a, b), c) == all_at_once
        assert shelf.content(a, shelf.merge(c, b)) == all_at_once
        assert shelf.content(a, b, shelf.merge(a, b, c), c, c) == all_at_once
        assert shelf.content(shelf.merge(a)) == shelf.content(a, a)
        check_rows(rows_of(shelf.merge(a, b, c)), databases)


def check_rows(rows, databases):
    """Every row is one that was measured, of everything measured, and of each thing once."""
    written = [change for changes in databases for change in changes]
    assert {row["tuple_id"] for row in rows} == {change["tuple_id"] for change in written}
    for row in rows:
        assert any(all(row[name] == change[name] for name in change) for change in written)
    things = [(row["tuple_id"], row["conditions_id"]) for row in rows if row["conditions_id"]]
    assert len(things) == len(set(things))


NET, OTHER_NET = ModelRatio("net", False, 0.02, 0.03), ModelRatio("other", True, -0.1, None)


def test_the_ratios_of_models_are_united_by_what_they_were_measured_on(tmp_path):
    """Whichever of the rows are kept; equal ones of a database and its copy count once."""
    h200 = {"target": "h200"}
    a = database(tmp_path / "a.parquet", {}, h200, ratios={"local": [NET], "h200": [OTHER_NET]})
    b = database(tmp_path / "b.parquet", NEWER, ratios={"local": [OTHER_NET, NET]})
    c = database(tmp_path / "c.parquet", {"device_uuid_hash": "b" * 16}, ratios={"local": [NET]})
    merge([a, b, c], tmp_path / "merged.parquet")
    found = model_ratios.read_ratios(tmp_path / "merged.parquet")
    rows = rows_of(tmp_path / "merged.parquet")
    of = {(row["target"], row["device_uuid_hash"]): row["conditions_id"] for row in rows}
    assert found == {
        of["local", "a" * 16]: [NET, OTHER_NET],
        of["h200", "a" * 16]: [OTHER_NET],
        of["local", "b" * 16]: [NET],
    }


def test_of_one_model_the_ratio_that_was_measured_last_counts(tmp_path):
    first, later, undated = (
        replace(NET, time=time, measured_at=date)
        for time, date in [(0.1, "2026-01-01"), (0.5, "2026-01-02"), (0.9, None)]
    )
    new = database(tmp_path / "a.parquet", {}, ratios={"local": [later]})
    old = database(tmp_path / "b.parquet", NEWER, ratios={"local": [first]})
    oldest = database(tmp_path / "c.parquet", {}, ratios={"local": [undated]})
    for paths in itertools.permutations([new, old, oldest]):
        merge(paths, tmp_path / "merged.parquet")
        [found] = model_ratios.read_ratios(tmp_path / "merged.parquet").values()
        assert found == [later]


def test_ratios_of_no_row_and_databases_without_ratios_add_nothing(tmp_path):
    a = database(tmp_path / "a.parquet", {}, ratios={"gone": [NET]})
    records.write(tmp_path / "b.parquet", schemas.DATABASE, [ROW | OTHER])
    merge([a, tmp_path / "b.parquet"], tmp_path / "merged.parquet")
    assert len(rows_of(tmp_path / "merged.parquet")) == 2
    assert model_ratios.read_ratios(tmp_path / "merged.parquet") == {}


@pytest.mark.parametrize("ratios", ["{", "[]", '{"local": [3]}', '{"local": [{"model": "net"}]}'])
def test_ratios_that_cannot_be_are_named_with_the_remedy(tmp_path, ratios):
    path = database(tmp_path / "a.parquet", {})
    with_metadata(path, "model_ratios", ratios)
    with pytest.raises(OpcostError, match=r"its ratios of models.* make the database again"):
        merge([path], tmp_path / "merged.parquet")
    assert not (tmp_path / "merged.parquet").exists()


def test_the_conditions_id_is_the_same_on_every_machine():
    row = (
        dict.fromkeys(comparability.COLUMNS)
        | GPU
        | {"target": "local", "quiet_sentinel_time_s": 1.25e-4}
    )
    assert comparability.conditions_id(row) == "d3469237788108bb"


def test_where_rows_come_from_is_kept(tmp_path):
    a = database(tmp_path / "a.parquet", {})
    b = database(tmp_path / "b.parquet", {"tuple_id": "1" * 16}, {"tuple_id": "2" * 16})
    merge([a, b], tmp_path / "ab.parquet")
    merge([tmp_path / "ab.parquet"], tmp_path / "again.parquet")
    sources = records.metadata(tmp_path / "again.parquet")["opcost.sources"]
    assert str(a) in sources
    assert '"rows": 2' in sources
    for row in rows_of(tmp_path / "again.parquet"):
        [source] = row["sources"]
        assert source in sources


def run(*arguments):
    return CliRunner().invoke(main, ["merge", *map(str, arguments)])


def test_one_command_merges_and_says_what_it_did(tmp_path):
    a = database(tmp_path / "a.parquet", {}, {"tuple_id": "1" * 16} | FAILED)
    b = database(tmp_path / "b.parquet", {}, OTHER | NEWER)
    c = database(tmp_path / "c.parquet", {"device_uuid_hash": "b" * 16})
    completed = run(a, b, c, "--output", tmp_path / "merged.parquet")
    assert completed.exit_code == 0, completed.stderr
    for line in (
        f"2 rows in {a}",
        f"2 rows in {b}",
        "1 exact copies dropped",
        "1 superseded by newer measurements of their targets",
        "3 rows kept:",
        "local, Simulated, torch 2.15.0, protocol 3",
        "Target 'local' has 2 conditions_ids, whose rows must not be added up. They differ in "
        f"device_uuid_hash ({'a' * 16} and {'b' * 16}).",
    ):
        assert f"{line}\n" in completed.stdout
    assert len(rows_of(tmp_path / "merged.parquet")) == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: with_metadata(path, "schema_version", "999"),
            "opcost.schema_version 999; this opcost reads",
        ),
        (lambda path: records.write(path, schemas.SHARES, []), "has opcost.record shares"),
        (lambda path: path.write_bytes(b"PAR1"), "is not a readable Parquet file"),
        (os.unlink, "No such file"),
    ],
    ids=["a newer version", "no database", "damaged", "absent"],
)
def test_what_cannot_be_merged_is_named_with_the_remedy(tmp_path, damage, message):
    good, bad = (database(tmp_path / f"{name}.parquet", {}) for name in ("good", "bad"))
    damage(bad)
    with pytest.raises(OpcostError, match=message) as caught:
        merge([good, bad], tmp_path / "merged.parquet")
    assert str(bad) in str(caught.value)
    assert not (tmp_path / "merged.parquet").exists()


def test_sources_that_cannot_be_are_named_with_the_remedy(tmp_path):
    path = tmp_path / "merged.parquet"
    merge([database(tmp_path / "a.parquet", {})], path)
    with_metadata(path, "sources", "{")
    with pytest.raises(OpcostError, match=r"its list of sources.* merge its databases again"):
        merge([path], tmp_path / "again.parquet")
