from pathlib import Path

import pytest
from opcost.addresses import refuse_other_device
from opcost.errors import OpcostError
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    Series,
    all_measurements,
    check_results,
    extraction,
    folder_of,
    measurement,
    overhead_file,
    runs_by_subject,
    runs_of_subject,
    series_named,
    series_of,
    target_folder,
    target_folders,
)

PATHS = {
    (OPERATORS, 1): "results/local/cpu-1/operators/name.parquet",
    (OPERATORS, 2): "results/local/cpu-1/operators_2/name.parquet",
    (OPERATORS, 12): "results/local/cpu-1/operators_12/name.parquet",
    (MODELS, 1): "results/local/cpu-1/models/name.parquet",
    (MODELS, 3): "results/local/cpu-1/models_3/name.parquet",
    (MODELS, 1, "graph"): "results/local/cpu-1/models_graph/name.parquet",
}


@pytest.mark.parametrize("series", PATHS)
def test_a_measurements_path_says_what_it_is_of(series):
    kind, *others = series
    path = measurement(target_folder("local", "cpu-1"), kind, "name", *others)
    assert str(path) == PATHS[series]
    assert folder_of(path) == target_folder("local", "cpu-1")
    assert series_of(path) == Series(*series)


def test_paths_of_existing_results_do_not_change():
    paths = [extraction("resnet18-0"), *map(overhead_file, [Path("x")] * 2, (1, 2))]
    assert [str(path) for path in paths] == [
        "results/tuples/resnet18-0.pkl",
        "x/device.json",
        "x/overhead_2.json",
    ]


def test_targets_are_the_folders_with_a_device_or_measurements(tmp_path):
    for name in ("tuples/m.pkl", "t/a/device.json", "t/b/operators_2/1.parquet", "t/b/models/.2"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [folder.name for folder in target_folders(tmp_path)] == ["a", "b"]
    assert [path.name for path in all_measurements(tmp_path / "t/b")] == ["1.parquet"]


@pytest.mark.parametrize("name", ["operators_1", "operators_0", "tuples", "models_", "rounds"])
def test_other_folders_hold_no_measurements(name):
    assert series_named(name) is None


def test_runs_of_a_subject_are_in_the_order_of_rounds(tmp_path):
    files = ("operators/b", "operators_10/a", "operators_2/a", "operators/a", "models_2/a")
    for name in files:
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = runs_by_subject(tmp_path, OPERATORS)
    assert [path.parent.name for path in found["a"]] == ["operators", "operators_2", "operators_10"]
    assert list(found) == ["a", "b"]
    assert runs_of_subject(tmp_path, OPERATORS, "a") == found["a"]


def test_results_that_are_a_file_are_refused(tmp_path):
    results = tmp_path / "results"
    check_results(results)
    results.mkdir()
    check_results(results)
    results.rmdir()
    results.touch()
    with pytest.raises(OpcostError, match=r"is no folder, .*: move it away"):
        check_results(results)
    results.unlink()
    results.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OpcostError, match="is no folder"):
        check_results(results)


def test_results_of_a_device_are_not_put_into_the_folder_of_another(tmp_path):
    folder = tmp_path / "local" / "cpu-1thread-torch2.15.0-01234567"
    refuse_other_device(folder, "cpu")
    refuse_other_device(folder.with_name("cuda0-1thread-01234567"), "cuda:0")
    refuse_other_device(folder.with_name("auto-1thread-01234567"), "cuda:0")
    with pytest.raises(OpcostError, match="`auto` is cuda:0: set `device` of the target to cuda:0"):
        refuse_other_device(folder, "cuda:0")
