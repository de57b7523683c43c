"""Every path below the results folder: rules, jobs and the package take them from here.

    results/.opcost.lock                 held by the run that writes here (run_lock)
    results/*                            tables of measurements (constants below)
    results/modules/NAME-DIGEST/         measured modules of Python code (opcost.run)
    results/tuples/MODEL-DIGEST.pkl      a model's operator tuples and calls (addresses)
    results/studies/STUDY/study.json     the configuration of a study (studies)
    results/studies/STUDY/operator_tuples.json
                                         its unique operator tuples
    results/TARGET/CONDITIONS/           a target under some conditions (addresses)
      settings.json                      its settings
      device.json                        its device; call overhead in round 1
      sensor.json                        its power sensor
      calls/MODEL-DIGEST.pkl             a model's tuples and calls, traced on the device
      operators/TUPLE_ID.parquet         an operator in round 1: one run, one row
      operators_2/...                    round 2, and so on
      models/MODEL-DIGEST.parquet        a model end to end in round 1
      models_2/...                       round 2, and so on
      models_MODE/MODEL-DIGEST.parquet   a model end to end in another launch mode
      overhead_2.json                    call overhead in round 2, and so on
      rounds/STUDY-2.json                the plan of a study's round 2, and so on

Names may be patterns of Snakemake: `extraction("{model}")`.
"""

import os
import re
from glob import escape
from pathlib import Path
from typing import NamedTuple

from opcost.errors import OpcostError
from opcost.groups import grouped
from opcost.launch_modes import EAGER, FURTHER_MODES

RESULTS = Path("results")

MODEL_TABLE = RESULTS / "models.parquet"
DATABASE = RESULTS / "database.parquet"
ANSWERS = RESULTS / "answers.parquet"
COMPARISON = RESULTS / "comparison.parquet"
SHARES = RESULTS / "shares.parquet"
MODULES = RESULTS / "modules.parquet"
IN_CONTEXT = RESULTS / "in_context.parquet"
LAUNCHES = RESULTS / "launches.parquet"
REQUESTS = RESULTS / "requests.parquet"
SWEEPS = RESULTS / "sweeps.parquet"
SUMMARY = RESULTS / "summary.txt"
DETAILS = RESULTS / "details.txt"
FIGURE = RESULTS / "cost.svg"
REPORT = RESULTS / "report.html"

SAVED_MODULES = RESULTS / "modules"
"""Live modules saved by `opcost.run`, each in its own folder."""

_TUPLES = "tuples"
STUDIES = RESULTS / "studies"
CALLS = "calls"
"""The folder of a target's traces."""
ROUNDS = "rounds"
"""The folder of plans."""
RESERVED = (_TUPLES, STUDIES.name, SAVED_MODULES.name)
"""Names that a target must not have, because other folders of the results have them."""

OPERATORS, MODELS = KINDS = ("operators", "models")
"""The kinds of measurements."""


class Series(NamedTuple):
    """Measurements of one kind, round (from 1 on) and launch mode."""

    kind: str
    round: int = 1
    launch_mode: str = EAGER

    @property
    def folder(self) -> str:
        """The name of the series' folder."""
        mode = "" if self.launch_mode == EAGER else f"_{self.launch_mode}"
        return self.kind + (f"_{self.round}" if self.round > 1 else mode)


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
    """Raise OpcostError if the results folder exists and is not a directory."""
    if os.path.lexists(results) and not results.is_dir():
        raise OpcostError(
            f"{results} is no folder, but opcost writes to a folder of that name: move it away"
        )


def target_folder(target: str, conditions: str, results: Path = RESULTS) -> Path:
    """The folder of a target's measurements under conditions with a name (`addresses`); other
    functions take it as `folder`.
    """
    return results / target / conditions


def target_folders(results: Path = RESULTS) -> list[Path]:
    """The folders of all targets with measurements, of this study or another."""
    return [
        folder
        for folder in sorted(results.glob("*/*/"))
        if device_file(folder).exists() or _series_in(folder)
    ]


def _series_in(folder: Path) -> list[Series]:
    """The series of a target, operators first."""
    found = (series_named(path.name) for path in folder.glob("*/"))
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(filter(None, found), key=lambda each: (order[each.kind], *each[1:]))


def device_file(folder: Path) -> Path:
    """The file of the target's device."""
    return folder / "device.json"


def settings_file(folder: Path) -> Path:
    """The file of the target's settings."""
    return folder / "settings.json"


def sensor_file(folder: Path) -> Path:
    """The file of the device's power sensor."""
    return folder / "sensor.json"


def overhead_file(folder: Path, number: int | str = 1) -> Path:
    """The file with the call overhead of a round; in round 1, the device's file."""
    return device_file(folder) if number == 1 else folder / f"overhead_{number}.json"


def overhead_files(folder: Path) -> list[Path]:
    """The existing files with call overhead, by round."""
    further = (re.fullmatch(r"overhead_(\d+)\.json", path.name) for path in folder.glob("*.json"))
    rounds = sorted(int(found[1]) for found in further if found)
    return [path for number in (1, *rounds) if (path := overhead_file(folder, number)).is_file()]


def round_plan(folder: Path, study: str, number: int | str) -> Path:
    """The plan of a study's round from 2 on."""
    return folder / ROUNDS / f"{study}-{number}.json"


def all_series(kind: str) -> str:
    """Snakemake's wildcard `series`: the folders of all measurements of a kind."""
    return f"{{series,{_SERIES[kind]}}}"


def measurement_in(folder: Path, series: str, name: str) -> Path:
    """The file of one measurement in the folder of a series."""
    return folder / series / f"{name}.parquet"


def measurement(
    folder: Path, kind: str, name: str, number: int = 1, launch_mode: str = EAGER
) -> Path:
    """The file of one measurement; `name` is a tuple id or the address of a model, `number` the
    round.
    """
    return measurement_in(folder, Series(kind, number, launch_mode).folder, name)


def measurements(folder: Path, kind: str, number: int = 1, launch_mode: str = EAGER) -> list[Path]:
    """The files of all measurements of a series on a target, by name."""
    within = folder / Series(kind, number, launch_mode).folder
    return sorted(within.glob("[!.]*.parquet"))


def runs_by_subject(folder: Path, kind: str) -> dict[str, list[Path]]:
    """Name -> the files of its measurements in all rounds, in order; sorted by name."""
    found = grouped(
        (path.stem, path)
        for series in _series_in(folder)
        if series.kind == kind and series.launch_mode == EAGER
        for path in measurements(folder, *series)
    )
    return dict(sorted(found.items()))


def runs_of_subject(folder: Path, kind: str, name: str) -> list[Path]:
    """The files of one subject's measurements in all rounds, in order."""
    series = (each for each in _series_in(folder) if each == Series(kind, each.round))
    paths = (measurement_in(folder, each.folder, name) for each in series)
    return [path for path in paths if path.is_file()]


def all_measurements(folder: Path) -> list[Path]:
    """The files of all measurements on a target, operators first."""
    return [path for series in _series_in(folder) for path in measurements(folder, *series)]


def folder_of(path: Path) -> Path:
    """The folder of the target of a measurement's file."""
    return path.parent.parent


def model_of(path: Path) -> str:
    """The model of a file that is named by the model's address."""
    return path.stem.rpartition("-")[0]


def series_of(path: Path) -> Series:
    """The series of a measurement's file."""
    found = series_named(path.parent.name)
    assert found is not None, path
    return found


def extraction(address: str, results: Path = RESULTS) -> Path:
    """The file of a model's operator tuples and calls."""
    return results / _TUPLES / f"{address}.pkl"


def extractions_of(model: str, results: Path = RESULTS) -> list[Path]:
    """The files of a model's tuples and calls, one for each of its definitions."""
    return sorted(
        path
        for path in (results / _TUPLES).glob(f"{escape(model)}-*.pkl")
        if model_of(path) == model
    )


def recording(folder: Path, address: str) -> Path:
    """The file of a model's operator tuples and calls, traced on the target's device."""
    return folder / CALLS / f"{address}.pkl"


def recordings(folder: Path) -> list[Path]:
    """The files of all models that were traced on a target's device."""
    return sorted((folder / CALLS).glob("[!.]*.pkl"))
