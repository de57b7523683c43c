"""Every path below the folder of results: rules, scripts and the package take them from here.

    results/.opcost.lock                      held by the run that writes here (run_lock)
    results/*                                 tables of a study (constants below)
    results/tuples/MODEL.pkl                  a model's operator tuples and calls
    results/.made/RULE.json                   what a rule made its tables from
    results/TARGET/device.json                the target's device; call overhead in round 1
    results/TARGET/sensor.json                its power sensor
    results/TARGET/calls/MODEL.pkl            a model's tuples and calls, recorded on the device
    results/TARGET/operators/TUPLE_ID.parquet an operator in round 1: one execution, one row
    results/TARGET/operators_2/...            round 2, and so on
    results/TARGET/models/MODEL.parquet       a whole model in round 1
    results/TARGET/models_2/...               round 2, and so on
    results/TARGET/models_MODE/MODEL.parquet  a whole model in another launch mode
    results/TARGET/overhead_2.json            call overhead in round 2, and so on
    results/TARGET/rounds/2.json              what is measured in round 2, and so on

Names may be patterns of Snakemake: `extraction("{model}")`.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from opcost.errors import OpcostError
from opcost.launch_modes import EAGER, FURTHER_MODES

RESULTS = Path("results")

MANIFEST = RESULTS / "operator_tuples.json"
MODEL_TABLE = RESULTS / "models.parquet"
DATABASE = RESULTS / "database.parquet"
COMPARISON = RESULTS / "comparison.parquet"
SHARES = RESULTS / "shares.parquet"
MODULES = RESULTS / "modules.parquet"
IN_PLACE = RESULTS / "in_place.parquet"
LAUNCHES = RESULTS / "launches.parquet"
REQUESTS = RESULTS / "requests.parquet"
SWEEPS = RESULTS / "sweeps.parquet"
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


class Series(NamedTuple):
    """Measurements of one kind: in which round, from 1 on, and in which launch mode."""

    kind: str
    round: int = 1
    launch_mode: str = EAGER

    @property
    def folder(self) -> str:
        """The name of their folder."""
        return self.kind + (f"_{self.round}" if self.round > 1 else self._mode)

    @property
    def _mode(self) -> str:
        return "" if self.launch_mode == EAGER else f"_{self.launch_mode}"


_LATER_ROUND = "[2-9]|[1-9][0-9]+"
_SERIES = {
    OPERATORS: f"{OPERATORS}(?:_(?:{_LATER_ROUND}))?",
    MODELS: f"{MODELS}(?:_(?:{'|'.join([_LATER_ROUND, *FURTHER_MODES])}))?",
}
"""Kind -> pattern of the names of its folders."""


def series_named(name: str) -> Series | None:
    """The series of a folder of measurements; None for another folder."""
    for kind, pattern in _SERIES.items():
        if re.fullmatch(pattern, name):
            suffix = name.removeprefix(kind)[1:]
            if suffix in FURTHER_MODES:
                return Series(kind, launch_mode=suffix)
            return Series(kind, int(suffix or 1))
    return None


def check_results(results: Path = RESULTS) -> None:
    """Raise OpcostError if there is something of the folder's name that is none."""
    if os.path.lexists(results) and not results.is_dir():
        raise OpcostError(
            f"{results} is no folder, and opcost writes into one of that name: move it away"
        )


def target_folder(target: str, results: Path = RESULTS) -> Path:
    """The folder of a target's measurements, as the other functions expect it."""
    return results / target


def target_folders(results: Path = RESULTS) -> list[Path]:
    """The folders of all targets with measurements, of this study or another."""
    return [folder for folder in sorted(results.glob("*/")) if _is_target(folder)]


def _is_target(folder: Path) -> bool:
    return device_file(folder).exists() or bool(_series_in(folder))


def _series_in(folder: Path) -> list[Series]:
    """The series that a target has, operators first."""
    found = (series_named(path.name) for path in folder.glob("*/"))
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(filter(None, found), key=lambda each: (order[each.kind], *each[1:]))


def device_file(folder: Path) -> Path:
    """The file of the target's device."""
    return folder / "device.json"


def sensor_file(folder: Path) -> Path:
    """The file of the device's power sensor."""
    return folder / "sensor.json"


def overhead_file(folder: Path, number: int | str = 1) -> Path:
    """The file with the call overhead of a round; that of round 1 is the device's file."""
    return device_file(folder) if number == 1 else folder / f"overhead_{number}.json"


def overhead_files(folder: Path) -> list[Path]:
    """The existing files with call overhead, by round."""
    further = (re.fullmatch(r"overhead_(\d+)\.json", path.name) for path in folder.glob("*.json"))
    rounds = sorted(int(found[1]) for found in further if found)
    return [path for number in (1, *rounds) if (path := overhead_file(folder, number)).is_file()]


def round_plan(folder: Path, number: int | str) -> Path:
    """The file that says what is measured in a round from 2 on."""
    return folder / "rounds" / f"{number}.json"


def environment_note(folder: Path) -> Path:
    """The file in which a job notes that the target's environment has changed."""
    return folder / "environment_changed.txt"


def all_series(kind: str) -> str:
    """Snakemake's wildcard `series`: the folders of all measurements of a kind."""
    return f"{{series,{_SERIES[kind]}}}"


def measurement_in(folder: Path, series: str, name: str) -> Path:
    """The file of one measurement in the folder of a series."""
    return folder / series / f"{name}.parquet"


def measurement(
    folder: Path, kind: str, name: str, number: int = 1, launch_mode: str = EAGER
) -> Path:
    """The file of one measurement; `name` is a tuple id or a model, `number` that of the round."""
    return measurement_in(folder, Series(kind, number, launch_mode).folder, name)


def measurements(folder: Path, kind: str, number: int = 1, launch_mode: str = EAGER) -> list[Path]:
    """The files of all measurements of a series on a target, by name."""
    within = folder / Series(kind, number, launch_mode).folder
    return sorted(within.glob("[!.]*.parquet"))


def executions(folder: Path, kind: str) -> dict[str, list[Path]]:
    """Name -> the files of its measurements in all rounds, in their order; by name."""
    found: dict[str, list[Path]] = {}
    for series in _series_in(folder):
        if series.kind == kind and series.launch_mode == EAGER:
            for path in measurements(folder, *series):
                found.setdefault(path.stem, []).append(path)
    return dict(sorted(found.items()))


def executions_of(folder: Path, kind: str, name: str) -> list[Path]:
    """The files of one subject's measurements in all rounds, in their order."""
    series = (each for each in _series_in(folder) if each == Series(kind, each.round))
    paths = (measurement_in(folder, each.folder, name) for each in series)
    return [path for path in paths if path.is_file()]


def all_measurements(folder: Path) -> list[Path]:
    """The files of all measurements on a target, operators first."""
    return [path for series in _series_in(folder) for path in measurements(folder, *series)]


def target_of(path: Path) -> str:
    """The target of a measurement's file."""
    return path.parent.parent.name


def key_of(path: Path) -> tuple[str, str]:
    """The target of a measurement's file, and its tuple id or model."""
    return target_of(path), path.stem


def series_of(path: Path) -> Series:
    """The series of a measurement's file."""
    found = series_named(path.parent.name)
    assert found is not None, path
    return found


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
