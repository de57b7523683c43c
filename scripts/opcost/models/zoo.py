"""Models of libraries: all of torchvision at their official inputs, selected by family and name;
and those of others by name: `timm:resnet50d`, `transformers:LlamaForCausalLM`.

Weights are random unless a definition names some, and nothing is downloaded. Importing a library
takes seconds, and Snakemake reads the study at each start: `torchvision_models.yaml` has the
official inputs, and libraries are imported only where a model is built.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import OpcostError, closest
from opcost.models.definition import InputSpec, ModelDefinition

INPUTS_FILE = Path(__file__).with_name("torchvision_models.yaml")

Shapes = list[list[int]]

_SEPARATOR = ":"
_RANDOM = (
    "nothing is downloaded: leave `{}` out of the arguments, and name trained weights as "
    "`weights` beside `model`"
)
_WEIGHTS = ("weights", "weights_backbone")
_OF_ANY = ("attn_implementation", "decoder_start_token_id")
"""Values that configs of transformers accept without declaring them."""

_OF_CONFIG = ("dtype", "torch_dtype")
"""Values that a model config sets by its own key, dtype."""


@cache
def official_inputs() -> dict[str, dict[str, Shapes]]:
    """family -> model -> the shapes of its inputs, without the batch dimension."""
    return yaml.safe_load(INPUTS_FILE.read_text(encoding="utf-8"))


def family(model: str | None) -> str | None:
    """The family of a torchvision model, or None if there is no such model."""
    return next((name for name, models in official_inputs().items() if model in models), None)


def names() -> list[str]:
    """All models of torchvision."""
    return [name for models in official_inputs().values() for name in models]


def official_config(model: str) -> dict[str, Any]:
    """The config of a torchvision model at its official inputs, of one sample."""
    in_list, shapes = _official(model, 1)
    return {
        "model": model,
        **({"inputs_in_list": True} if in_list else {}),
        "inputs": [{"shape": shape} for shape in shapes],
    }


def takes_list(model: str) -> bool:
    """Whether a torchvision model takes its inputs as one list, of a tensor for each image."""
    return family(model) == "detection"


def _official(model: str, batch_size: int) -> tuple[bool, Shapes]:
    """Whether a torchvision model takes a list of inputs, and their shapes."""
    shapes = official_inputs()[str(family(model))][model]
    if takes_list(model):
        return True, shapes * batch_size
    return False, [[batch_size, *shape] for shape in shapes]


def select(
    families: Sequence[str], names: Sequence[str], batch_size: int
) -> dict[str, ModelDefinition]:
    """The models of these families that a pattern in `names` matches, by name.

    Raises OpcostError for a pattern that matches none of them.
    """
    candidates = [name for group in families for name in official_inputs()[group]]
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in candidates):
            raise OpcostError(
                f"torchvision.names: {pattern!r} matches no model of the families "
                f"{', '.join(families)}. {closest(pattern, candidates)}".rstrip()
            )
    chosen = [name for name in candidates if any(fnmatchcase(name, each) for each in names)]
    return {name: _definition(name, batch_size) for name in chosen}


def has_official_inputs(definition: ModelDefinition) -> bool:
    """Whether a definition is a torchvision model at its official inputs."""
    name, samples = str(definition.model), definition.batch_size
    return (
        family(name) is not None
        and samples is not None
        and definition.inputs == _definition(name, samples).inputs
    )


def _definition(name: str, batch_size: int) -> ModelDefinition:
    in_list, shapes = _official(name, batch_size)
    inputs = tuple(InputSpec(tuple(shape)) for shape in shapes)
    return ModelDefinition(name, inputs, model=name, inputs_in_list=in_list, zoo=True)


def library_of(model: str | None) -> str | None:
    """The library of a model, or None if it is one of torchvision.

    Raises OpcostError for a library that opcost does not know.
    """
    library, separator, _ = (model or "").partition(_SEPARATOR)
    if not separator:
        return None
    if library not in _CONSTRUCTORS:
        raise OpcostError(
            f"{model!r} is of an unknown library {library!r}. {closest(library, _CONSTRUCTORS)} "
            f"Models of others are a factory: package.module:callable".lstrip()
        )
    return library


def installed_version(library: str) -> str:
    """The version of a library. Raises OpcostError if it is not installed."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError as error:
        raise OpcostError(
            f"{library} is not installed: pip install 'opcost[models]', or in a clone "
            ".venv/bin/pip install -r requirements-models.txt"
        ) from error


Construct = tuple[Callable[..., Any], dict[str, Any]]
"""What makes a module, and the arguments that it is called with."""


def constructor(definition: ModelDefinition) -> Construct:
    """The constructor of a library's model. Raises OpcostError for an unknown model or argument."""
    model, arguments = str(definition.model), dict(definition.arguments or {})
    library = library_of(model)
    if library is None:
        named = definition.weights if definition.has_named_weights else None
        published = "DEFAULT" if definition.zoo else named
        return _torchvision(model, arguments, published)
    installed_version(library)
    return _CONSTRUCTORS[library](model.partition(_SEPARATOR)[2], arguments)


def _torchvision(name: str, arguments: dict[str, Any], published: str | None) -> Construct:
    """`published` names weights of torchvision, whose architecture the model gets."""
    import torchvision.models  # importing takes seconds, and a factory may not need it

    if any(arguments.get(each) is not None for each in _WEIGHTS):
        raise OpcostError(_RANDOM.format("weights"))
    if name not in torchvision.models.list_models():
        raise OpcostError(
            f"torchvision has no model {name!r}. {closest(name, torchvision.models.list_models())}"
        )
    if name in torchvision.models.list_models(module=torchvision.models.quantization):
        raise OpcostError(
            "quantised models are not supported: opcost describes tensors of plain types, and what "
            "torchvision builds by default under this name is a float model"
        )
    builder = torchvision.models.get_model_builder(name)
    if published:
        known = torchvision.models.get_model_weights(builder).__members__
        if published not in known:
            raise OpcostError(
                f"torchvision has no weights {published!r} of {name}, only {', '.join(known)}; a "
                "file has a suffix or a folder in its name"
            )
        return builder, {"weights": published, **arguments}
    taken = inspect.signature(builder).parameters
    return builder, {each: None for each in _WEIGHTS if each in taken} | arguments


def _timm(name: str, arguments: dict[str, Any]) -> Construct:
    import timm

    if "pretrained" in arguments:
        raise OpcostError(_RANDOM.format("pretrained"))
    if not timm.is_model(name):
        raise OpcostError(f"timm has no model {name!r}. {closest(name, timm.list_models())}")
    return lambda: timm.create_model(name, pretrained=False, **arguments), {}


def _transformers(name: str, arguments: dict[str, Any]) -> Construct:
    import transformers

    kind: Any = getattr(transformers, name, None)
    config_class = getattr(kind, "config_class", None)
    if config_class is None:
        offered = [each for each in dir(transformers) if "For" in each or each.endswith("Model")]
        raise OpcostError(
            f"transformers has no model {name!r} with a config. {closest(name, offered)}"
        )
    # Warnings of token ids outside a small vocabulary are irrelevant.
    transformers.logging.set_verbosity_error()
    known = config_class()
    for key in arguments:
        if key in _OF_CONFIG:
            raise OpcostError(f"arguments: {key}: write `dtype` beside `model` instead")
        if not hasattr(known, key) and key not in _OF_ANY and not _reads(kind, key):
            offered = [each for each in vars(known) if each[0] != "_"]
            raise OpcostError(
                f"{config_class.__name__} has no value {key!r}. {closest(key, offered)}"
            )
    return lambda: kind(config_class(**arguments)), {}


def _reads(kind: type, key: str) -> bool:
    """Whether a model's file reads a config value that the config does not declare."""
    return f'"{key}"' in inspect.getsource(sys.modules[kind.__module__])


_CONSTRUCTORS: Mapping[str, Callable[[str, dict[str, Any]], Construct]] = {
    "timm": _timm,
    "transformers": _transformers,
}
