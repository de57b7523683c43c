"""Model configs: their files, and the models or isolated operators that they define.

The arguments of a model's forward are a list of positional arguments, or a mapping of keyword
arguments. An argument is a tensor, which is a mapping with a `shape`; a list, a mapping or a
`{tuple: [...]}` of arguments; or a number, a boolean, a string or null.

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
from opcost.models.definition import (
    UNSCALED,
    InputSpec,
    ModelDefinition,
    SingleOperator,
    Training,
    named_part,
)
from opcost.models.generation import Generation, check_step, read_generation
from opcost.models.source import source_digest
from opcost.plain_yaml import read_yaml
from opcost.values import shown

Entry = str | Mapping[str, Any]
"""An entry of `models` in a study: the name of a file in the folder of configs or, if there is
none, of a torchvision model, which then has its official input; or a config with a name."""

_WITHOUT_AXIS = {*KEYS, "inputs", "layers", "operator", "parameters"}
"""Keys that are no axis themselves; $NAME may be in their values."""

_TUPLE = "tuple"
_RANGE = ("dtype", "low", "high")
_LIMITS = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int16": (-(2**15), 2**15),
    "int8": (-(2**7), 2**7),
    "uint8": (0, 2**8),
    "bool": (0, 2),
}
_FLOATS = {"float16": (-(2.0**15), 2.0**15)}
_OTHER_FLOATS = (-1e30, 1e30)


class Defined(NamedTuple):
    """The models of a config by name: one, or one for each point of its axes, or the steps of its
    generation; and the modules that each lists.

    `points` has the values of the axes for each model that is a point, and each isolated operator.
    """

    models: dict[str, ModelDefinition]
    generations: list[Generation]
    points: dict[str, Point]


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
    found = Defined({}, [], {})
    is_operator = isinstance(config, Mapping) and "operator" in config
    schema = "operator" if is_operator else "model"
    keys = read_schema(schema)["properties"].keys() - _WITHOUT_AXIS
    for variant, written, point in expand(name, config, source, keys):
        where = f"{source}, {variant}" if point else source
        document = checked(written, schema, where)
        if is_operator:
            found.models[variant] = _operator(variant, document, where)
            found.points[variant] = point
            continue
        generation, steps = read_generation(variant, document, where)
        found.generations.extend([generation] if generation else [])
        for step, each in steps.items():
            found.models.update(_model_and_layers(step, each, directory, where))
        if point and variant in found.models:
            found.points[variant] = point
    return found


def _operator(name: str, document: Mapping[str, Any], source: str) -> ModelDefinition:
    if lacking := [*places(document["operator"])]:
        raise invalid(source, f"${lacking[0]} is no axis: list its values under axes")
    parameters = document.get("parameters")
    operator = SingleOperator(
        document["operator"],
        None if parameters is None else tuple(parameters),
        float(document["zeros"]),
    )
    settings = {key: document[key] for key in ("dtype", "memory_format")}
    return ModelDefinition(name, (), operator=operator, **settings)


def _model_and_layers(
    name: str, document: dict[str, Any], directory: Path, source: str
) -> dict[str, ModelDefinition]:
    """The model of a config, and each module that it lists under `layers`."""
    layers, given = document.pop("layers", ()), document.pop("inputs")
    inputs, arrangement = read_arguments(given, source)
    check_step({**document, "inputs": given}, len(inputs), source)
    training = read_training(document, source)
    if document["inputs_in_list"] and arrangement is not None:
        raise invalid(
            source,
            "inputs_in_list: it is true, but inputs are not a list of "
            "tensors: leave it out, and write the list into inputs, as [[{shape: [3, 64, 64]}]]",
        )
    model = ModelDefinition(name, inputs, arrangement=arrangement, training=training, **document)
    if model.has_named_weights and (model.factory or zoo.library_of(model.model)):
        raise invalid(
            source,
            f"weights: {model.weights} is a name, and only torchvision's models have named "
            "weights: give a file, with its suffix or folder",
        )
    model = replace(model, source_digest=source_digest(directory, *model.code))
    if layers and (model.trains or model.generates):
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


def read_arguments(
    document: Any, source: str, key: str = "inputs", least: int = 1
) -> tuple[tuple[InputSpec, ...], Any]:
    """The tensors of a config's key, in order, and their arrangement: None if each is a positional
    argument. The key must fit its schema. Raises OpcostError.
    """
    if isinstance(document, list) and all(map(_is_tensor, document)):
        places = (f"{key}.{number}" for number in range(len(document)))
        pairs = zip(document, places, strict=True)
        return tuple(read_tensor(each, place, source) for each, place in pairs), None
    if _is_tensor(document):
        raise invalid(
            source,
            f"{key}: {shown(document)} is a tensor: write the arguments "
            "as a list (- shape: ...), or by name (x: {shape: ...})",
        )
    tensors: list[InputSpec] = []

    def read(value: Any, place: str) -> Any:
        if _is_tensor(value):
            tensors.append(read_tensor(value, place, source))
            return {"tensor": len(tensors) - 1}
        if isinstance(value, list):
            return {"list": [read(each, f"{place}.{n}") for n, each in enumerate(value)]}
        if not isinstance(value, Mapping):
            return {"value": value}
        if list(value) == [_TUPLE] and isinstance(value[_TUPLE], list):
            return {"tuple": read(value[_TUPLE], f"{place}.{_TUPLE}")["list"]}
        if wrong := [key for key in _RANGE if key in value]:
            raise invalid(
                source,
                f"{place}: it has {wrong[0]}, but no shape: give the "
                "sizes of a tensor, such as shape: [8, 128], or another key for a mapping",
            )
        return {"dict": {key: read(each, f"{place}.{key}") for key, each in value.items()}}

    arrangement = read(document, key)
    if len(tensors) < least:
        raise invalid(
            source,
            f"{key}: {shown(document)} has no tensor: give the shape of "
            "at least one, such as {shape: [8, 3, 224, 224]}",
        )
    return tuple(tensors), arrangement


def read_training(document: dict[str, Any], source: str) -> Training | None:
    """The training step of a config that fits its schema; removes its keys from `document`.

    None if the mode is inference. Raises OpcostError.
    """
    keys = ("loss", "targets", "optimizer")
    precisions = (document.get("dtype"), document.get("autocast"))
    if document["mode"] == "training" and "float16" in precisions:
        raise invalid(source, UNSCALED)
    given = {key: value for key in keys if (value := document.pop(key, None)) is not None}
    if document["mode"] != "training":
        if given:
            raise invalid(
                source,
                f"{next(iter(given))}: it is for training: write mode: training, or leave it out",
            )
        return None
    if "targets" in given and "loss" not in given:
        raise invalid(
            source,
            "targets: they are given to a loss, but there is none: name "
            "one, such as loss: cross_entropy; what forward itself takes belongs to inputs",
        )
    targets, arrangement = read_arguments(given.get("targets", []), source, "targets", least=0)
    return Training(
        *_named(given.get("loss")), targets, arrangement, *_named(given.get("optimizer"))
    )


def _named(value: Any) -> tuple[str | None, dict[str, Any]]:
    """The name and the arguments in `NAME` or `{name: NAME, ...}`."""
    if not isinstance(value, Mapping):
        return value, {}
    return value["name"], {key: each for key, each in value.items() if key != "name"}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Mapping) and "shape" in value


def input_dtypes() -> list[str]:
    """The dtypes that an input may have."""
    found: list[str] = read_schema("model")["$defs"]["tensor"]["properties"]["dtype"]["enum"]
    return found


def read_tensor(value: Mapping[str, Any], place: str, source: str) -> InputSpec:
    """The tensor of a mapping that fits the schema. Raises OpcostError for a wrong range."""
    spec = InputSpec(tuple(value["shape"]), *(value.get(key) for key in ("dtype", "high", "low")))
    if (spec.dtype or "").startswith("complex") and (spec.low, spec.high) != (None, None):
        raise invalid(source, f"{place}: complex numbers have no range: leave out low and high")
    least, most = spec.limits
    if spec.dtype in _LIMITS and not all(isinstance(each, int) for each in (least, most)):
        raise invalid(
            source, f"{place}: low and high of {spec.dtype} are {least} and {most}: give integers"
        )
    if least >= most:
        raise invalid(source, f"{place}.high: {most} is not greater than low, which is {least}")
    allowed = {**_LIMITS, **_FLOATS}.get(spec.dtype or "", _OTHER_FLOATS)
    if not allowed[0] <= least <= most <= allowed[1]:
        raise invalid(
            source,
            f"{place}: low and high are {least} and {most}: give numbers "
            f"from {allowed[0]} to {allowed[1]} for {spec.dtype or 'floats'}",
        )
    return spec
