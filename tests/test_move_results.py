"""Results of the former layout, and `python -m opcost.move_results`, which moves them."""

import json
import pickle
import shutil
import tarfile
from pathlib import Path

import pytest
from opcost import move_results as command
from opcost.devices.device_file import read_device
from opcost.errors import OpcostError
from opcost.move_results import move_results
from opcost.results_folder import all_measurements, check_results, target_folders

STUDY = Path(__file__).parent / "golden" / "simulated_gpu.tar.xz"
MODELS = ("tiny_cnn", "tiny_mlp")


@pytest.fixture(scope="module")
def former(tmp_path_factory):
    """A finished study of two models, with the first operators alone."""
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(STUDY) as files:
        names = [name for name in files.getnames() if "results/local/" in name]
        operators = [name for name in names if "/operators/" in name][:3]
        of_models = [
            f"results/{there}"
            for model in MODELS
            for there in (
                f"tuples/{model}.pkl",
                f"local/calls/{model}.pkl",
                f"local/models/{model}.parquet",
            )
        ]
        facts = [name for name in names if name.endswith(".json") and "/rounds/" not in name]
        for name in (*operators, *of_models, *facts):
            files.extract(name, folder, filter="data")
    return folder / "results"


@pytest.fixture
def results(former, tmp_path):
    return shutil.copytree(former, tmp_path / "results")


def every_file(results):
    return {str(path.relative_to(results)): path for path in results.rglob("*") if path.is_file()}


def contents(results):
    return {name: path.read_bytes() for name, path in every_file(results).items()}


def moved_to(results):
    [folder] = target_folders(results)
    return folder


def test_all_that_was_measured_and_is_known_of_the_device_is_moved(results):
    names = {path.name for path in (results / "local").glob("*.json")}
    assert move_results(results) == 3 + len(MODELS)
    folder = moved_to(results)
    assert {path.name for path in folder.glob("*.json")} == names | {"settings.json"}
    assert len(all_measurements(folder)) == 3 + len(MODELS)
    assert len([*folder.glob("calls/*.pkl")]) == len(MODELS)
    assert [*(results / "local").iterdir()] == [folder]
    check_results(results)


def test_rows_of_the_last_unreleased_version_are_moved(results):
    for path in (results / "local").glob("operators/*.parquet"):
        table = command.pq.read_table(path)
        metadata = {**table.schema.metadata, b"opcost.schema_version": b"14"}
        command.records.write(path, table.schema.with_metadata(metadata), table.to_pylist())
    assert move_results(results) == 3 + len(MODELS)
    check_results(results)


def test_what_is_in_the_present_layout_already_stays(results):
    move_results(results)
    folder = moved_to(results)
    before = contents(results)
    other = "0" * 16
    former = results / "local/operators"
    former.mkdir()
    shutil.copy(next(folder.glob("operators/*.parquet")), former / f"{other}.parquet")
    device = results / "local/device.json"
    shutil.copy(folder / "device.json", device)
    assert move_results(results) == 1
    assert not device.exists()
    after = contents(results)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {
        str((folder / "operators" / f"{other}.parquet").relative_to(results))
    }


@pytest.mark.parametrize("killed_at", range(11))
def test_a_move_that_was_killed_goes_on(former, tmp_path, killed_at, monkeypatch):
    whole = shutil.copytree(former, tmp_path / "whole")
    move_results(whole)
    results, number = shutil.copytree(former, tmp_path / "results"), 0
    rename = Path.rename

    def kill(path, there):
        nonlocal number
        number += 1
        if number > killed_at:
            raise KeyboardInterrupt
        return rename(path, there)

    monkeypatch.setattr(Path, "rename", kill)
    with pytest.raises(KeyboardInterrupt):
        move_results(results)
    monkeypatch.undo()
    with pytest.raises(OpcostError, match=r"opcost\.move_results"):
        check_results(results)
    move_results(results)
    assert every_file(results).keys() == every_file(whole).keys()


def test_files_of_others_stay(results):
    names = ["notes.txt", "local/notes.json", "local/plots/a.png", "local/operators/notes.txt"]
    names += ["local/rounds/mine.json", ".made/mine.txt"]
    for name in names:
        (results / name).parent.mkdir(exist_ok=True)
        (results / name).write_text("mine")
    move_results(results)
    assert {(results / name).read_text() for name in names} == {"mine"}
    check_results(results)


def test_plans_and_tables_of_the_former_layout_are_deleted(results):
    names = ["operator_tuples.json", ".made/collect.json", "local/rounds/2.json"]
    for name in names:
        (results / name).parent.mkdir(exist_ok=True)
        (results / name).write_text("{}")
    move_results(results)
    assert not any((results / name).exists() for name in names)
    assert not (results / ".made").exists()


@pytest.fixture
def beside(results, former):
    """The results, moved, with those of the former layout beside them once more."""
    move_results(results)
    folder = moved_to(results)
    shutil.copytree(former, results, dirs_exist_ok=True)
    return folder


def test_what_was_moved_and_is_there_once_more_is_deleted(results, beside):
    before = contents(results / "local" / beside.name)
    assert move_results(results) == 0
    assert contents(beside) == before
    assert [*(results / "local").iterdir()] == [beside]


def of_another_time(path):
    row = command._read_row(path)
    schema = command.schemas.MEASUREMENTS[command.series_of(path).kind]
    command.records.write(path, schema, [row | {"started_at": row["ended_at"]}])


def of_another_size(path):
    document = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(document | {"parameters": 1}))


def of_another_name(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"device_name": "another"}))


@pytest.mark.parametrize(
    ("pattern", "change"),
    [
        ("local/*/operators/*.parquet", of_another_time),
        ("local/*/models/*.parquet", of_another_time),
        ("local/*/calls/*.pkl", of_another_size),
        ("tuples/*-*.pkl", of_another_size),
        ("local/*/sensor.json", of_another_name),
        ("local/*/device.json", of_another_name),
    ],
)
def test_two_different_files_of_one_place_are_named_and_stay(results, beside, pattern, change):
    there = sorted(results.glob(pattern))[0]
    change(there)
    before = contents(results)
    with pytest.raises(OpcostError, match="differs: nothing was moved; move one of") as caught:
        move_results(results)
    assert str(there) in str(caught.value)
    assert contents(results).keys() == before.keys()
    assert there.read_bytes() == before[str(there.relative_to(results))]


class Evil:
    def __init__(self, there):
        self.there = there

    def __reduce__(self):
        return Path.touch, (self.there,)


@pytest.mark.parametrize("name", ["tuples/tiny_cnn.pkl", "local/calls/tiny_cnn.pkl"])
def test_code_in_a_file_of_tuples_is_not_run(results, tmp_path, name):
    (results / name).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(OpcostError, match=f"{name} is damaged .*plain data only"):
        move_results(results)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["truncated", "empty", "folder"])
@pytest.mark.parametrize(
    "pattern",
    ["tuples/*.pkl", "local/calls/*.pkl", "local/*/*.parquet", "local/device.json"],
)
def test_a_damaged_file_is_named_before_anything_is_moved(results, pattern, damage):
    path = sorted(results.glob(pattern))[-1]
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(content[: len(content) // 2 if damage == "truncated" else 0])
    before = contents(results).keys()
    with pytest.raises(OpcostError, match=f"{path}.*: (move it|delete)"):
        move_results(results)
    assert contents(results).keys() == before


def test_without_the_device_file_rows_know_their_device(former, results, tmp_path):
    (results / "local/device.json").unlink()
    with pytest.raises(OpcostError, match=r"local is of an earlier opcost.*opcost\.move_results"):
        check_results(results)
    move_results(results)
    whole = shutil.copytree(former, tmp_path / "whole")
    move_results(whole)
    assert moved_to(results).name == moved_to(whole).name
    assert every_file(results).keys() == {
        each for each in every_file(whole) if not each.endswith("device.json")
    }


def test_a_device_on_which_nothing_was_measured_is_named(results):
    for series in ("operators", "models"):
        shutil.rmtree(results / "local" / series)
    with pytest.raises(OpcostError, match=r"no measurements .* delete .*local/device\.json"):
        move_results(results)
    assert read_device(results / "local/device.json").device.startswith("cuda")
