"""Every measurement there is stands in the database, and none that is not what it says."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from opcost.databases.aggregation import write_database
from opcost.databases.measured import find_measured
from opcost.databases.selection import asked_for
from opcost.devices.device_file import DeviceFile, Sample, write_device
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.tuples.operator_tuple import id_of

OLD, NEW = '{"setting": 1}', '{"setting": 2}'


def row(number=0, target="local"):
    canonical_json = f'{{"arguments":{{}},"operator":"aten.number_{number}.default"}}'
    return {
        "tuple_id": id_of(canonical_json),
        "canonical_json": canonical_json,
        "target": target,
        "status": "ok",
        "time_s": 1e-3,
        "flags": [],
        "conditions_json": "{}",
        "batch_iterations": number,
    }


def measure(folder, number, target="local", kind="operators", **changes):
    """Write the file of a measurement, as a study does, and return its path."""
    found = row(number, target) | changes
    path = folder / "results" / target / "cpu-0" / kind / f"{row(number)['tuple_id']}.parquet"
    records.write(path, schemas.OPERATOR, [found])
    return path


def aggregate(folder, asked=None):
    """The texts about what is left out of the new database."""
    return write_database(find_measured(folder / "results"), folder / "database.parquet", asked)


def database(folder):
    return records.read(folder / "database.parquet", schemas.DATABASE)


def times(folder):
    return database(folder)["time_s"].to_pylist()


def test_rows_of_all_targets_are_joined_in_the_order_of_their_paths(tmp_path):
    paths = [measure(tmp_path, number) for number in (3, 1, 2)]
    paths.append(measure(tmp_path, 1, "other"))
    aggregate(tmp_path)
    rows = records.read_all(sorted(paths), schemas.OPERATOR)
    names = ["target", "tuple_id", "time_s", "batch_iterations", "status"]
    assert database(tmp_path).select(names).to_pylist() == rows.select(names).to_pylist()
    assert len(rows) == 4


def test_without_measurements_a_database_has_no_rows(tmp_path):
    aggregate(tmp_path)
    assert len(database(tmp_path)) == 0


def test_a_row_is_of_the_target_whose_folder_holds_it(tmp_path):
    measure(tmp_path, 1, target="before")
    (tmp_path / "results/before").rename(tmp_path / "results/after")
    aggregate(tmp_path)
    assert database(tmp_path)["target"].to_pylist() == ["after"]


def test_of_other_conditions_of_a_target_the_name_is_told(tmp_path):
    measure(tmp_path, 1)
    folder = tmp_path / "results/local"
    shutil.copytree(folder / "cpu-0", folder / "cpu-1")
    write_database(find_measured(folder.parent, [folder / "cpu-1"]), tmp_path / "database.parquet")
    assert database(tmp_path)["target"].to_pylist() == ["local", "local/cpu-0"]


@pytest.mark.parametrize("name", ["settings.json", "device.json"])
def test_a_row_of_other_conditions_than_those_of_its_folder_is_named(tmp_path, conditions, name):
    other = {"conditions_json": conditions.to_json(), "torch_version": "2.14.0"}
    path = measure(tmp_path, 1, **other)
    folder = path.parent.parent
    if name == "settings.json":
        (folder / name).write_text(replace(conditions, protocol_version=1).to_json())
    else:
        write_device(folder / name, DeviceFile("cpu", "Any", torch_version="2.15.0"))
    with pytest.raises(OpcostError, match=f"{path} was measured under other conditions than"):
        aggregate(tmp_path)


def tear(path):
    path.write_bytes(path.read_bytes()[:100])


def test_a_damaged_file_that_the_study_asks_for_is_an_error(tmp_path):
    path = measure(tmp_path, 1)
    tear(path)
    with pytest.raises(OpcostError, match=f"{path} is not a readable .* delete {path} and run"):
        aggregate(tmp_path, asked={path})
    assert not (tmp_path / "database.parquet").exists()


@pytest.mark.parametrize(("count", "last"), [(3, "delete .* again"), (12, "and 2 more")])
def test_damaged_files_that_the_study_asks_for_are_all_named_at_once(tmp_path, count, last):
    paths = [measure(tmp_path, number) for number in range(count)]
    for path in paths:
        tear(path)
    with pytest.raises(OpcostError, match=f"(?s){count} files cannot be used:.*{last}$") as caught:
        aggregate(tmp_path, asked=set(paths))
    assert str(caught.value).count("run again to measure it again") == min(count, 10)
    assert not (tmp_path / "database.parquet").exists()


@pytest.mark.parametrize("kind", ["operators", "operators_2"])
def test_a_damaged_file_that_nobody_asks_for_is_left_out_and_named(tmp_path, kind):
    measure(tmp_path, 1, time_s=1.0)
    path = measure(tmp_path, 2, kind=kind)
    tear(path)
    [text] = aggregate(tmp_path, asked=())
    assert f"{path} is not a readable Parquet file" in text
    assert text.endswith(": delete it, or run a study with target 'local' to measure it again")
    assert times(tmp_path) == [1.0]


def in_two_rounds(tmp_path, *factors, **conditions):
    """The rows where some were measured in round 2, at another speed."""
    for number in range(10):
        measure(tmp_path, number, time_s=1e-3)
    for number, factor in enumerate(factors):
        result = {"time_s": 1e-3 * factor} if factor else {"time_s": None, "status": "error"}
        measure(tmp_path, number, kind="operators_2", **result, **conditions)
    aggregate(tmp_path)
    return database(tmp_path).to_pylist()


def test_a_row_combines_the_executions_of_all_rounds(tmp_path):
    rows = in_two_rounds(tmp_path, *[1.1, 0.9] * 5)
    for row in rows:
        assert row["executions"] == 2
        assert row["execution_round"] == [1, 2]
        first_s, second_s = row["execution_time_s"]
        assert row["time_s"] == pytest.approx((first_s * second_s) ** 0.5)
        assert row["time_ci_low_s"] < min(first_s, second_s)
    [scatter] = {row["time_scatter"] for row in rows}
    assert scatter == pytest.approx(0.1 / 2**0.5, rel=0.3)
    before = (tmp_path / "database.parquet").read_bytes()
    aggregate(tmp_path)
    assert (tmp_path / "database.parquet").read_bytes() == before, "combined once, not twice"


def test_the_folder_of_a_round_copied_to_others_counts_once_and_its_files_are_named(tmp_path):
    for number in range(6):
        began = {"started_at": datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC)}
        measure(tmp_path, number, time_s=1e-3 + 1e-5 * number, **began)
    device = tmp_path / "results/local/cpu-0/device.json"
    samples = tuple(Sample(1e-6 + 1e-8 * number, 2e-6, 3e-6, False) for number in range(4))
    write_device(device, DeviceFile("cpu", "Any", overhead=samples))
    assert aggregate(tmp_path) == []
    before = database(tmp_path).to_pylist()
    folder = tmp_path / "results/local/cpu-0/operators"
    for number in (2, 3, 4):
        shutil.copytree(folder, folder.with_name(f"operators_{number}"))
        shutil.copy(device, folder.parent / f"overhead_{number}.json")
    for _ in range(2):  # a row that is copied from the earlier database is no less one
        [text] = aggregate(tmp_path)
        assert f"{folder}_2" in text
        assert "copies of files of other rounds, which count once" in text
        assert database(tmp_path).to_pylist() == before
    measure(tmp_path, 0, kind="operators_2", time_s=1e-3, started_at=datetime(2026, 1, 2))
    aggregate(tmp_path)
    [first] = (each for each in database(tmp_path).to_pylist() if each["batch_iterations"] == 0)
    assert first["executions"] == 2, "of another run, though it took as long"


def test_disturbed_executions_count_only_where_there_is_no_other(tmp_path):
    busy = {"time_s": 3e-3, "flags": ["disturbed"]}
    measure(tmp_path, 0, time_s=1e-3)
    measure(tmp_path, 0, kind="operators_2", **busy)
    for kind in ("operators", "operators_2"):
        measure(tmp_path, 1, kind=kind, **busy)
    aggregate(tmp_path)
    found = {each["tuple_id"]: each for each in database(tmp_path).to_pylist()}
    quiet, never_quiet = (found[row(number)["tuple_id"]] for number in range(2))
    assert (quiet["execution_time_s"], quiet["execution_round"]) == ([1e-3], [1])
    assert (quiet["time_s"], quiet["flags"]) == (1e-3, [])
    assert [each["disturbed_executions"] for each in (quiet, never_quiet)] == [1, 0]
    assert (never_quiet["execution_time_s"], never_quiet["flags"]) == ([3e-3] * 2, ["disturbed"])


def test_an_older_result_of_other_conditions_does_not_hide_a_failure(tmp_path):
    failed = {"time_s": None, "status": "timeout", "error": "took too long"}
    measure(tmp_path, 0, **failed)
    measure(tmp_path, 0, kind="operators_2", time_s=1e-3, conditions_json='{"other": 1}')
    measure(tmp_path, 1, **failed)
    measure(tmp_path, 1, kind="operators_2", time_s=1e-3)
    aggregate(tmp_path)
    found = {each["tuple_id"]: each["status"] for each in database(tmp_path).to_pylist()}
    assert found == {row(0)["tuple_id"]: "timeout", row(1)["tuple_id"]: "ok"}


SPEEDS = [0.9, 0.95, 0.97, 1.02, 1.03, 1.05, 1.1, 1.0, 0.92, 1.04]


def measure_at(folder, number, speed, kind="operators"):
    time_s = 1e-3 / speed
    batches = {"batch_time_s": [time_s, 1.001 * time_s], "batch_undisturbed": [True, True]}
    measure(folder, number, kind=kind, time_s=time_s, core_speed_per_s=2500 * speed, **batches)


def test_times_are_those_at_the_usual_speed_of_the_core(tmp_path):
    for number, speed in enumerate(SPEEDS):
        measure_at(tmp_path, number, speed)
        if number < 7:
            measure_at(tmp_path, number, 1.0, kind="operators_2")
    aggregate(tmp_path)
    for row in database(tmp_path).to_pylist():
        assert row["time_s"] == pytest.approx(1e-3, rel=1e-4)
        assert row["time_speed_exponent"] == pytest.approx(1, abs=1e-3)
        assert row["usual_core_speed_per_s"] == 2500
        first_s, speed_per_s = row["execution_time_s"][0], row["execution_core_speed_per_s"][0]
        assert first_s == pytest.approx(2.5 / speed_per_s)
    measure_at(tmp_path, len(SPEEDS), 0.85)  # the other rows are copied from the database
    aggregate(tmp_path)
    assert times(tmp_path) == pytest.approx([1e-3] * 11, rel=1e-3)


def test_executions_are_joined_as_each_column_says(tmp_path):
    undisturbed = {"batch_time_s": [1e-3], "batch_undisturbed": [True]}
    measure(
        tmp_path, 0, converged=True, repeats=1, device_time_s=2.0, load_average=0.5,
        flags=["drifting", "launch_bound"], ended_at=datetime(2026, 1, 1, tzinfo=UTC),
        **undisturbed, evicted_code_time_s=[2e-6, -1e-6],
    )  # fmt: skip
    measure(
        tmp_path, 0, kind="operators_2", converged=False, repeats=None, device_time_s=3.0,
        load_average=9.0, flags=["drifting"], ended_at=datetime(2026, 1, 2, tzinfo=UTC),
        batch_time_s=[2e-3, 1e-3], batch_undisturbed=[False, True],
    )  # fmt: skip
    failed = {"status": "error", "time_s": None, "flags": ["degenerate_values"]}
    measure(tmp_path, 0, kind="operators_3", device_time_s=4.0, **failed)
    aggregate(tmp_path)
    [row] = database(tmp_path).to_pylist()
    assert row["load_average"] == 0.5, "that of the first, unless the column says otherwise"
    assert row["ended_at"].day == 2
    assert row["repeats"] == 1
    assert row["device_time_s"] == 2 + 3 + 4, "the device was held for failures, too"
    assert not row["converged"]
    assert row["flags"] == ["drifting", "launch_bound"]
    assert row["batch_time_s"] == [1e-3, 2e-3, 1e-3]
    assert row["batch_undisturbed"] == [True, False, True]
    assert row["execution_batches"] == [1, 2]
    assert row["evicted_code_time_s"] == [2e-6, -1e-6], "one has none"


@pytest.mark.parametrize("factors", [(), [None] * 3 + [1.0] * 5], ids=["none", "failed"])
def test_too_few_tuples_with_several_executions_do_not_tell_their_scatter(tmp_path, factors):
    rows = in_two_rounds(tmp_path, *factors)
    assert {row["time_scatter"] for row in rows} == {None}
    assert all(row["status"] == "ok" for row in rows)


def test_executions_under_other_settings_do_not_count(tmp_path):
    rows = in_two_rounds(tmp_path, *[1.1, 0.9] * 5, conditions_json='{"other": 1}')
    assert {(row["executions"], row["time_s"]) for row in rows} == {(1, 1e-3)}


def test_an_execution_that_is_off_is_known_by_the_others(tmp_path):
    for number in range(12):
        for kind, factor in (("operators", 1.0), ("operators_2", 1.01), ("operators_3", 0.99)):
            measure(tmp_path, number, kind=kind, time_s=factor * 1e-3)
    measure(tmp_path, 5, kind="operators_2", time_s=3e-3)
    aggregate(tmp_path)
    [odd] = [row for row in database(tmp_path).to_pylist() if row["outlying_executions"]]
    assert odd["tuple_id"] == row(5)["tuple_id"]
    assert odd["time_s"] == pytest.approx(1e-3, rel=0.01)
    assert odd["execution_time_s"][1] == 3e-3
    assert odd["flags"] == ["executions_disagree"]
    measure(tmp_path, 5, kind="operators_2", time_s=1e-3)
    aggregate(tmp_path)
    assert {tuple(row["flags"]) for row in database(tmp_path).to_pylist()} == {()}


def test_what_calls_cost_is_at_the_usual_speed_of_the_core_from_the_first_round_on(tmp_path):
    for number in range(3):
        measure_at(tmp_path, number, 1.0)
    slow = Sample(10e-6 * 0.9**-3.5, 2e-6, 3e-6, False, core_speed_per_s=0.9 * 2500)
    device = DeviceFile("cpu", "Any", overhead=(slow,) * 6)
    write_device(tmp_path / "results/local/cpu-0/device.json", device)
    aggregate(tmp_path)
    for row in database(tmp_path).to_pylist():
        assert row["call_overhead_s"] == pytest.approx(10e-6)
        assert row["call_overhead_ci_low_s"] < 9e-6


def test_what_calls_cost_on_a_target_is_over_the_processes_of_all_rounds(tmp_path):
    measure(tmp_path, 1)
    measure(tmp_path, 1, "gpu")
    results = tmp_path / "results"
    write_device(results / "gpu/cpu-0/device.json", DeviceFile("cuda:0", "Any"))
    for name, call_s in (("device.json", 1e-6), ("overhead_2.json", 4e-6)):
        samples = (Sample(call_s, 2e-6, 3e-6, False),) * 2
        write_device(results / "local/cpu-0" / name, DeviceFile("cpu", "Any", overhead=samples))
    aggregate(tmp_path)
    gpu, here = database(tmp_path).to_pylist()
    assert here["call_overhead_s"] == pytest.approx(2.5e-6)
    assert here["call_overhead_ci_low_s"] < 1e-6
    assert here["displaced_call_overhead_ci_low_s"] == pytest.approx(2e-6)
    assert here["overhead_disturbed"] is False
    assert (gpu["call_overhead_s"], gpu["overhead_disturbed"]) == (None, None)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no row"),
        ([row(2), row(2)], "has two rows of local"),
        ([row(2) | {"tuple_id": "0" * 16}], "is damaged: tuple_id of 0000000000000000"),
        ([row(2) | {"canonical_json": None}], "that describes another"),
        ([row(1)], "holds the row of another tuple"),
    ],
    ids=["no row", "two rows", "another id", "no description", "another tuple"],
)
def test_a_file_that_is_not_what_it_says_is_named(tmp_path, rows, message):
    measure(tmp_path, 1)
    path = measure(tmp_path, 2)
    records.write(path, schemas.OPERATOR, rows)
    with pytest.raises(OpcostError) as caught:
        aggregate(tmp_path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "delete" in str(caught.value)
    assert not (tmp_path / "database.parquet").exists()


def test_a_study_asks_for_its_tuples_on_its_targets_under_its_conditions_alone(tmp_path):
    for number in range(4):
        measure(tmp_path, number, conditions_json=OLD if number == 3 else NEW)
        measure(tmp_path, number, "other", conditions_json=NEW)
        measure(tmp_path, number, "third", conditions_json=NEW)
    aggregate(tmp_path)
    ids = [row(number)["tuple_id"] for number in (2, 0, 3)]
    found = asked_for(database(tmp_path), {"other": NEW, "local": NEW}, ids)
    assert list(zip(found["target"].to_pylist(), found["tuple_id"].to_pylist(), strict=True)) == [
        *(("other", tuple_id) for tuple_id in ids),
        *(("local", tuple_id) for tuple_id in ids[:2]),
    ]
