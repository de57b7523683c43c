"""Model configs: their files, and the models or isolated operators that they define.

Imports no torch: Snakemake reads the study each time it starts.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from opcost.configuration import check_name, checked, invalid, read_schema
from opcost.errors import OpcostError, closest
from opcost.models import zoo
from opcost.models.axes import KEYS, Point, expand, places
from opcost.models.definition import ModelDefinition, SingleOperator, named_part
from opcost.models.generation import Generation, check_step, read_generation
from opcost.models.inputs import read_arguments, read_training
from opcost.models.source import source_digest
from opcost.plain_yaml import read_yaml

Entry = str | Mapping[str, Any]
"""An entry of `models` in a study: the name of a file in the folder of configs or, if there is
none, of a torchvision model, which then has its official input; or a config with a name."""


class Defined(NamedTuple):
    """The models of a config by name: one, or one for each point of its axes, or the steps of its
    generation; and the modules that each lists.

    `points` has the values of the axes for each model that is a point, and each isolated operator.
    """

    models: dict[str, ModelDefinition]
    generations: tuple[Generation, ...] = ()
    points: Mapping[str, Point] = {}


def name_of(entry: Entry) -> str:
    """The name of an entry of `models`."""
    return entry if isinstance(entry, str) else str(entry["name"])


class Written(NamedTuple):
    """A config as it is written, the name of its models, and its place, for errors."""

    name: str
    config: Any
    source: str


def read_config(entry: Entry, directory: Path) -> Written:
    """The config of an entry of `models`. Raises OpcostError."""
    if not isinstance(entry, str):
        config = {key: value for key, value in entry.items() if key != "name"}
        check_name(entry["name"])
        return Written(entry["name"], config, f"models: {entry['name']}")
    path = directory / f"{entry}.yaml"
    if path.is_file():
        return Written(entry, read_yaml(path), str(path))
    if zoo.family(entry) is not None:
        return Written(entry, zoo.official_config(entry), f"models: {entry}")
    existing = [file.stem for file in directory.glob("*.yaml")]
    raise OpcostError(
        f"there is no model config {path}, nor a torchvision model {entry}: write the file, or set "
        "`models` and `model_directory` to others. "
        f"{closest(entry, [*existing, *zoo.names()])}".rstrip()
    )


def load_models(entry: Entry, directory: Path) -> Defined:
    """Read and validate an entry of `models`. Raises OpcostError."""
    written = read_config(entry, directory)
    return define_models(written.name, written.config, directory, written.source)


def load_model(name: str, directory: Path) -> ModelDefinition:
    """The model of a config, or its part with this name, as of `chat[cache=64]`. Raises
    OpcostError.
    """
    config, step, _ = name.partition("[")
    models = load_models(config, directory).models
    if name not in models:
        what = f"has no part {name}" if step else "stands for several models"
        raise OpcostError(f"{directory / config}.yaml {what}: name one of {', '.join(models)}")
    return models[name]


def define_models(name: str, config: Any, directory: Path, source: str) -> Defined:
    """The models of a config in `directory`; `source` names it in errors. Raises OpcostError."""
    if isinstance(config, Mapping) and "operator" in config:
        return _operators(name, config, source)
    models: dict[str, ModelDefinition] = {}
    generations: list[Generation] = []
    points: dict[str, Point] = {}
    keys = read_schema("model")["properties"].keys() - {*KEYS, "inputs", "layers"}
    for variant, written, point in expand(name, config, source, keys):
        where = f"{source}, {variant}" if point else source
        generation, configs = read_generation(variant, checked(written, "model", where), where)
        generations += [generation] if generation else []
        for step, document in configs.items():
            found = _with_layers(step, document, directory, where)
            models |= found
            points |= {variant: point} if point and variant in found else {}
    return Defined(models, tuple(generations), points)


def _operators(name: str, config: Mapping[str, Any], source: str) -> Defined:
    """The operators of a config, one for each point of its axes."""
    models, points = {}, {}
    keys = read_schema("operator")["properties"].keys() - {*KEYS, "operator", "parameters"}
    for variant, written, point in expand(name, config, source, keys):
        where = f"{source}, {variant}" if point else source
        document = checked(written, "operator", where)
        if lacking := [*places(document["operator"])]:
            raise invalid(where, f"${lacking[0]} is no axis: list its values under axes")
        parameters = document.get("parameters")
        operator = SingleOperator(
            document["operator"],
            None if parameters is None else tuple(parameters),
            float(document["zeros"]),
        )
        settings = {key: document[key] for key in ("dtype", "memory_format")}
        models[variant] = ModelDefinition(variant, (), operator=operator, **settings)
        points[variant] = point
    return Defined(models, points=points)


def define_model(name: str, config: Any, directory: Path, source: str) -> ModelDefinition:
    """The model of a config without generation. Raises OpcostError."""
    return define_models(name, config, directory, source).models[name]


def _with_layers(
    name: str, document: dict[str, Any], directory: Path, source: str
) -> dict[str, ModelDefinition]:
    """The model of a config, and each module that it lists under `layers`."""
    layers = document.pop("layers", ())
    model = _defined(name, document, directory, source)
    if layers and (model.training is not None or model.cached_tokens is not None):
        raise invalid(
            source,
            f"layers: {', '.join(layers)}: an isolated module is run in "
            "inference, without a cache: leave out mode: training, generation and cached_tokens, "
            "or layers",
        )
    named = {named_part(name, "layer", layer): layer for layer in layers}
    return {name: model} | {
        each: replace(model, name=each, layer=layer) for each, layer in named.items()
    }


def _defined(name: str, document: dict[str, Any], directory: Path, source: str) -> ModelDefinition:
    given = document.pop("inputs")
    inputs, arrangement = read_arguments(given, source)
    check_step({**document, "inputs": given}, len(inputs), source)
    training = read_training(document, source)
    if document["inputs_in_list"] and arrangement is not None:
        raise invalid(
            source,
            "inputs_in_list: it is true, but inputs are not a list of "
            "tensors: leave it out, and write the list into inputs, as [[{shape: [3, 64, 64]}]]",
        )
    return ModelDefinition(
        name=name,
        inputs=inputs,
        source_digest=source_digest(
            document.get("factory"),
            directory,
            training.loss if training else None,
            document.get("model"),
        ),
        arrangement=arrangement,
        training=training,
        **document,
    )
