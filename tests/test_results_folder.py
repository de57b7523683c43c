from pathlib import Path

import pytest
from opcost.errors import OpcostError
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    Series,
    all_measurements,
    check_results,
    executions,
    executions_of,
    extraction,
    measurement,
    note,
    overhead_file,
    series_named,
    series_of,
    target_folder,
    target_folders,
    target_of,
)

PATHS = {
    (OPERATORS, 1): "results/local/operators/name.parquet",
    (OPERATORS, 2): "results/local/operators_2/name.parquet",
    (OPERATORS, 12): "results/local/operators_12/name.parquet",
    (MODELS, 1): "results/local/models/name.parquet",
    (MODELS, 3): "results/local/models_3/name.parquet",
    (MODELS, 1, "graph"): "results/local/models_graph/name.parquet",
}


@pytest.mark.parametrize("series", PATHS)
def test_a_measurements_path_says_what_it_is_of(series):
    kind, *others = series
    path = measurement(target_folder("local"), kind, "name", *others)
    assert str(path) == PATHS[series]
    assert (target_of(path), series_of(path)) == ("local", Series(*series))


def test_paths_of_existing_results_do_not_change():
    paths = [extraction("resnet18"), note("compare"), *map(overhead_file, [Path("x")] * 2, (1, 2))]
    assert [str(path) for path in paths] == [
        "results/tuples/resnet18.pkl",
        "results/.made/compare.json",
        "x/device.json",
        "x/overhead_2.json",
    ]


def test_targets_are_the_folders_with_a_device_or_measurements(tmp_path):
    for name in ("tuples/m.pkl", "a/device.json", "b/operators_2/1.parquet", "b/models/.2.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [folder.name for folder in target_folders(tmp_path)] == ["a", "b"]
    assert [path.name for path in all_measurements(tmp_path / "b")] == ["1.parquet"]


@pytest.mark.parametrize("name", ["operators_1", "operators_0", "tuples", "models_", "rounds"])
def test_other_folders_hold_no_measurements(name):
    assert series_named(name) is None


def test_executions_of_a_subject_are_in_the_order_of_rounds(tmp_path):
    files = ("operators/b", "operators_10/a", "operators_2/a", "operators/a", "models_2/a")
    for name in files:
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = executions(tmp_path, OPERATORS)
    assert [path.parent.name for path in found["a"]] == ["operators", "operators_2", "operators_10"]
    assert list(found) == ["a", "b"]
    assert executions_of(tmp_path, OPERATORS, "a") == found["a"]


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
