"""Models, inputs and arguments as named on the command line."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from opcost.configuration import check_name, read_schema
from opcost.errors import OpcostError
from opcost.models import zoo
from opcost.models.configs import (
    Defined,
    define_models,
    input_dtypes,
    load_model,
    load_models,
    read_tensor,
)
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.variants import Options, variants

CONFIGS = Path("config/models")
"""The folder of model configs that are named without a path."""

_STEP = "["
_NONE = Options()
_INPUT = re.compile(r"(\d{1,19}(?:x\d{1,19})*)(?::([a-z]+\d*))?(?:<(\d{1,18}))?")


def find_model(name: str, options: Options = _NONE) -> tuple[ModelDefinition, Path | None]:
    """The definition of a model, and the folder to search first for its code.

    `name` is a torchvision model (by default with its official inputs), a model config (its path,
    or its name in config/models) without options except for a batch size, or
    `package.module:factory` or `FILE.py:factory` with inputs. Raises OpcostError for anything else.
    """
    [dtype] = options.dtypes
    allowed = read_schema("model")["properties"]["dtype"]["enum"]
    if dtype is not None and dtype not in allowed:
        raise OpcostError(f"{dtype!r} is not a dtype of parameters. Allowed: {', '.join(allowed)}")
    if (config := config_path(name)) is not None:
        part = f"{config.stem}{''.join(name.partition(_STEP)[1:])}"
        if options != _NONE and _STEP in name:
            raise _no_options(config)
        if options != _NONE:
            return _of_variant(str(config), options, config.parent)
        found = load_model(part, config.parent)
        if found.is_operator:
            from opcost.tuples.extraction import extract_model_tuples  # imports PyTorch

            [record] = extract_model_tuples(found).tuples
            raise OpcostError(
                f"{name} is an operator without a model, which has no parts. Its row: opcost query "
                f"--tuple {shlex.quote(str(record.operator_tuple))}"
            )
        return found, config.parent
    directory = Path.cwd() if ":" in name else CONFIGS
    label = name.rpartition(":")[2] if ":" in name or zoo.family(name) else None
    return _of_variant(name, options, directory, label)


def _of_variant(
    name: str, options: Options, directory: Path, label: str | None = None
) -> tuple[ModelDefinition, Path]:
    """The model that `opcost run` measures with these options, by default named like its config."""
    found = variants(name, options, directory)
    label = label or found[0].name
    models = define_models(label, found[0].config, directory, name).models
    if len(found) > 1 or label not in models:
        raise OpcostError(f"{name} stands for several models: name one")
    return models[label], directory


def find_steps(name: str, options: Options = _NONE) -> tuple[Defined, Path | None]:
    """The model of `find_model`; if a config or a point of its axes is a generation, all steps."""
    config = config_path(name)
    if config is not None and config.is_file():
        found = load_models(config.stem, config.parent)
        wanted = f"{config.stem}{''.join(name.partition(_STEP)[1:])}"
        for generation in found.generations:
            if generation.name == wanted:
                if options != _NONE:
                    raise _no_options(config)
                steps = {step: found.models[step] for step in generation.models}
                return Defined(steps, [generation], {}), config.parent
    definition, search_path = find_model(name, options)
    return Defined({definition.name: definition}, [], {}), search_path


def config_path(name: str) -> Path | None:
    """The model config with this path, or with this name in config/models, or None.

    The name of a step may follow: `chat[cache=64]`.
    """
    for path in (Path(name), CONFIGS / f"{name}.yaml"):
        if _STEP in name and path.suffix == ".yaml" and path.is_file():
            check_name(path.stem)
    name = name.partition(_STEP)[0]
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    path = CONFIGS / f"{name}.yaml"
    named = ":" not in name and zoo.family(name) is None
    return path if named and path.is_file() else None


def parse_input(text: str) -> InputSpec:
    """Parse `8x3x224x224`, `8x128:int64`, or `8x128:int64<30522` for integers below 30522.

    Raises OpcostError for anything else.
    """
    match, dtypes = _INPUT.fullmatch(text), input_dtypes()
    if match is None or (match[2] is not None and match[2] not in dtypes):
        raise OpcostError(
            f"{text!r} is not an input: give its shape, and a dtype if it is not the model's, such "
            f"as 1x3x224x224 or 8x128:int64<30522. Dtypes: {', '.join(dtypes)}. For "
            "keyword arguments, dicts and other values, write a model config as in "
            "docs/how_to/add_a_model.md"
        )
    shape = tuple(map(int, match[1].split("x")))
    if 0 in shape or (match[3] is not None and int(match[3]) == 0):
        raise OpcostError(
            f"{text!r} is not an input: sizes and the upper limit of integers must be 1 or more"
        )
    high = {"high": int(match[3])} if match[3] else {}
    return read_tensor({"shape": shape, "dtype": match[2], **high}, "input", text)


def parse_argument(text: str) -> tuple[str, Any]:
    """Parse `NAME=VALUE`, where VALUE is JSON or else a string. Raises OpcostError without `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise OpcostError(f"{text!r} is not an argument: give NAME=VALUE, such as width=64")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def run_command(definition: ModelDefinition, name: str) -> str:
    """The command that measures the model that `find_model` found by this name."""
    words = ["opcost", "run", name]
    if (config := config_path(name)) is not None:
        own = definition.name.partition(_STEP)[0] == config.stem
        batch = [] if own else [f"--batch={definition.batch_size}"]
        return shlex.join([*words[:2], name.partition(_STEP)[0], *batch])
    if zoo.has_official_inputs(definition):
        words += [] if definition.batch_size == 1 else [f"--batch={definition.batch_size}"]
    else:
        words += [
            f"--input={spec}{f'<{spec.high}' if spec.high else ''}" for spec in definition.inputs
        ]
    if definition.dtype is not None:
        words.append(f"--dtype={definition.dtype}")
    if definition.memory_format == "channels_last":
        words.append("--channels-last")
    for key, value in (definition.arguments or {}).items():
        words.append(f"--argument={key}={value if isinstance(value, str) else json.dumps(value)}")
    return shlex.join(words)


def _no_options(config: Path) -> OpcostError:
    return OpcostError(
        f"{config} defines inputs, dtype and arguments, also of each step: give none of them"
    )
