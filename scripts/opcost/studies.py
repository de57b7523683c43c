"""The studies of a results folder: their files record all runs, and determine what tables show.

The newest definition of a model and the newest conditions of a target are shown; those of the
present study take precedence.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
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
from opcost.text import counted, wrapped
from opcost.tuples.model_tuples import ModelTuples, named
from opcost.tuples.traces import calls_on


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

    @classmethod
    def of(cls, addresses: Addresses, asked: Mapping[str, Any]) -> Self:
        """The study at these addresses."""
        study = addresses.study
        return cls(
            dict(asked),
            study.models,
            {name: addresses.extraction(name) for name in study.models},
            addresses.folders,
            {target: each.to_json() for target, each in study.conditions.items()},
            study.generations,
            study.sweeps,
            study.target_sweeps,
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any], results: Path) -> Self:
        """The study that `to_document` described."""
        targets = {name: (folder, text) for name, (folder, text) in document["targets"].items()}
        return cls(
            document["asked"],
            {name: ModelDefinition.from_json(text) for name, text in document["models"].items()},
            {name: extraction(each, results) for name, each in document["extractions"].items()},
            {name: target_folder(name, each, results) for name, (each, _) in targets.items()},
            {name: text for name, (_, text) in targets.items()},
            tuple(map(Generation.from_document, document["generations"])),
            tuple(Sweep(**each) for each in document["sweeps"]),
            tuple(Sweep(**each) for each in document["target_sweeps"]),
        )

    def to_document(self) -> dict[str, Any]:
        """The content of the study's file."""
        return {
            "asked": self.asked,
            "models": {name: each.to_json() for name, each in self.models.items()},
            "extractions": {name: each.stem for name, each in self.extractions.items()},
            "targets": {
                target: [folder.name, self.conditions[target]]
                for target, folder in self.folders.items()
            },
            "generations": list(map(asdict, self.generations)),
            "sweeps": list(map(asdict, self.sweeps)),
            "target_sweeps": list(map(asdict, self.target_sweeps)),
        }


def remember(addresses: Addresses, asked: Mapping[str, Any]) -> None:
    """Write the file of a study."""
    write_json(addresses.file, Remembered.of(addresses, asked).to_document())


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
    try:
        return Remembered.from_document(read_json(path, remedy), results)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
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
    def of(cls, present: Addresses) -> Self:
        """The content of a study's tables, in its results folder."""
        now, known = Remembered.of(present, {}), remembered(present.results)
        every = [*known, now]
        models = {name: each for one in every for name, each in one.models.items()}
        extractions = {name: each for one in every for name, each in one.extractions.items()}
        conditions = {name: each for one in every for name, each in one.conditions.items()}
        folders = {
            name: each
            for one in every
            for name, each in one.folders.items()
            if one is now or each.is_dir()
        }

        def models_on(target: str) -> list[str]:
            own = now.models if target in now.folders else {}
            measured = {
                name
                for one in known
                if one.folders.get(target) == folders[target]
                for name, each in one.models.items()
                if each == models[name]
                and one.extractions[name].exists()
                and _is_measured(folders[target], each)
            }
            return [*own, *sorted(measured - own.keys())]

        on = {
            target: found
            for target in [*now.folders, *sorted(folders.keys() - now.folders.keys())]
            if (found := models_on(target))
        }
        shown = {name for found in on.values() for name in found}
        names = [name for name in now.models if name in shown]
        names += sorted(shown - now.models.keys())
        return cls(
            {name: models[name].to_json() for name in names},
            {name: str(extractions[name]) for name in names},
            {target: str(folders[target]) for target in on},
            # Changed durations are no reason to make tables again.
            {target: str(meaning(conditions[target])) for target in on},
            on,
            _newest([one.generations for one in every]),
            _newest([one.sweeps for one in every], shown),
            _newest([one.target_sweeps for one in every], on),
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


def _newest(
    studies: Sequence[Iterable[Any]], shown: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """The generations or sweeps of studies as documents, the newest of each name; of sweeps those
    of which all points are `shown`.
    """
    found: dict[str, Any] = {}
    for each in chain.from_iterable(reversed(studies)):
        if shown is None or all(name in shown for name in each.points):
            found.setdefault(each.name, each)
    return list(map(asdict, found.values()))
