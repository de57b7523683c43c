"""The user's code: the files of factories and losses, digests of them, and their import.

Imports little: Snakemake reads the study each time it starts.
"""

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from opcost.errors import OpcostError, closest, refusal
from opcost.files import content_of, opened
from opcost.memory import gib
from opcost.models.definition import ModelDefinition
from opcost.models.user_code import reason, user_code
from opcost.models.zoo import installed_version, library_of

_OFFERED = 8
_MOST_BYTES = 2**40
"""No device holds more weights; hashing them takes an hour."""


class ChangedSource(OpcostError):
    """The file of a factory does not match its definition.

    Ends a job, because its result would describe another model.
    """


def find_source(factory: str | None, directory: Path | None) -> Path | None:
    """The file of a factory in `directory`, or None if it is elsewhere.

    A factory may name its file, by a path from `directory`. Raises OpcostError if there is none.
    """
    if factory is None:
        return None
    module = factory.rpartition(":")[0]
    if names_file(factory):
        source = Path(os.path.normpath((directory or Path()).resolve() / module))
        if not source.is_file():
            raise OpcostError(f"there is no file {source}, which {factory!r} names")
        return source
    if directory is None:
        return None
    source = directory / (module.replace(".", "/") + ".py")
    return source if source.is_file() else None


def find_weights(weights: str | None, directory: Path | None) -> Path | None:
    """The file of a model's weights, by a path from `directory`; None if they are random, or have a
    name in torchvision, such as IMAGENET1K_V2. Raises OpcostError if there is none.
    """
    if weights is None or weights.isidentifier():
        return None
    file = Path(os.path.normpath((directory or Path()).resolve() / Path(weights).expanduser()))
    if not file.is_file():
        raise OpcostError(f"there is no file {file}, which `weights: {weights}` names")
    return file


def sources_of(definition: ModelDefinition, config: str, directory: Path) -> list[Path]:
    """The files of a directory that define a model: its config and its factory, as far as they are
    there.
    """
    file = directory / f"{config}.yaml"
    source = find_source(definition.factory, directory)
    return [*([file] if file.is_file() else []), *([source] if source else [])]


def factory_from(argument: str, directory: Path) -> str:
    """FILE.py:NAME or package.module:NAME, as a config in `directory` names it.

    Raises OpcostError for a missing file, and for an impossible NAME.
    """
    module, _, attribute = argument.rpartition(":")
    if not all(part.isidentifier() for part in attribute.split(".")):
        raise OpcostError(
            f"{argument}: {attribute!r} is no name in Python: name the function or class that "
            "makes the model, as FILE.py:NAME or package.module:NAME"
        )
    by_file = module.endswith(".py")
    file = Path(module if by_file else f"{module.replace('.', '/')}.py")
    # In a folder without __init__.py, a module is imported by its full name.
    if file.is_file() and (by_file or "." not in module or file.with_name("__init__.py").is_file()):
        return f"{module_from(file, directory)}:{attribute}"
    if by_file:
        raise OpcostError(f"there is no file {file}: check the path")
    return argument


def module_from(file: Path, directory: Path) -> str:
    """The module of a factory: its name for a file of the directory, else a path from there."""
    path = os.path.relpath(os.path.realpath(file), os.path.realpath(directory))
    beside = os.path.dirname(path) == "" and file.stem.isidentifier()
    return file.stem if beside else path


def names_file(factory: str) -> bool:
    """Whether a factory is `path/to/file.py:callable`, not `package.module:callable`."""
    return factory.rpartition(":")[0].endswith(".py")


def check_names_factory(model: str) -> None:
    """Raise OpcostError for a file without a NAME, `FILE.py`, listing the factories in it."""
    if not model.endswith(".py"):
        return
    file = Path(model)
    if not file.is_file():
        raise OpcostError(f"there is no file {file}: check the path")
    defined = (ast.FunctionDef, ast.ClassDef)
    names = [each.name for each in _parsed(file).body if isinstance(each, defined)]
    offered = [f"{model}:{name}" for name in names if not name.startswith("_")]
    raise OpcostError(
        f"{model} is a file: name the function or class in it that makes the model, as FILE.py:NAME"
        f"{'. It defines ' + ', '.join(offered[:_OFFERED]) if offered else '; it defines none'}"
    )


def source_digest(
    directory: Path,
    factory: str | None,
    loss: str | None = None,
    model: str | None = None,
    weights: str | None = None,
) -> str | None:
    """A digest of the code of a factory and a loss in `directory`, of a library's model, and of a
    file of weights.

    None if they are all elsewhere: in installed packages, or in torchvision. A library's code is
    known by its version. Raises OpcostError for a library that is not installed, and for weights of
    more than 1 TiB, which are not read.
    """
    named = [factory, loss if loss is not None and ":" in loss else None]
    sources = [source for each in named if (source := find_source(each, directory)) is not None]
    library = library_of(model)
    code = [f"{library} {installed_version(library)}"] if library is not None else []
    code += [ast.dump(_parsed(source)) for source in dict.fromkeys(sources)]
    if (file := find_weights(weights, directory)) is not None:
        if (size := file.stat().st_size) > _MOST_BYTES:
            raise OpcostError(
                f"the weights in {file} have {gib(size)}; allowed: up to {gib(_MOST_BYTES)}: name "
                "the file of this model"
            )
        with opened(file) as content:
            code.append(hashlib.file_digest(content, "sha256").hexdigest())
    return hashlib.sha256("".join(code).encode()).hexdigest()[:16] if code else None


def _parsed(source: Path) -> ast.Module:
    try:
        return ast.parse(content_of(source), source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise OpcostError(f"{source} is not valid Python; repair it: {error}") from error


def import_callable(named: str, key: str, search_path: Path | None) -> Any:
    """The callable that a key of a definition names; `search_path` is searched first for its
    module. Raises OpcostError.
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
    with own_arguments(named):
        module = _imported(f"{key} {named!r}", module_name, folder, single)
    file = getattr(module, "__file__", None)
    taken = file or "part of Python itself"
    if source is not None and not _is_of(module, source):
        raise OpcostError(
            f"another module is named {module_name!r} ({taken}) and is "
            f"imported instead of {source}: rename this file, also in `{key}`"
        )
    found: Any = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        callables = [name for name, value in vars(module).items() if callable(value)]
        raise OpcostError(
            f"module {module_name!r} ({taken}) has no callable {attribute!r}. "
            f"{closest(attribute, callables)}"
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
    purpose: str, module_name: str, search_path: Path | None, single: Path | None
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
            f"cannot import {module_name!r} for {purpose}: {reason(error)}"
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


def check_unchanged(definition: ModelDefinition, directory: Path | None) -> None:
    """Raise ChangedSource if the user's code or weights do not match the definition."""
    if definition.source_digest is None or directory is None:
        return
    try:
        found = source_digest(directory, *definition.code)
        why = ""
    except OpcostError as error:  # it is being edited or was deleted, or its disk fails
        found, why = None, f" or cannot be read ({error})"
    except OSError as error:
        found, why = None, f" or cannot be read ({refusal(error)})"
    if found != definition.source_digest:
        files = {"factory": definition.factory, "weights": definition.weights}
        named = " or ".join(f"{key} {name!r}" for key, name in files.items() if name)
        raise ChangedSource(
            f"the file of its {named} in {directory} has changed since the "
            f"run began{why}. Run again, to extract and measure the model as it is now"
        )
