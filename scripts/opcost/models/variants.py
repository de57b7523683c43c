"""Model configs of the models that a run names: one for each batch size and dtype."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from opcost.errors import OpcostError, closest
from opcost.models import zoo
from opcost.models.definition import InputSpec
from opcost.models.source import (
    check_names_factory,
    factory_from,
    find_source,
    find_weights,
    module_from,
)
from opcost.plain_yaml import read_yaml

_GENERIC = "build"
"""A generic name of factories; the model is then named after the file."""


@dataclass(frozen=True)
class Options:
    """The options of the command line for all models.

    With `batches`, `inputs` lack the batch dimension; otherwise they are complete.
    """

    batches: tuple[int, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    dtypes: tuple[str | None, ...] = (None,)
    channels_last: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Variant(NamedTuple):
    """A model config: its preferred name, its content, and an alternative name if that is taken.

    One that the user has named replaces an earlier model of that name.
    """

    name: str
    config: dict[str, Any]
    longer: str | None = None
    is_named: bool = False


def variants(argument: str, options: Options, directory: Path) -> list[Variant]:
    """The configs of a MODEL argument, as files of `directory`. Raises OpcostError."""
    generation, step, _ = argument.partition("[")
    if step and (directory / f"{generation}.yaml").is_file():
        raise OpcostError(
            f"{argument} is a part of {directory / generation}.yaml, whose parts are all measured: "
            f"opcost run {generation}"
        )
    names = _of_torchvision(argument)
    if names:
        return [each for name in names for each in _torchvision(name, options)]
    if argument.endswith((".yaml", ".yml")):
        return _of_config(Path(argument), options, directory)
    if ":" in argument:
        return _of_factory(argument, options, directory)
    if (directory / f"{argument}.yaml").is_file():
        return _of_config(directory / f"{argument}.yaml", options, directory)
    check_names_factory(argument)
    known = [*zoo.names(), *(path.stem for path in directory.glob("*.yaml"))]
    raise OpcostError(
        f"{argument!r} is not a torchvision model, a model config (NAME.yaml, or its name in "
        f"{directory}) or a factory (FILE.py:callable or package.module:callable). "
        f"{closest(argument, known)}".rstrip()
    )


def _of_torchvision(argument: str) -> list[str]:
    """The models of torchvision with this name or pattern; quantised ones cannot be extracted."""
    if zoo.family(argument) is not None:
        return [argument]
    if ":" in argument or not re.search(r"[*?[]", argument):
        return []
    matching = [name for name in zoo.names() if fnmatchcase(name, argument)]
    found = [name for name in matching if zoo.family(name) != "quantization"]
    if not found:
        raise OpcostError(
            f"{argument!r} matches no model of torchvision. "
            f"{closest(argument, zoo.names())}".rstrip()
        )
    return found


def _torchvision(name: str, options: Options) -> list[Variant]:
    official = [tuple(shape) for shape in zoo.official_inputs()[str(zoo.family(name))][name]]
    in_list = zoo.takes_list(name)
    batches, samples = options.batches or (1,), list(options.inputs)
    if samples and not options.batches and not in_list:
        batches, samples = _split(name, samples, InputSpec(official[0]))
    for spec in samples:
        if len(spec.shape) != len(official[0]):
            raise OpcostError(
                f"--input {spec}: {name} takes inputs of {len(official[0])} dimensions and that of "
                f"the batch, such as --batch 1 --input {InputSpec(official[0])}"
            )
    found = []
    for batch in batches:
        each = samples or [InputSpec(shape) for shape in official]
        if not in_list:
            inputs = [_batched(spec, batch) for spec in each]
        else:
            inputs = each if options.inputs and not options.batches else each * batch
        own = [] if [spec.shape for spec in each] == official else ["_".join(map(_sizes, each))]
        number = len(inputs) if in_list else batch
        config = {"model": name, **({"inputs_in_list": True} if in_list else {})}
        found += _each_dtype([name, f"b{number}", *own], config, inputs, options)
    return found


def _split(
    name: str, inputs: Sequence[InputSpec], official: InputSpec
) -> tuple[tuple[int, ...], list[InputSpec]]:
    """The batch size of complete inputs, and the inputs without it."""
    full = _batched(official, 1)
    for spec in inputs:
        if len(spec.shape) != len(full.shape):
            lacks_batch = len(spec.shape) == len(official.shape)
            example = _batched(spec, 1) if lacks_batch else full
            raise OpcostError(
                f"--input {spec}: {name} takes inputs of {len(full.shape)} dimensions, of which "
                f"the first is the batch: give --input {example}"
                f"{', or --batch 1 as well' if lacks_batch else ', for example'}"
            )
    if len({spec.shape[0] for spec in inputs}) > 1:
        raise OpcostError(
            f"{name} takes inputs of equal batch sizes: {', '.join(map(str, inputs))}"
        )
    samples = [InputSpec(spec.shape[1:], spec.dtype, spec.high) for spec in inputs]
    return (inputs[0].shape[0],), samples


def _of_factory(argument: str, options: Options, directory: Path) -> list[Variant]:
    if not options.inputs:
        raise OpcostError(
            f"the inputs of {argument} are unknown: give each with --input, such as --input "
            "1x3x224x224, or with --batch and without the batch dimension: --batch 1,8 --input "
            "3x224x224. Integers have a type and a limit: --input '1x128:int64<30522'"
        )
    factory = factory_from(argument, directory)
    module, _, attribute = argument.rpartition(":")
    stem = Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]
    label = attribute if attribute != _GENERIC else stem
    found = []
    for batch in options.batches or (None,):
        inputs = [_batched(spec, batch) if batch else spec for spec in options.inputs]
        sizes = [*map(_sizes, options.inputs)]
        words = [label, f"b{batch}"] if batch else [label, *sizes]
        found += _each_dtype(words, {"factory": factory}, inputs, options, sizes if batch else [])
    return found


def _each_dtype(
    words: Sequence[str],
    config: Mapping[str, Any],
    inputs: Sequence[InputSpec],
    options: Options,
    more: Sequence[str] = (),
) -> list[Variant]:
    """A variant for each dtype, named after settings that are not default; `more` lengthens it."""
    given: dict[str, Any] = {"arguments": dict(options.arguments)} if options.arguments else {}
    words = [*words, *(f"{name}_{value}" for name, value in options.arguments.items())]
    if options.channels_last:
        given["memory_format"] = "channels_last"
        words.append("channels_last")
    found = []
    for dtype in options.dtypes:
        # Models of torchvision are in float32 anyway.
        stated = [dtype] if dtype and (dtype != "float32" or "factory" in config) else []
        every = [*words, *stated]
        document = {**config, **given, **({"dtype": dtype} if stated else {})}
        document["inputs"] = list(map(_document, inputs))
        found.append(Variant(_name(every), document, _name([*every, *more]) if more else None))
    return found


def _name(words: Sequence[str]) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", "_".join(words)).lstrip(".")


def _of_config(path: Path, options: Options, directory: Path) -> list[Variant]:
    """A config, or variants with other batch sizes: the first size of each input."""
    if options != Options(options.batches):
        raise OpcostError(
            f"{path} defines inputs, dtype and arguments: give none of them, only --batch"
        )
    config = read_yaml(path)
    if not isinstance(config, dict):
        raise OpcostError(f"{path} is not a model config (config/README.md)")
    if path.parent.resolve() != directory.resolve():
        config = {key: _from_there(value, path.parent, directory) for key, value in config.items()}
        if (file := find_weights(config.get("weights"), path.parent)) is not None:
            config["weights"] = os.path.relpath(file, directory.resolve())
    if not options.batches:
        return [Variant(path.stem, config, is_named=True)]
    try:
        if config.get("inputs_in_list") or not config.get("inputs"):
            raise ValueError("no batch dimension")
        tensors = {key: config[key] for key in ("inputs", "targets") if config.get(key)}
        return [
            Variant(f"{path.stem}_b{batch}", config | with_batch(tensors, batch), is_named=True)
            for batch in options.batches
        ]
    except ValueError as error:
        raise OpcostError(
            f"{path}: its inputs have no batch dimension for --batch: change the file"
        ) from error


def with_batch(value: Any, batch: int) -> Any:
    """A part of a config with another first size of its tensors.

    Raises ValueError for a tensor without dimensions.
    """
    if isinstance(value, list):
        return [with_batch(each, batch) for each in value]
    if not isinstance(value, Mapping):
        return value
    shape = value.get("shape")
    if shape is None:
        return {key: with_batch(each, batch) for key, each in value.items()}
    if not isinstance(shape, list) or not shape:
        raise ValueError("no batch dimension")
    return {**value, "shape": [batch, *shape[1:]]}


def _from_there(value: Any, beside: Path, directory: Path) -> Any:
    """A value of a config moved to `directory`: code in a file beside the config is still found."""
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return {**value, "name": _from_there(value["name"], beside, directory)}
    if not isinstance(value, str) or ":" not in value:
        return value
    source = find_source(value, beside)
    return (
        value if source is None else f"{module_from(source, directory)}:{value.rpartition(':')[2]}"
    )


def _batched(spec: InputSpec, batch: int) -> InputSpec:
    return InputSpec((batch, *spec.shape), spec.dtype, spec.high)


def _sizes(spec: InputSpec) -> str:
    return "x".join(map(str, spec.shape))


def _document(spec: InputSpec) -> dict[str, Any]:
    optional = {"dtype": spec.dtype, "high": spec.high}
    given = {key: value for key, value in optional.items() if value is not None}
    return {"shape": list(spec.shape), **given}
