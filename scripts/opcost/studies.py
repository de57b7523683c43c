"""The studies of a results folder: their files record all runs, and determine what tables show.

The newest definition of a model and the newest conditions of a target are shown; those of the
present study take precedence.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from opcost.addresses import Addresses, definition_address
from opcost.errors import OpcostError
from opcost.files import read_json, write_json
from opcost.launch_modes import EAGER
from opcost.models.axes import Sweep
from opcost.models.definition import ModelDefinition
from opcost.models.generation import Generation
from opcost.results_folder import (
    DATABASE,
    MODELS,
    RESULTS,
    STUDIES,
    all_measurements,
    extraction,
    measurement,
    series_of,
    target_folder,
    target_folders,
)
from opcost.rows.comparability import meaning
from opcost.study import Study
from opcost.text import counted, wrapped
from opcost.tuples.model_tuples import ModelTuples, named
from opcost.tuples.traces import calls_on
from opcost.values import OBJECT, check_values, list_of

_RULES = {
    "asked": OBJECT,
    "models": OBJECT,
    "extractions": OBJECT,
    "targets": OBJECT,
    "generations": list_of(OBJECT),
    "sweeps": list_of(OBJECT),
    "target_sweeps": list_of(OBJECT),
}


@dataclass(frozen=True)
class Remembered:
    """A study that was begun in a results folder.

    `asked` is its configuration. `extractions` are the files of its models' calls; `folders` are
    those of its targets, and `conditions` their settings as JSON.
    """

    asked: Mapping[str, Any]
    models: Mapping[str, ModelDefinition]
    extractions: Mapping[str, Path]
    folders: Mapping[str, Path]
    conditions: Mapping[str, str]
    generations: tuple[Generation, ...]
    sweeps: tuple[Sweep, ...]
    target_sweeps: tuple[Sweep, ...]


def describe(addresses: Addresses, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a study's file."""
    study = addresses.study
    return {
        "asked": dict(asked),
        "models": {name: each.to_json() for name, each in study.models.items()},
        "extractions": {name: addresses.extraction(name).stem for name in study.models},
        "targets": {
            target: [addresses.folders[target].name, each.to_json()]
            for target, each in study.conditions.items()
        },
        "generations": list(map(asdict, study.generations)),
        "sweeps": list(map(asdict, study.sweeps)),
        "target_sweeps": list(map(asdict, study.target_sweeps)),
    }


def remembered(results: Path = RESULTS) -> list[Remembered]:
    """The studies of a results folder, the last one run at the end."""
    files = (results / STUDIES.name).glob("*/study.json")
    found = sorted(files, key=lambda path: (path.parent.stat().st_mtime_ns, path))
    return [_read(path, results) for path in found]


def ran_now(addresses: Addresses) -> None:
    """Make the running study the newest."""
    with suppress(OSError):
        os.utime(addresses.file.parent)


def newest_definitions(results: Path = RESULTS) -> dict[str, ModelDefinition]:
    """Name -> the newest definition of each model of any study."""
    return {name: each for study in remembered(results) for name, each in study.models.items()}


def folder_named(target: str, results: Path = RESULTS) -> Path:
    """The folder of a target as a database names it: the name of the target, under the conditions
    of the study that ran last, or a name with conditions.
    """
    if "/" in target:
        return results / target
    named = [one.folders[target] for one in remembered(results) if target in one.folders]
    there = [folder for folder in target_folders(results) if folder.parent.name == target]
    return [results / target, *there, *named][-1]


def _read(path: Path, results: Path) -> Remembered:
    remedy = f"delete {path.parent}: tables no longer show its models, unless they are run"
    document = read_json(path, remedy)
    check_values({name: document.get(name) for name in _RULES}, _RULES, path, remedy)
    try:
        targets = {name: (folder, text) for name, (folder, text) in document["targets"].items()}
        return Remembered(
            document["asked"],
            {name: ModelDefinition.from_json(text) for name, text in document["models"].items()},
            {name: extraction(each, results) for name, each in document["extractions"].items()},
            {name: target_folder(name, each, results) for name, (each, _) in targets.items()},
            {name: text for name, (_, text) in targets.items()},
            tuple(map(Generation.from_document, document["generations"])),
            tuple(Sweep(**each) for each in document["sweeps"]),
            tuple(Sweep(**each) for each in document["target_sweeps"]),
        )
    except (TypeError, ValueError, KeyError) as error:
        raise OpcostError(
            f"{path} is damaged ({type(error).__name__}: {error}): {remedy}"
        ) from None


@dataclass(frozen=True)
class Shown:
    """The content of tables: the present study, and other studies' measurements.

    `models` are definitions by name, and `extractions` the files of their calls; `folders` and
    `conditions` are those of each target, and `models_on` its models.
    """

    models: Mapping[str, str]
    extractions: Mapping[str, str]
    folders: Mapping[str, str]
    conditions: Mapping[str, str]
    models_on: Mapping[str, list[str]]
    generations: list[dict[str, Any]]
    sweeps: list[dict[str, Any]]
    target_sweeps: list[dict[str, Any]]

    @classmethod
    def of(cls, present: Addresses, others: Iterable[Remembered] | None = None) -> Self:
        """The content of a study's tables. `others` are by default those of its results folder."""
        study = present.study
        known = list(remembered(present.results) if others is None else others)
        models = {name: each for one in known for name, each in one.models.items()}
        models |= study.models
        extractions = {name: each for one in known for name, each in one.extractions.items()}
        folders = {
            name: each for one in known for name, each in one.folders.items() if each.is_dir()
        } | present.folders
        conditions = {name: text for one in known for name, text in one.conditions.items()}
        conditions |= {name: each.to_json() for name, each in study.conditions.items()}
        models_on = {
            target: [
                *(study.models if target in study.conditions else ()),
                *sorted(
                    {
                        name
                        for one in known
                        for name, each in one.models.items()
                        if each == models[name]
                        and one.folders.get(target) == folder
                        and extractions[name].exists()
                        and _is_measured(folder, each)
                    }
                    - ({*study.models} if target in study.conditions else set())
                ),
            ]
            for target, folder in folders.items()
        }
        targets = [*study.conditions, *sorted(folders.keys() - study.conditions.keys())]
        targets = [each for each in targets if models_on[each]]
        shown = {name for target in targets for name in models_on[target]}
        names = [
            *(name for name in study.models if name in shown),
            *sorted(shown - {*study.models}),
        ]
        every: list[Study | Remembered] = [study, *reversed(known)]
        own = {name: present.extraction(name) for name in study.models}
        return cls(
            {name: models[name].to_json() for name in names},
            {name: str(own.get(name) or extractions[name]) for name in names},
            {name: str(folders[name]) for name in targets},
            # Changed durations are no reason to make tables again.
            {name: str(meaning(conditions[name])) for name in targets},
            {name: models_on[name] for name in targets},
            _once(asdict(each) for one in every for each in one.generations),
            _once(
                asdict(each) for one in every for each in one.sweeps if shown >= each.points.keys()
            ),
            _once(
                asdict(each)
                for one in every
                for each in one.target_sweeps
                if {*targets} >= each.points.keys()
            ),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The object that `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    def calls_on(self, extracted: Iterable[ModelTuples]) -> dict[str, list[ModelTuples]]:
        """Target -> its models, with their calls there."""
        models = list(extracted)
        return {
            target: calls_on(Path(folder), named(models, self.models_on[target]))
            for target, folder in self.folders.items()
        }

    def end_to_end(self) -> dict[str, list[Path]]:
        """Target -> the files of all end-to-end runs of its models, in any launch mode, with models
        in the order of tables.
        """
        order = {
            definition_address(ModelDefinition.from_json(text)): (number, name)
            for number, (name, text) in enumerate(self.models.items())
        }
        return {
            target: sorted(
                (
                    path
                    for path in all_measurements(Path(folder))
                    if series_of(path).kind == MODELS
                    and path.stem in order
                    and order[path.stem][1] in self.models_on[target]
                ),
                key=lambda path: order[path.stem],
            )
            for target, folder in self.folders.items()
        }

    def others(self, results: Path = RESULTS) -> list[str]:
        """A note on measurements under conditions that tables do not show."""
        folders = {*map(Path, self.folders.values())}
        found = {
            f"{folder.parent.name}/{folder.name}": len(all_measurements(folder))
            for folder in target_folders(results)
            if folder not in folders
        }
        kept = [f"{name} ({counted(number, 'measurement')})" for name, number in found.items()]
        return (
            wrapped([f"Under other conditions, in {DATABASE}: {', '.join(kept)}"]) if kept else []
        )


def _is_measured(folder: Path, definition: ModelDefinition) -> bool:
    """Whether a model is measured; an isolated operator has no measurement of its own name."""
    name = definition_address(definition)
    return definition.is_operator or measurement(folder, MODELS, name, 1, EAGER).exists()


def _once(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first document of each name."""
    found: dict[str, dict[str, Any]] = {}
    for each in documents:
        found.setdefault(each["name"], each)
    return list(found.values())


def remember(addresses: Addresses, asked: Mapping[str, Any]) -> None:
    """Write the file of a study."""
    write_json(addresses.file, describe(addresses, asked))
