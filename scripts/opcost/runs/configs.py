"""Write the model configs of a run, or reuse those that say the same."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import yaml

from opcost.configuration import check_name
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.models.configs import Defined, define_models, load_models
from opcost.models.definition import ModelDefinition
from opcost.models.variants import Variant

_HEAD = "# Written by opcost run; yours to change.\n"


def provide(variants: Iterable[Variant], directory: Path) -> tuple[list[str], list[str]]:
    """The names of configs in `directory` that define these models, and those that are new.

    A config of any name is reused if it defines the same model; no existing file is changed. Raises
    OpcostError for a name or content that no config can have, before any is written.
    """
    existing = _definitions(directory)
    names, written = [], []
    for variant, wanted in [(each, _checked(each, directory)) for each in variants]:
        same = sorted(name for name, each in existing.items() if each == wanted)
        if same:
            names.append(variant.name if variant.name in same else same[0])
            continue
        name = _free_name(variant, directory)
        _write(directory / f"{name}.yaml", variant)
        existing[name] = wanted
        names.append(name)
        written.append(name)
    return list(dict.fromkeys(names)), written


def _checked(variant: Variant, directory: Path) -> list[ModelDefinition]:
    check_name(variant.name)
    return _unnamed(define_models("", variant.config, directory, f"model {variant.name}"))


def _definitions(directory: Path) -> dict[str, list[ModelDefinition]]:
    """What each config of a folder defines, but for the name. Those that cannot be read are not."""
    found = {}
    for path in directory.glob("*.yaml"):
        with suppress(OpcostError):
            check_name(path.stem)
            found[path.stem] = _unnamed(load_models(path.stem, directory))
    return found


def _unnamed(defined: Defined) -> list[ModelDefinition]:
    return [replace(each, name="") for each in defined.models.values()]


def _free_name(variant: Variant, directory: Path) -> str:
    longer = variant.longer or variant.name
    candidates = chain([variant.name, longer], (f"{longer}_{number}" for number in count(2)))
    return next(each for each in candidates if not (directory / f"{each}.yaml").exists())


def _write(path: Path, variant: Variant) -> None:
    text = yaml.safe_dump(variant.config, sort_keys=False, default_flow_style=None)
    with replacing(path) as temporary:
        temporary.write_text(_HEAD + text, encoding="utf-8")
