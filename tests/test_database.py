"""Every measurement there is stands in the database, and none that is not what it says."""

import math
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from opcost.databases.aggregation import write_database
from opcost.databases.database import asked_for
from opcost.databases.measured import find_measured
from opcost.databases.model_ratios import read_ratios
from opcost.devices.device_file import DeviceFile, Sample, write_device
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.rows.quantities import HOST_TIME, POWER, TIME
from opcost.rows.runs import ModelRatio
from opcost.statistics import student_97_5
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
        "block_iterations": number,
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
    names = ["target", "tuple_id", "time_s", "block_iterations", "status"]
    assert database(tmp_path).select(names).to_pylist() == rows.select(names).to_pylist()
    assert len(rows) == 4


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


def in_rounds(folder, number, *times_s, **changes):
    """Measure an operator once in each round."""
    for count, time_s in enumerate(times_s, 1):
        kind = "operators" if count == 1 else f"operators_{count}"
        measure(folder, number, kind=kind, time_s=time_s, **changes)


def by_number(folder):
    """The rows of a new database by number of the operator."""
    aggregate(folder)
    return {each["block_iterations"]: each for each in database(folder).to_pylist()}


def test_a_row_combines_the_runs_of_all_rounds(tmp_path):
    limits = {"time_ci_low_s": 0.9e-3, "time_ci_high_s": 1.2e-3}
    power = {"power_w": 50.0, "power_ci_low_w": 49.0, "power_ci_high_w": 51.0, "energy_j": 0.05}
    in_rounds(tmp_path, 0, 1e-3, 1.1e-3, 0.95e-3, **limits)
    measure(tmp_path, 0, kind="operators_3", time_s=1e-3, temperature_end_c=61.0, **power)
    found = by_number(tmp_path)[0]
    before = (tmp_path / "database.parquet").read_bytes()
    assert found["runs"] == 3
    assert found["run_round"] == [1, 2, 3]
    assert found["run_time_s"] == [1e-3, 1.1e-3, 1e-3]
    error = math.log(1.2 / 0.9) / 2 / 1.96
    assert found["run_time_error"] == [*[pytest.approx(error, rel=1e-4)] * 2, None]
    assert found["run_power_w"] == [None, None, 50.0]
    assert found["run_temperature_c"] == [None, None, 61.0]
    assert found["run_host_time_s"] is None
    assert found["time_s"] == pytest.approx(1.1 ** (1 / 3) * 1e-3)
    assert found["energy_j"] == pytest.approx(50 * found["time_s"]), "of the power of one"
    aggregate(tmp_path)
    assert (tmp_path / "database.parquet").read_bytes() == before, "combined once, not twice"


@pytest.mark.parametrize(
    ("quantity", "usual"), [(TIME, 0.02), (HOST_TIME, 0.02), (POWER, 0.01)], ids=str
)
def test_the_interval_of_a_row_is_of_its_own_runs(tmp_path, quantity, usual):
    """Its run-to-run variation is a mean of the usual one, four times, and of its own runs."""
    for number, factor in enumerate([1.0, 1.03, 1.09]):
        measure(tmp_path, number, **{quantity.value: 1e-3})
        measure(tmp_path, number, kind="operators_2", **{quantity.value: 1e-3 * factor})
    for number, row in by_number(tmp_path).items():
        apart = math.log([1.0, 1.03, 1.09][number])
        error = math.sqrt((4 * usual**2 + apart**2 / 2) / (4 + 1) / 2)
        found = quantity.read(row)
        assert found.value == pytest.approx(1e-3 * math.exp(apart / 2))
        assert math.log(found.high / found.value) == pytest.approx(student_97_5(5) * error)
        assert found.high / found.value == pytest.approx(found.value / found.low)


def test_a_tuple_or_a_model_added_to_a_study_changes_no_other_row(tmp_path):
    in_rounds(tmp_path, 0, 1e-3, 1.1e-3)
    in_rounds(tmp_path, 1, 2e-3)
    in_rounds(tmp_path, 2, 3e-3, 3.01e-3, 9e-3)
    samples = (Sample(1e-6, 2e-6, 3e-6, False),) * 2
    device = DeviceFile("cpu", "Any", overhead=samples)
    write_device(tmp_path / "results/local/cpu-0/device.json", device)
    path = tmp_path / "database.parquet"
    measured = find_measured(tmp_path / "results")
    ratio = ModelRatio("net", False, 0.02, None)
    write_database(measured, path, ratios=lambda *_: {"local": [ratio]})
    before = database(tmp_path).to_pylist()
    assert len(before) == 3

    in_rounds(tmp_path, 3, 1e-3, 5e-3, 7e-3, flags=["drifting"])
    measured = find_measured(tmp_path / "results")
    more = [ratio, ModelRatio("other", True, 0.5, 0.1)]
    write_database(measured, path, ratios=lambda *_: {"local": more})
    after = database(tmp_path).to_pylist()
    assert [row for row in after if row["block_iterations"] != 3] == before
    assert len(after) == 4
    assert read_ratios(path) == {"local": more}


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
    [text] = aggregate(tmp_path)
    assert f"{folder}_2" in text
    assert "copies of files of other rounds, which count once" in text
    assert database(tmp_path).to_pylist() == before
    measure(tmp_path, 0, kind="operators_2", time_s=1e-3, started_at=datetime(2026, 1, 2))
    assert by_number(tmp_path)[0]["runs"] == 2, "of another run, though it took as long"


def test_disturbed_runs_count_only_where_there_is_no_other(tmp_path):
    busy = {"time_s": 3e-3, "flags": ["disturbed"]}
    measure(tmp_path, 0, time_s=1e-3)
    measure(tmp_path, 0, kind="operators_2", **busy)
    for kind in ("operators", "operators_2"):
        measure(tmp_path, 1, kind=kind, **busy)
    found = by_number(tmp_path)
    quiet, never_quiet = found[0], found[1]
    assert (quiet["run_time_s"], quiet["run_round"]) == ([1e-3], [1])
    assert (quiet["time_s"], quiet["flags"]) == (1e-3, [])
    assert [each["disturbed_runs"] for each in (quiet, never_quiet)] == [1, 0]
    assert (never_quiet["run_time_s"], never_quiet["flags"]) == ([3e-3] * 2, ["disturbed"])


def test_an_older_result_of_other_conditions_does_not_hide_a_failure(tmp_path):
    failed = {"time_s": None, "status": "timeout", "error": "took too long"}
    measure(tmp_path, 0, **failed)
    measure(tmp_path, 0, kind="operators_2", time_s=1e-3, conditions_json='{"other": 1}')
    measure(tmp_path, 1, **failed)
    measure(tmp_path, 1, kind="operators_2", time_s=1e-3)
    aggregate(tmp_path)
    found = {each["tuple_id"]: each["status"] for each in database(tmp_path).to_pylist()}
    assert found == {row(0)["tuple_id"]: "timeout", row(1)["tuple_id"]: "ok"}


def test_runs_are_joined_as_each_column_says(tmp_path):
    undisturbed = {"block_time_s": [1e-3], "block_undisturbed": [True]}
    measure(
        tmp_path, 0, converged=True, repeats=1, device_time_s=2.0, load_average=0.5,
        flags=["drifting", "launch_bound"], ended_at=datetime(2026, 1, 1, tzinfo=UTC),
        **undisturbed,
    )  # fmt: skip
    measure(
        tmp_path, 0, kind="operators_2", converged=False, repeats=None, device_time_s=3.0,
        load_average=9.0, flags=["drifting"], ended_at=datetime(2026, 1, 2, tzinfo=UTC),
        block_time_s=[2e-3, 1e-3], block_undisturbed=[False, True],
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
    assert row["block_time_s"] == [1e-3, 2e-3, 1e-3]
    assert row["block_undisturbed"] == [True, False, True]
    assert row["run_blocks"] == [1, 2]


@pytest.mark.parametrize("times_s", [[1e-3, 1.5e-3], [1e-3, 1.01e-3, 1.5e-3], [1e-3] * 5 + [2e-3]])
def test_runs_that_disagree_are_flagged_and_lie_in_the_interval(tmp_path, times_s):
    in_rounds(tmp_path, 0, *times_s, flags=["drifting"])
    row = by_number(tmp_path)[0]
    assert row["flags"] == ["drifting", "runs_disagree"]
    assert row["time_ci_low_s"] <= min(times_s)
    assert row["time_ci_high_s"] >= max(times_s)


@pytest.mark.parametrize("block", [1.0, 1.5], ids=["narrow blocks", "wide blocks"])
def test_runs_that_usual_variation_or_their_blocks_explain_do_not_disagree(tmp_path, block):
    times_s = [1e-3, 1.08e-3] if block == 1.0 else [1e-3, 1.5e-3]
    for kind, time_s in zip(("operators", "operators_2"), times_s, strict=True):
        limits = {"time_ci_low_s": time_s / block, "time_ci_high_s": time_s * block}
        measure(tmp_path, 0, kind=kind, time_s=time_s, **limits)
    assert by_number(tmp_path)[0]["flags"] == []


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
    assert here["cold_call_overhead_ci_low_s"] == pytest.approx(2e-6)
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
