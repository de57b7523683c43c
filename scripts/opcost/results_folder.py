"""Every path below the folder of results: rules, scripts and the package take them from here.

    results/*                                 tables of a study (constants below)
    results/tuples/MODEL.pkl                  a model's operator tuples and calls
    results/.made/RULE.json                   what a rule made its tables from
    results/TARGET/device.json                the target's device; replicate 0 of the call overhead
    results/TARGET/sensor.json                its power sensor
    results/TARGET/calls/MODEL.pkl            a model's tuples and calls, recorded on the device
    results/TARGET/operators/TUPLE_ID.parquet replicate 0 of an operator, one row
    results/TARGET/again/TUPLE_ID.parquet     replicate 1
    results/TARGET/models/MODEL.parquet       replicate 0 of a whole model, one row
    results/TARGET/models_again/MODEL.parquet replicate 1
    results/TARGET/models_MODE/MODEL.parquet  a whole model in another launch mode
    results/TARGET/overhead_again.json        replicate 1 of the call overhead

Names may be patterns of Snakemake: `extraction("{model}")`.
"""

from pathlib import Path
from typing import NamedTuple

RESULTS = Path("results")

MANIFEST = RESULTS / "operator_tuples.json"
MODEL_TABLE = RESULTS / "models.parquet"
DATABASE = RESULTS / "database.parquet"
COMPARISON = RESULTS / "comparison.parquet"
SHARES = RESULTS / "shares.parquet"
MODULES = RESULTS / "modules.parquet"
LAUNCHES = RESULTS / "launches.parquet"
SUMMARY = RESULTS / "summary.txt"
FIGURE = RESULTS / "cost.svg"
REPORT = RESULTS / "report.html"

_TUPLES = "tuples"
CALLS = "calls"
"""The folder of a target's recordings."""
RESERVED = (_TUPLES,)
"""Names that a target must not have, because other folders of the results have them."""

OPERATORS, MODELS = KINDS = ("operators", "models")
"""What is measured."""
REPLICATES = (0, 1)
"""The first measurement, and the replicate that shows how well it reproduces."""

EAGER, *FURTHER_MODES = LAUNCH_MODES = ("eager", "graph", "compiled")
"""How whole models are run (opcost.measuring.launch); operators are called one by one."""


class Series(NamedTuple):
    """Measurements of one kind: which replicate, in which launch mode."""

    kind: str
    replicate: int = 0
    launch_mode: str = EAGER


SERIES = {
    "operators": Series(OPERATORS),
    "models": Series(MODELS),
    "again": Series(OPERATORS, 1),
    "models_again": Series(MODELS, 1),
    **{f"models_{mode}": Series(MODELS, 0, mode) for mode in FURTHER_MODES},
}
"""Folder of measurements -> which they are."""
_FOLDERS = {series: name for name, series in SERIES.items()}
_OVERHEADS = ("device.json", "overhead_again.json")


def target_folder(target: str, results: Path = RESULTS) -> Path:
    """The folder of a target's measurements, as the other functions expect it."""
    return results / target


def target_folders(results: Path = RESULTS) -> list[Path]:
    """The folders of all targets with measurements, of this study or another."""
    return [folder for folder in sorted(results.glob("*/")) if _is_target(folder)]


def _is_target(folder: Path) -> bool:
    return device_file(folder).exists() or any((folder / name).is_dir() for name in SERIES)


def device_file(folder: Path) -> Path:
    """The file of the target's device."""
    return folder / "device.json"


def sensor_file(folder: Path) -> Path:
    """The file of the device's power sensor."""
    return folder / "sensor.json"


def overhead_file(folder: Path, replicate: int = 0) -> Path:
    """The file with a replicate of the call overhead; replicate 0 is in the device's file."""
    return folder / _OVERHEADS[replicate]


def environment_note(folder: Path) -> Path:
    """The file in which a job notes that the target's environment has changed."""
    return folder / "environment_changed.txt"


def measurement_folder(
    folder: Path, kind: str, replicate: int = 0, launch_mode: str = EAGER
) -> Path:
    """The folder of all measurements of a series."""
    return folder / _FOLDERS[Series(kind, replicate, launch_mode)]


def all_series(kind: str) -> str:
    """Snakemake's wildcard `series`: the folders of all measurements of a kind."""
    return f"{{series,{'|'.join(name for name, series in SERIES.items() if series[0] == kind)}}}"


def measurement_in(folder: Path, series: str, name: str) -> Path:
    """The file of one measurement in the folder of a series."""
    return folder / series / f"{name}.parquet"


def measurement(
    folder: Path, kind: str, name: str, replicate: int = 0, launch_mode: str = EAGER
) -> Path:
    """The file of one measurement; `name` is a tuple id or a model."""
    return measurement_in(folder, _FOLDERS[Series(kind, replicate, launch_mode)], name)


def measurements(
    folder: Path, kind: str, replicate: int = 0, launch_mode: str = EAGER
) -> list[Path]:
    """The files of all measurements of a series on a target, by name."""
    return sorted(measurement_folder(folder, kind, replicate, launch_mode).glob("[!.]*.parquet"))


def all_measurements(folder: Path) -> list[Path]:
    """The files of all measurements on a target, operators first."""
    return [path for series in SERIES.values() for path in measurements(folder, *series)]


def target_of(path: Path) -> str:
    """The target of a measurement's file."""
    return path.parent.parent.name


def key_of(path: Path) -> tuple[str, str]:
    """The target of a measurement's file, and its tuple id or model."""
    return target_of(path), path.stem


def series_of(path: Path) -> Series:
    """The series of a measurement's file."""
    return SERIES[path.parent.name]


def extraction(model: str, results: Path = RESULTS) -> Path:
    """The file of a model's operator tuples and calls."""
    return results / _TUPLES / f"{model}.pkl"


def extractions(results: Path = RESULTS) -> list[Path]:
    """All extracted models, of this study or another."""
    return sorted((results / _TUPLES).glob("[!.]*.pkl"))


def recording(folder: Path, model: str) -> Path:
    """The file of a model's operator tuples and calls, recorded on the target's device."""
    return folder / CALLS / f"{model}.pkl"


def recordings(folder: Path) -> list[Path]:
    """All models whose calls were recorded on a target's device."""
    return sorted((folder / CALLS).glob("[!.]*.pkl"))


def note(rule: str) -> Path:
    """The note of a rule's tables (`fingerprint`)."""
    return RESULTS / ".made" / f"{rule}.json"
