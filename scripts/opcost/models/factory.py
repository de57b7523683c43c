"""Import the factory and the loss of a model definition."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from opcost.errors import OpcostError, closest
from opcost.models.definition import ModelDefinition
from opcost.models.source import find_source, names_file, unchanged_source
from opcost.models.user_code import reason, user_code


def import_callable(
    definition: ModelDefinition, named: str, key: str, search_path: Path | None
) -> Any:
    """The callable that a key of a definition names; its module is first searched in `search_path`.

    Raises OpcostError, and ChangedSource if its file is not the one that the definition describes.
    """
    module_name, _, attribute = named.rpartition(":")
    source = find_source(named, search_path)
    folder = search_path
    if source is not None and names_file(named):
        module_name, folder = _importable(source)
    with unchanged_source(definition, search_path):
        module = _imported(definition, f"{key} {named!r}", module_name, folder)
    file = getattr(module, "__file__", None)
    taken = file or "part of Python itself"
    if source is not None and (file is None or os.path.realpath(file) != os.path.realpath(source)):
        raise OpcostError(
            f"model {definition.name}: another module is named {module_name!r} ({taken}) and is "
            f"imported instead of {source}: rename this file, also in `{key}`"
        )
    found = getattr(module, attribute, None)
    if not callable(found):
        callables = [name for name, value in vars(module).items() if callable(value)]
        raise OpcostError(
            f"model {definition.name}: module {module_name!r} ({taken}) has no "
            f"callable {attribute!r}. {closest(attribute, callables)}"
        )
    return found


def _importable(source: Path) -> tuple[str, Path]:
    """The name to import a file by, and the folder to search first: above its package, if any."""
    names, folder = [source.stem], source.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


def _imported(
    definition: ModelDefinition, purpose: str, module_name: str, search_path: Path | None
) -> ModuleType:
    if search_path is not None and str(search_path.resolve()) not in sys.path:
        sys.path.insert(0, str(search_path.resolve()))
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: its files have the names of others by accident
    try:
        with user_code():
            return importlib.import_module(module_name)
    except Exception as error:
        where = str(search_path) if search_path else "the folder of the model config"
        remedy = f". Put its file into {where}, name it as FILE.py:callable, or install it"
        raise OpcostError(
            f"model {definition.name}: cannot import {module_name!r} for "
            f"{purpose}: {reason(error)}"
            f"{remedy if isinstance(error, ImportError) else ''}"
        ) from error
