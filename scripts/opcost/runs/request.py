"""The request of a run: keys of the configuration that override those of config/config.yaml."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from opcost.addresses import Addresses
from opcost.configuration import check_name, checked_keys
from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError
from opcost.models import zoo
from opcost.models.configs import Entry, define_models, load_models, name_of, read_config
from opcost.models.definition import ModelDefinition
from opcost.models.variants import Variant
from opcost.plain_yaml import read_yaml
from opcost.results_folder import RESULTS
from opcost.runs.targets import AUTO, Settings, chosen_targets
from opcost.studies import newest_definitions, remembered
from opcost.study import Study, load_study, without_axes
from opcost.tuples.host_memory import copy_of
from opcost.tuples.model_tuples import ModelTuples, read_extractions

DEFAULT_STUDY = Path("config/config.yaml")
_DIRECTORY = "config/models"


class Request(NamedTuple):
    """The keys that a run sets, and the resulting study."""

    settings: Mapping[str, Any]
    study: Study

    @property
    def asked(self) -> set[tuple[str, str]]:
        """Each target with each of its models."""
        return {(target, model) for target in self.study.conditions for model in self.study.models}

    def configs(self) -> dict[str, Any]:
        """The config of each model or sweep, or selected torchvision model, by name."""
        entries = self.settings.get("models", read_default().get("models", ()))
        chosen = [name for name, each in self.study.models.items() if each.zoo]
        read = (read_config(each, self.study.model_directory) for each in [*entries, *chosen])
        return {each.name: each.config for each in read}


def extracted(study: Study) -> dict[str, ModelTuples]:
    """The study's extracted models by name."""
    addresses = Addresses(study)
    paths = map(addresses.extraction, study.models)
    return {each.model: each for each in read_extractions(filter(Path.exists, paths))}


def read_default() -> Mapping[str, Any]:
    """The user's study, empty if there is none. Raises OpcostError."""
    document = read_yaml(DEFAULT_STUDY) if DEFAULT_STUDY.exists() else {}
    if document is not None and not isinstance(document, dict):
        raise OpcostError(f"{DEFAULT_STUDY} is not a study (config/README.md): repair or delete it")
    return document or {}


def model_directory() -> Path:
    """The folder of model configs."""
    return Path(str(read_default().get("model_directory", _DIRECTORY)))


def default_request(settings: Mapping[str, Any]) -> Request:
    """The user's study with other settings. Raises OpcostError without one."""
    if not DEFAULT_STUDY.exists():
        raise OpcostError(
            f"name a MODEL, such as resnet18: this folder has no study ({DEFAULT_STUDY})"
        )
    return Request(settings, load_study({**read_default(), **settings}))


def nothing() -> Request:
    """A study that measures nothing: its tables show earlier measurements.

    Raises OpcostError if there are none.
    """
    if not remembered(RESULTS):
        raise OpcostError(
            "nothing is measured in this folder: go to the folder of a run, or begin with: opcost "
            "run MODEL"
        )
    return request((), None, (), {})


def asked_again(asked: Mapping[str, Any], settings: Mapping[str, Any]) -> Request:
    """The request of an earlier run, with today's and further settings.

    Raises OpcostError if it is no longer possible.
    """
    default = read_default()
    keys = {"models", "torchvision", "targets"} & asked.keys()
    given = {key: asked[key] for key in sorted(keys) if asked[key] != default.get(key)}
    given |= settings
    return Request(given, load_study({**default, **given}))


def narrowed(original: Request, models: set[str]) -> Request:
    """A request for some of the models."""
    document, study = {**read_default(), **original.settings}, original.study
    entries = [
        each
        for each in document.get("models", ())
        if not models.isdisjoint(study.models_of(name_of(each)))
    ]
    chosen = [name for name, each in study.models.items() if each.zoo and name in models]
    torchvision = {**document["torchvision"], "names": chosen} if chosen else None
    given = {**original.settings, "models": entries, "torchvision": torchvision}
    return Request(given, load_study({**document, **given}))


def request(
    asked: Iterable[Variant],
    device: str | None,
    threads: Sequence[int],
    settings: Mapping[str, Any],
) -> Request:
    """Variants on the study's targets or a device, with other settings.

    No new model gets the name of a different one that was measured in this folder. Raises
    OpcostError for an impossible study.
    """
    default = read_default()
    targets = _targets(default)
    chosen = chosen_targets(targets, device, threads)
    checked_keys({"targets": chosen}, "config", "the command line")
    given: dict[str, Any] = {"models": _entries(asked, model_directory())}
    if default.get("torchvision"):
        given["torchvision"] = None
    if chosen != targets or "targets" not in default:
        given["targets"] = chosen
    given |= settings
    study = load_study({**default, **given})
    for target, conditions in study.conditions.items():
        _refuse_copies_on_processor(study.models.values(), target, conditions.target.device)
    return Request(given, study)


def _targets(default: Mapping[str, Any]) -> dict[str, Settings]:
    """The default targets of a run, without axes."""
    named = default.get("targets") or AUTO
    if not isinstance(named, dict) or not all(isinstance(each, dict) for each in named.values()):
        raise OpcostError(f"{DEFAULT_STUDY}: targets must be settings by name (config/README.md)")
    return without_axes(named)


def _entries(asked: Iterable[Variant], directory: Path) -> list[Entry]:
    """The `models` of a study: names if a file, or torchvision, has the same definition."""
    files = _of_files(directory)
    measured: dict[str, list[ModelDefinition]] = defaultdict(list)
    for name, model in newest_definitions(RESULTS).items():
        measured[name.partition("[")[0]].append(model)
    taken = {name: _alike(models) for name, models in measured.items()}
    entries: dict[str, Entry] = {}
    ours: dict[str, list[str]] = {}
    for variant in asked:
        check_name(variant.name)
        source = f"model {variant.name}"
        wanted = _alike(define_models("", variant.config, directory, source).models.values())
        same = [name for name in (variant.name, *sorted(files)) if files.get(name) == wanted]
        if same:
            entries[same[0]] = same[0]
            continue
        official = _official(variant.config, wanted, directory)
        others = ours if variant.is_named else {**taken, **ours}
        name = next(
            name
            for name in chain([official] if official else [], _names(variant))
            if not (directory / f"{name}.yaml").exists() and others.get(name, wanted) == wanted
        )
        ours[name] = wanted
        entries[name] = name if name == official else {"name": name, **variant.config}
    return list(entries.values())


def _of_files(directory: Path) -> dict[str, list[str]]:
    """The definition of each config of a folder, without configs that cannot be read."""
    found = {}
    for path in directory.glob("*.yaml"):
        with suppress(OpcostError):
            check_name(path.stem)
            found[path.stem] = _alike(load_models(path.stem, directory).models.values())
    return found


def _official(config: Mapping[str, Any], wanted: list[str], directory: Path) -> str | None:
    """The torchvision model that a config defines at its official input, or None."""
    name = str(config.get("model"))
    if zoo.family(name) is None:
        return None
    official = define_models("", zoo.official_config(name), directory, name)
    return name if _alike(official.models.values()) == wanted else None


def _alike(models: Iterable[ModelDefinition]) -> list[str]:
    """Models without their names and what changes under a name: code and seed."""
    return sorted(replace(each, name="", source_digest=None, seed=0).to_json() for each in models)


def _names(variant: Variant) -> Iterator[str]:
    longer = variant.longer or variant.name
    return chain([variant.name, longer], (f"{longer}_{number}" for number in count(2)))


def _refuse_copies_on_processor(
    definitions: Iterable[ModelDefinition], target: str, device: str
) -> None:
    """Raise OpcostError for a copy between a GPU and its host on a target that is a processor."""
    kind = kind_of(device)
    if kind is None or not kind.is_processor:
        return
    for definition in definitions:
        if definition.operator is None:
            continue
        from opcost.tuples.parsing import parse  # it imports PyTorch, so only for operators

        if copy_of(parse(definition.operator.call)) is not None:
            raise OpcostError(
                f"{definition.name} copies between the memory of a GPU and that of its host, and "
                f"target {target} is a processor (device {device}), which has one memory: leave it "
                "out there, or measure on a GPU (--device cuda)"
            )
