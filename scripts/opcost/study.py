"""The study: models, targets and settings, validated before any work.

Imports no torch: Snakemake reads the study each time it starts.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from opcost.configuration import checked
from opcost.devices.kinds import kind_of, protocol_version
from opcost.errors import OpcostError, closest
from opcost.models import zoo
from opcost.models.axes import Sweep, expand, label, places, value_of
from opcost.models.configs import Defined, load_models, name_of
from opcost.models.definition import ModelDefinition
from opcost.models.generation import Generation
from opcost.published import Published, read_published
from opcost.results_folder import RESERVED, RESULTS
from opcost.target import POINT, SETTINGS, Target, point_of, stated


@dataclass(frozen=True)
class ClusterRequest:
    """Resources that a target's jobs request of a cluster; not conditions, as no number changes."""

    gpu_model: str | None = None
    partition: str | None = None
    constraint: str | None = None
    exclusive: bool = False


@dataclass(frozen=True)
class Precision:
    """The half-widths of 95 % intervals, relative to the value, that a study requests for its
    models' times and for its rows; None requests nothing.
    """

    models: float | None = None
    rows: float | None = None


@dataclass(frozen=True)
class ExtractionSettings:
    """Limits on the extraction of one model. Not part of the definition: they change no result.

    `memory_gib` None means nine tenths of the free memory at the start.
    """

    timeout_s: float = 1800
    memory_gib: float | None = None

    def to_json(self) -> str:
        """The settings as one line of JSON, for the environment of jobs."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that `to_json` wrote."""
        return cls(**json.loads(text))


BURST, SUSTAINED = "burst", "sustained"


@dataclass(frozen=True)
class MeasurementSettings:
    """How to measure; config/config.yaml and its schema describe each setting.

    `operand_values` is the definition, as JSON, of the model whose values operators get.
    """

    cache_state: str
    seed: int
    warm_up_s: float
    batch_s: float
    min_batches: int
    time_relative_ci: float
    min_time_s: float
    max_time_s: float
    model_time_s: float
    power_relative_ci: float
    power_min_s: float
    power_max_s: float
    power_lead_in_max_s: float
    idle_s: float
    max_repeats: int
    repeat_pause_s: float
    timeout_s: float
    operation: str = BURST
    energy: bool = True
    operand_values: str | None = None

    @property
    def is_sustained(self) -> bool:
        """Whether time and power are those of a device that has worked for seconds."""
        return self.operation == SUSTAINED

    def of_end_to_end(self) -> Self:
        """The settings of end-to-end runs: longer, because one row is compared with an estimate."""
        return replace(
            self,
            min_time_s=self.model_time_s,
            max_time_s=max(self.max_time_s, 2 * self.model_time_s),
        )


@dataclass(frozen=True)
class Conditions:
    """All settings that change the meaning of a measured number."""

    target: Target
    measurement: MeasurementSettings
    protocol_version: int = protocol_version(None)

    def to_json(self) -> str:
        """The conditions as one line of JSON, the same for equal conditions.

        Settings at their default here are left out: conditions stay equal when one is added, and
        nothing is measured again.
        """
        document = {
            "target": stated(self.target),
            "measurement": stated(self.measurement),
            "protocol_version": self.protocol_version,
        }
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The conditions that `to_json` wrote."""
        document = json.loads(text)
        return cls(
            Target(**document["target"]),
            MeasurementSettings(**document["measurement"]),
            document["protocol_version"],
        )


@dataclass(frozen=True)
class Study:
    """A checked configuration."""

    models: Mapping[str, ModelDefinition]
    configs: Mapping[str, Defined]
    target_sweeps: tuple[Sweep, ...]
    model_directory: Path
    operators: tuple[str, ...] | None
    max_device_time_s: float | None
    extraction: ExtractionSettings
    workers: str
    rounds: int
    precision: Precision
    launch_modes: tuple[str, ...]
    conditions: Mapping[str, Conditions]
    cluster_requests: Mapping[str, ClusterRequest]
    published: tuple[Published, ...] = ()

    @property
    def end_to_end(self) -> list[str]:
        """The models that are measured end to end: all except isolated operators."""
        return [name for name, each in self.models.items() if not each.is_operator]

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The requests to language models, whose steps are models."""
        return tuple(each for config in self.configs.values() for each in config.generations)

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The configs with axes, and isolated operators."""
        return _sweeps(self.configs)

    def models_of(self, name: str) -> list[str]:
        """The models of a config: several for generation steps, layers or axes."""
        return list(self.configs[name].models) if name in self.configs else [name]


def load_study(config: Mapping[str, Any]) -> Study:
    """Validate a configuration and the model configs that it names.

    Raises OpcostError with the key, the value found and the values allowed.
    """
    document = checked(_without_axes(config), "config", "the configuration")
    if "models" not in config and not document["torchvision"]:
        raise OpcostError(
            "neither `models` nor `torchvision` names a model to study: list configs of "
            f"{document['model_directory']} under `models`, or models of torchvision, such as "
            "[resnet18]. With models: [], tables and report are made of existing measurements"
        )
    for least, most in (("min_time_s", "max_time_s"), ("power_min_s", "power_max_s")):
        _check_limits(document["measurement"], least, most)
    configs = _configs(document)
    models = _models(document, configs)
    measurement = _measurement(document["measurement"], models)
    if measurement.is_sustained and not measurement.energy:
        raise OpcostError(
            "measurement.operation: sustained, with energy: false: sustained operation is measured "
            "with the power meter; use operation: burst, or energy: true"
        )
    operators = document["operators"]
    targets = document["targets"]
    _check_names(targets)
    _check_operating_points(targets)
    target_sweeps = _target_sweeps(targets)
    requests = {name: ClusterRequest(**target.pop("cluster")) for name, target in targets.items()}
    _check_axes(_sweeps(configs), target_sweeps)
    return Study(
        models=models,
        configs=configs,
        target_sweeps=target_sweeps,
        model_directory=Path(document["model_directory"]),
        operators=None if operators == "all" else tuple(operators),
        max_device_time_s=document["max_device_time_s"],
        extraction=ExtractionSettings(**document["extraction"]),
        workers=document["workers"],
        rounds=document["rounds"],
        precision=Precision(**document["precision"]),
        launch_modes=tuple(document["launch_modes"]),
        conditions={
            name: Conditions(Target(**target), measurement, protocol_version(target["device"]))
            for name, target in targets.items()
        },
        cluster_requests=requests,
        published=read_published(Path(document["published"])) if document["published"] else (),
    )


def _measurement(
    document: Mapping[str, Any], models: Mapping[str, ModelDefinition]
) -> MeasurementSettings:
    """The settings, with the definition of the model that `operand_values` names."""
    name = document["operand_values"]
    known = {each: model for each, model in models.items() if not model.is_operator}
    if name is not None and name not in known:
        raise OpcostError(
            f"measurement.operand_values: {name!r} is no model of this study. "
            f"{closest(name, known)}".rstrip()
        )
    values = None if name is None else known[name].to_json()
    return MeasurementSettings(**{**document, "operand_values": values})


def _without_axes(config: Any) -> Any:
    """The configuration without axes of targets; other errors in it are found later."""
    targets = config.get("targets") if isinstance(config, Mapping) else None
    if not isinstance(targets, Mapping) or not all(isinstance(name, str) for name in targets):
        return config
    return {**config, "targets": without_axes(targets)}


def without_axes(targets: Mapping[str, Any]) -> dict[str, Any]:
    """Targets with axes expanded to their points.

    Raises OpcostError for axes that have no effect or are ambiguous.
    """
    keys = SETTINGS.keys()
    found: dict[str, Any] = {}
    for name, settings in targets.items():
        axes = settings.get("axes") if isinstance(settings, Mapping) else None
        for axis in set(places(settings)) & {*keys, "cluster"} & {*(axes or ())}:
            raise OpcostError(
                f"targets.{name}.axes.{axis}: ${axis} is a place, and a target has a setting of "
                f"that name: give the axis another name, as in threads: $cores"
            )
        for each in expand(name, settings, f"targets.{name}", keys):
            if each.name in found:
                raise OpcostError(
                    f"targets: {each.name} is both written out and a point of the axes of "
                    f"{each.name.partition('[')[0]}: rename the target, or remove the value"
                )
            found[each.name] = each.config
    return found


def _sweeps(configs: Mapping[str, Defined]) -> tuple[Sweep, ...]:
    return tuple(Sweep(name, each.points) for name, each in configs.items() if each.points)


def _target_sweeps(targets: Mapping[str, Mapping[str, Any]]) -> tuple[Sweep, ...]:
    """The sweeps of targets, from their names: `local[threads=1]`."""
    points: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for name, settings in targets.items():
        base, bracket, _ = name.partition("[")
        if bracket:
            parts = [part.partition("=") for part in name[len(base) + 1 : -1].split(",")]
            # The value of an axis without a setting, as in `threads: $n`, is in the name.
            points[base][name] = {
                axis: settings[axis] if axis in settings else value_of(value)
                for axis, _, value in parts
            }
    return tuple(Sweep(base, found) for base, found in points.items())


def _check_axes(sweeps: Iterable[Sweep], target_sweeps: Iterable[Sweep]) -> None:
    """Refuse axes of models and targets with the same label, which tables show side by side."""
    of_targets = {
        label(axis): target.name
        for target in target_sweeps
        for point in target.points.values()
        for axis in point
    }
    for sweep in sweeps:
        for axis in dict.fromkeys(axis for point in sweep.points.values() for axis in point):
            if label(axis) in of_targets:
                raise OpcostError(
                    f"targets.{of_targets[label(axis)]} and the model {sweep.name} both have an "
                    f"axis called {label(axis)}: rename one of the two. An axis has any name where "
                    "the config has $NAME as a value, as in threads: $cores with axes: "
                    "{cores: [1, 2]}"
                )


def _check_limits(measurement: Mapping[str, float], least: str, most: str) -> None:
    if measurement[least] > measurement[most]:
        raise OpcostError(
            f"measurement.{least} ({measurement[least]}) exceeds measurement.{most} "
            f"({measurement[most]}): lower the one or raise the other"
        )


def _check_names(targets: Iterable[str]) -> None:
    for name in sorted(set(targets) & set(RESERVED)):
        raise OpcostError(
            f"targets.{name}: {RESULTS / name} contains files of models and studies: give "
            "the target another name"
        )


def _check_operating_points(targets: Mapping[str, Mapping[str, Any]]) -> None:
    for name, target in targets.items():
        asked = [each for each in POINT if target[each] is not None]
        if not asked:
            continue
        kind = kind_of(target["device"])
        for each in asked:
            if kind is not None and SETTINGS[each].kind != kind.name:
                raise OpcostError(
                    f"targets.{name}.{each} is {target[each]}, and its device is "
                    f"{target['device']}, which has {', '.join(point_of(kind.name))} instead: "
                    f"leave it out, or name a device that has it, such as device: "
                    f"{SETTINGS[each].kind}"
                )
        if target["any_of_kind"]:
            raise OpcostError(
                f"targets.{name}.{asked[0]} is {target[asked[0]]}, and any_of_kind true: it is set "
                "on one device, which the target must name. Leave one of the two out"
            )


def _configs(document: Mapping[str, Any]) -> dict[str, Defined]:
    """The models that `models` lists, with the seed, by the name of the entry."""
    seed = document["measurement"]["seed"]
    configs: dict[str, Defined] = {}
    for entry in document["models"]:
        name = name_of(entry)
        if name in configs:
            raise OpcostError(f"models: {name} is there twice: give one of the two another name")
        found = load_models(entry, Path(document["model_directory"]))
        models = {each: replace(model, seed=seed) for each, model in found.models.items()}
        configs[name] = found._replace(models=models)
    return configs


def _models(
    document: Mapping[str, Any], configs: Mapping[str, Defined]
) -> dict[str, ModelDefinition]:
    """The models of the configs, and those that `torchvision` selects, with the seed."""
    seed = document["measurement"]["seed"]
    models = {name: model for each in configs.values() for name, model in each.models.items()}
    chosen = zoo.select(**document["torchvision"]) if document["torchvision"] else {}
    if twice := sorted(models.keys() & chosen.keys()):
        raise OpcostError(
            f"{', '.join(twice)}: both a config in {document['model_directory']} that `models` "
            "names and chosen by `torchvision`: rename the config, or choose by narrower "
            "`torchvision.names`"
        )
    return models | {name: replace(model, seed=seed) for name, model in chosen.items()}
