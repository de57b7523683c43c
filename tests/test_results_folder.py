from pathlib import Path

import pytest
from opcost.results_folder import (
    MODELS,
    OPERATORS,
    Series,
    all_measurements,
    extraction,
    measurement,
    note,
    overhead_file,
    series_of,
    target_folder,
    target_folders,
    target_of,
)

PATHS = {
    (OPERATORS, 0): "results/local/operators/name.parquet",
    (OPERATORS, 1): "results/local/again/name.parquet",
    (MODELS, 0): "results/local/models/name.parquet",
    (MODELS, 1): "results/local/models_again/name.parquet",
    (MODELS, 0, "graph"): "results/local/models_graph/name.parquet",
}


@pytest.mark.parametrize("series", PATHS)
def test_a_measurements_path_says_what_it_is_of(series):
    kind, *others = series
    path = measurement(target_folder("local"), kind, "name", *others)
    assert str(path) == PATHS[series]
    assert (target_of(path), series_of(path)) == ("local", Series(*series))


def test_paths_of_existing_results_do_not_change():
    paths = [extraction("resnet18"), note("compare"), *map(overhead_file, [Path("x")] * 2, (0, 1))]
    assert [str(path) for path in paths] == [
        "results/tuples/resnet18.pkl",
        "results/.made/compare.json",
        "x/device.json",
        "x/overhead_again.json",
    ]


def test_targets_are_the_folders_with_a_device_or_measurements(tmp_path):
    for name in ("tuples/m.pkl", "a/device.json", "b/again/1.parquet", "b/models/.2.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [folder.name for folder in target_folders(tmp_path)] == ["a", "b"]
    assert [path.name for path in all_measurements(tmp_path / "b")] == ["1.parquet"]
