"""The study of a folder's runs: each adds its models and targets to a file.

Snakemake merges it over config/config.yaml, whose settings it leaves as they are.
"""

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from opcost.configuration import all_models
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.models.configs import load_models
from opcost.plain_yaml import read_yaml
from opcost.results_folder import MODELS, measurement, target_folder
from opcost.runs.requested import operators_measured
from opcost.runs.targets import AUTO, Settings
from opcost.study import Study, load_study, without_axes

DEFAULT_STUDY = Path("config/config.yaml")
RUN_STUDY = Path("config/run.yaml")
_DIRECTORY = "config/models"
_HEAD = (
    "# The models and targets of all runs in this folder. opcost run adds to it. What you delete\n"
    "# here leaves the tables and the report; its measurements stay in results/.\n"
)


class Studies(NamedTuple):
    """The study that the user wrote, if any, and that of all runs so far."""

    default: Mapping[str, Any]
    runs: Mapping[str, Any]

    @property
    def directory(self) -> Path:
        """The folder of the model configs."""
        return Path(str(self.default.get("model_directory", _DIRECTORY)))

    @property
    def targets(self) -> Mapping[str, Settings]:
        """The targets of a run that names none, without axes."""
        return without_axes(_mapping(self.default, "targets", DEFAULT_STUDY) or AUTO)

    @property
    def known_targets(self) -> Mapping[str, Settings]:
        """The targets of earlier runs."""
        return _mapping(self.runs, "targets", RUN_STUDY)

    def study(self, only: Mapping[str, Sequence[str]] | None = None) -> Study:
        """The models and targets of both. Those that `only` does not name may be unreadable."""
        self.check_any()
        models = all_models(self.default, self.runs)
        targets = {**self.known_targets, **self.targets}
        document = {**self.default, **self.runs, "models": models, "targets": targets}
        return load_study({**document, "only": only or {}})

    def written_by_user(self) -> dict[str, list[str]]:
        """The models of the user's study, by target. Raises OpcostError without one."""
        if not self.default:
            raise OpcostError(
                f"name a MODEL, such as resnet18: this folder has no study ({DEFAULT_STUDY})"
            )
        study = load_study({**self.default, "targets": self.targets})
        return {target: list(study.models) for target in study.conditions}

    def measured(self) -> dict[str, list[str]] | None:
        """The models and operators that were measured on each target; None without runs: all of
        the study.
        """
        if not self.runs:
            return None
        study = self.study()
        folders = {target: target_folder(target) for target in study.conditions}
        return {
            target: [
                *(name for name in study.models if measurement(folder, MODELS, name).exists()),
                *operators_measured(study, target, study.models),
            ]
            for target, folder in folders.items()
        }

    def check_any(self) -> None:
        """Raise OpcostError without any study."""
        if not self.default and not self.runs:
            raise OpcostError(
                f"this folder has neither {DEFAULT_STUDY} nor {RUN_STUDY}: nothing is measured "
                "here. Go to the folder of a run, or begin with: opcost run MODEL"
            )


def read_studies() -> Studies:
    """The studies in this folder. Raises OpcostError for a file that is not one."""
    return Studies(_read(DEFAULT_STUDY), _read(RUN_STUDY))


def _read(path: Path) -> Mapping[str, Any]:
    document = read_yaml(path) if path.exists() else {}
    if document is not None and not isinstance(document, dict):
        raise OpcostError(f"{path} is not a study (config/README.md): repair or delete it")
    return document or {}


def _mapping(study: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = study.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise OpcostError(f"{path}: {key} must be settings by name (config/README.md)")
    return value


def add_to_runs(
    studies: Studies, models: Iterable[str], targets: Mapping[str, Settings]
) -> dict[str, str]:
    """Add models and targets to the study of all runs.

    Returns its models that cannot be read any more, with the reason: they are left out.
    """
    with _alone():
        studies = studies._replace(runs=read_studies().runs)  # what another run has added by now
        earlier = studies.runs.get("models", [])
        if not isinstance(earlier, list):
            raise OpcostError(f"{RUN_STUDY}: models must be a list of names: repair or delete it")
        kept, vanished = [], {}
        for name in map(str, earlier):
            try:
                load_models(name, studies.directory)
                kept.append(name)
            except OpcostError as error:
                vanished[name] = str(error)
        document = {
            **studies.runs,
            "models": list(dict.fromkeys([*kept, *models])),
            "targets": {**studies.known_targets, **studies.targets, **targets},
        }
        if document != studies.runs:
            _write(document)
        return vanished


def withdraw(directory: Path, models: Collection[str], targets: Collection[str]) -> None:
    """Delete configs of models; leave these models and targets out of the study of all runs."""
    if not models and not targets:
        return
    for name in models:
        (directory / f"{name}.yaml").unlink(missing_ok=True)
    with _alone():
        runs = read_studies().runs
        kept = {name: each for name, each in runs["targets"].items() if name not in targets}
        named = [name for name in runs["models"] if name not in models]
        _write({**runs, "models": named, "targets": kept})


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time changes the study of all runs, where the file system has locks."""
    RUN_STUDY.parent.mkdir(exist_ok=True)
    folder = os.open(RUN_STUDY.parent, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(document: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(document), sort_keys=False)
    with replacing(RUN_STUDY) as temporary:
        temporary.write_text(_HEAD + text, encoding="utf-8")
