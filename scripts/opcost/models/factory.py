"""Import the factory and the loss of a model definition."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from opcost.errors import OpcostError, closest
from opcost.models.definition import ModelDefinition
from opcost.models.source import find_source, names_file, unchanged_source
from opcost.models.user_code import reason, user_code


def import_callable(
    definition: ModelDefinition, named: str, key: str, search_path: Path | None
) -> Any:
    """The callable that a key of a definition names; `search_path` is searched first for its
    module.

    Raises OpcostError, and ChangedSource if its file does not match the definition.
    """
    module_name, _, attribute = named.rpartition(":")
    source = find_source(named, search_path)
    folder = search_path
    if source is not None and names_file(named):
        module_name, folder = _importable(source)
    # A file outside a package needs no module name, which may be taken by another module.
    single = (
        source if "." not in module_name or module_name == getattr(source, "stem", "") else None
    )
    with unchanged_source(definition, search_path), own_arguments(named):
        module = _imported(definition, f"{key} {named!r}", module_name, folder, single)
    file = getattr(module, "__file__", None)
    taken = file or "part of Python itself"
    if source is not None and not _is_of(module, source):
        raise OpcostError(
            f"model {definition.name}: another module is named {module_name!r} ({taken}) and is "
            f"imported instead of {source}: rename this file, also in `{key}`"
        )
    found: Any = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        callables = [name for name, value in vars(module).items() if callable(value)]
        raise OpcostError(
            f"model {definition.name}: module {module_name!r} ({taken}) has no "
            f"callable {attribute!r}. {closest(attribute, callables)}"
        )
    return found


@contextmanager
def own_arguments(named: str) -> Iterator[None]:
    """Run code that a key names like a script without arguments, because it may parse them."""
    with mock.patch.object(sys, "argv", [named.rpartition(":")[0]]):
        yield


def _is_of(module: ModuleType, source: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == os.path.realpath(source)


def _importable(source: Path) -> tuple[str, Path]:
    """The name to import a file by, and the folder to search first: above its package, if any."""
    names, folder = [source.stem], source.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


def _imported(
    definition: ModelDefinition,
    purpose: str,
    module_name: str,
    search_path: Path | None,
    single: Path | None,
) -> ModuleType:
    if search_path is not None and str(search_path.resolve()) not in sys.path:
        sys.path.insert(0, str(search_path.resolve()))
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: its files may be named like others
    try:
        with user_code():
            return importlib.import_module(module_name) if single is None else _loaded(single)
    except Exception as error:
        where = str(search_path) if search_path else "the folder of the model config"
        by_file = "" if single else ", name it as FILE.py:callable,"
        remedy = f". Put its file into {where}{by_file} or install it"
        raise OpcostError(
            f"model {definition.name}: cannot import {module_name!r} for "
            f"{purpose}: {reason(error)}"
            f"{remedy if isinstance(error, ImportError) else ''}"
        ) from error


def _loaded(source: Path) -> ModuleType:
    """The module of a file, under the file's name unless another module has it."""
    known = sys.modules.get(source.stem)
    taken = source.stem in sys.stdlib_module_names or (known and not _is_of(known, source))
    name = str(source) if taken else source.stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None  # of a file that ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
