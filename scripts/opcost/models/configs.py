"""Model configs: their files, and the models that they define.

Imports no torch: Snakemake reads the study each time it starts.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from opcost.configuration import checked
from opcost.errors import OpcostError, closest
from opcost.models.definition import ModelDefinition
from opcost.models.generation import Generation, check_step, read_generation
from opcost.models.inputs import read_arguments, read_training
from opcost.models.source import source_digest
from opcost.plain_yaml import read_yaml


class Defined(NamedTuple):
    """The models of a config by name: one of the config's name, with its layers if it lists some;
    or the steps of a generation.
    """

    models: dict[str, ModelDefinition]
    generation: Generation | None


def load_models(name: str, directory: Path) -> Defined:
    """Read and validate `directory`/`name`.yaml. Raises OpcostError."""
    path = directory / f"{name}.yaml"
    if not path.is_file():
        existing = [file.stem for file in directory.glob("*.yaml")]
        raise OpcostError(
            f"there is no model config {path}: write it, or set `models` and `model_directory` to "
            f"others. {closest(name, existing)}".rstrip()
        )
    return define_models(name, read_yaml(path), directory, str(path))


def load_model(name: str, directory: Path) -> ModelDefinition:
    """The model of a config, or its step or layer with this name, as of `chat[cache=64]`.

    Raises OpcostError.
    """
    config, step, _ = name.partition("[")
    models = load_models(config, directory).models
    if name not in models:
        what = f"has no step or layer {name}" if step else "is a generation of several steps"
        raise OpcostError(f"{directory / config}.yaml {what}: name one of {', '.join(models)}")
    return models[name]


def define_models(name: str, config: Any, directory: Path, source: str) -> Defined:
    """The models of a config in `directory`; `source` names it in errors. Raises OpcostError."""
    generation, configs = read_generation(name, checked(config, "model", source), source)
    models = {
        each: definition
        for step, document in configs.items()
        for each, definition in _with_layers(step, document, directory, source).items()
    }
    return Defined(models, generation)


def define_model(name: str, config: Any, directory: Path, source: str) -> ModelDefinition:
    """The model of a config that is no generation. Raises OpcostError."""
    return define_models(name, config, directory, source).models[name]


def _with_layers(
    name: str, document: dict[str, Any], directory: Path, source: str
) -> dict[str, ModelDefinition]:
    """The model of a config, and each layer that it lists."""
    layers = document.pop("layers", ())
    model = _defined(name, document, directory, source)
    if layers and (model.training is not None or model.cached_tokens is not None):
        raise OpcostError(
            f"{source} is not valid:\n  layers: {', '.join(layers)}: a layer is run alone in "
            "inference, without a cache: leave out mode: training, generation and cached_tokens, "
            "or layers"
        )
    named = {f"{name}[layer={layer}]": layer for layer in layers}
    return {name: model} | {
        each: replace(model, name=each, layer=layer) for each, layer in named.items()
    }


def _defined(name: str, document: dict[str, Any], directory: Path, source: str) -> ModelDefinition:
    given = document.pop("inputs")
    inputs, arrangement = read_arguments(given, source)
    check_step({**document, "inputs": given}, len(inputs), source)
    training = read_training(document, source)
    if document["inputs_in_list"] and arrangement is not None:
        raise OpcostError(
            f"{source} is not valid:\n  inputs_in_list: it is true, but inputs are not a list of "
            "tensors: leave it out, and write the list into inputs, as [[{shape: [3, 64, 64]}]]"
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
