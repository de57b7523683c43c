"""What a run measures: keys of the configuration, over those of config/config.yaml."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from opcost.configuration import check_name, checked_keys
from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError
from opcost.models import zoo
from opcost.models.configs import Entry, define_models, load_models, read_config
from opcost.models.definition import ModelDefinition
from opcost.models.variants import Variant
from opcost.plain_yaml import read_yaml
from opcost.runs.targets import AUTO, Settings, chosen_targets
from opcost.study import Study, load_study, without_axes
from opcost.tuples.host_memory import copy_of

DEFAULT_STUDY = Path("config/config.yaml")
_DIRECTORY = "config/models"


class Request(NamedTuple):
    """The keys that a run gives, and the study that is measured."""

    settings: Mapping[str, Any]
    study: Study

    @property
    def asked(self) -> set[tuple[str, str]]:
        """Each target with each model that is measured on it."""
        return {(target, model) for target in self.study.conditions for model in self.study.models}

    def configs(self) -> dict[str, Any]:
        """The config of each model or sweep, or of models chosen of torchvision, by its name."""
        entries = self.settings.get("models", read_default().get("models", ()))
        chosen = [name for name, model in self.study.models.items() if model.zoo]
        read = (read_config(each, self.study.model_directory) for each in [*entries, *chosen])
        return {each.name: each.config for each in read}


def read_default() -> Mapping[str, Any]:
    """The study that the user wrote, empty if there is none. Raises OpcostError."""
    document = read_yaml(DEFAULT_STUDY) if DEFAULT_STUDY.exists() else {}
    if document is not None and not isinstance(document, dict):
        raise OpcostError(f"{DEFAULT_STUDY} is not a study (config/README.md): repair or delete it")
    return document or {}


def model_directory() -> Path:
    """The folder of the model configs."""
    return Path(str(read_default().get("model_directory", _DIRECTORY)))


def default_request(settings: Mapping[str, Any]) -> Request:
    """The study that the user wrote, with other settings. Raises OpcostError without one."""
    if not DEFAULT_STUDY.exists():
        raise OpcostError(
            f"name a MODEL, such as resnet18: this folder has no study ({DEFAULT_STUDY})"
        )
    return Request(settings, load_study({**read_default(), **settings}))


def request(
    asked: Iterable[Variant],
    device: str | None,
    threads: Sequence[int],
    settings: Mapping[str, Any],
    known: Iterable[ModelDefinition] = (),
) -> Request:
    """These models, on the study's targets or a device, with other settings.

    `known` are those that other runs have measured: no new one gets the name of one of them. Raises
    OpcostError for what no study can say.
    """
    default = read_default()
    targets = _targets(default)
    chosen = chosen_targets(targets, device, threads)
    checked_keys({"targets": chosen}, "config", "the command line")
    given: dict[str, Any] = {"models": _entries(asked, model_directory(), known)}
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
    """The targets of a run that names none, without axes."""
    named = default.get("targets") or AUTO
    if not isinstance(named, dict) or not all(isinstance(each, dict) for each in named.values()):
        raise OpcostError(f"{DEFAULT_STUDY}: targets must be settings by name (config/README.md)")
    return without_axes(named)


def _entries(
    asked: Iterable[Variant], directory: Path, known: Iterable[ModelDefinition]
) -> list[Entry]:
    """The models as a study has them: by name if a file, or torchvision, says the same."""
    files = _of_files(directory)
    measured: dict[str, list[ModelDefinition]] = defaultdict(list)
    for model in known:
        measured[model.name.partition("[")[0]].append(model)
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
    """What each config of a folder defines. Those that cannot be read are not."""
    found = {}
    for path in directory.glob("*.yaml"):
        with suppress(OpcostError):
            check_name(path.stem)
            found[path.stem] = _alike(load_models(path.stem, directory).models.values())
    return found


def _official(config: Mapping[str, Any], wanted: list[str], directory: Path) -> str | None:
    """The model of torchvision that a config defines at its official input, if it does."""
    name = str(config.get("model"))
    if zoo.family(name) is None:
        return None
    official = define_models("", zoo.official_config(name), directory, name)
    return name if _alike(official.models.values()) == wanted else None


def _alike(models: Iterable[ModelDefinition]) -> list[str]:
    """What models are but for their names, and for what changes under a name: code and seed."""
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
