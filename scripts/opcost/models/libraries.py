"""Models of other libraries: `timm:resnet50d`, `transformers:LlamaForCausalLM`.

Weights are random, and nothing is downloaded. The arguments of a model of transformers are the
values of its config.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from opcost.errors import OpcostError, closest

_SEPARATOR = ":"
_RANDOM = "weights are random, and nothing is downloaded: leave `{}` out of the arguments"
_OF_ANY = ("attn_implementation", "decoder_start_token_id")
"""Values that configs of transformers accept without declaring them."""

_OF_CONFIG = {"dtype": "dtype", "torch_dtype": "dtype"}
"""Values that a model config sets by its own keys."""


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


def constructor(model: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    """The constructor of a library's model. Raises OpcostError for an unknown model or argument."""
    library, _, name = model.partition(_SEPARATOR)
    installed_version(library)
    return _CONSTRUCTORS[library](name, arguments)


def _timm(name: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    import timm

    if "pretrained" in arguments:
        raise OpcostError(_RANDOM.format("pretrained"))
    if not timm.is_model(name):
        raise OpcostError(f"timm has no model {name!r}. {closest(name, timm.list_models())}")
    return lambda: timm.create_model(name, pretrained=False, **arguments)


def _transformers(name: str, arguments: Mapping[str, Any]) -> Callable[[], Any]:
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
            raise OpcostError(f"arguments: {key}: write `{_OF_CONFIG[key]}` beside `model` instead")
        if not hasattr(known, key) and key not in _OF_ANY and not _reads(kind, key):
            offered = [each for each in vars(known) if each[0] != "_"]
            raise OpcostError(
                f"{config_class.__name__} has no value {key!r}. {closest(key, offered)}"
            )
    return lambda: kind(config_class(**arguments))


def _reads(kind: type, key: str) -> bool:
    """Whether a model's file reads a config value that the config does not declare."""
    return f'"{key}"' in inspect.getsource(sys.modules[kind.__module__])


_CONSTRUCTORS: Mapping[str, Callable[[str, Mapping[str, Any]], Callable[[], Any]]] = {
    "timm": _timm,
    "transformers": _transformers,
}
