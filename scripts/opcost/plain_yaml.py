"""YAML files as plain JSON data, read in bounded time and memory; errors name the key."""

import math
import re
from collections.abc import Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import OpcostError
from opcost.files import opened
from opcost.values import shown

_MAX_BYTES = 500_000
_MAX_VALUES = 100_000
_MAX_LEVELS = 20
_READ_OTHERWISE = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?0[0-7_]+|.*:.*"),
    "tag:yaml.org,2002:float": re.compile(r".*:.*"),
    "tag:yaml.org,2002:bool": re.compile(r"yes|no|on|off", re.IGNORECASE),
}
"""Values that YAML 1.1 reads differently from YAML 1.2 and from most people who write them."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file as JSON data. Raises OpcostError."""
    with opened(path) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OpcostError(f"{path} has more than {_MAX_BYTES} bytes: it is not a configuration")
    try:
        return parse_yaml(content.decode(), str(path))
    except UnicodeDecodeError as error:
        raise OpcostError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from error


def parse_yaml(text: str, source: str) -> Any:
    """Read YAML as JSON data. Raises OpcostError."""
    try:
        return plain(_load(text, source), source)
    except RecursionError:
        raise OpcostError(_too_deep(source)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise OpcostError(f"{source} is not valid YAML; repair it: {error}") from error


def _load(text: str, source: str) -> Any:
    """Load YAML like `yaml.safe_load`, without aliases and merges that expand without bound."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        level, values = [node] if node else [], 0
        for _ in range(_MAX_LEVELS):
            values += len(level)
            if values > _MAX_VALUES:
                raise OpcostError(_too_many(source))
            for each in level:
                _check_twice(each, source)
                _check_as_written(each, loader, source)
            level = list(islice(chain.from_iterable(map(_inside, level)), _MAX_VALUES + 1))
        if level:
            raise OpcostError(_too_deep(source))
        return loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _check_twice(node: yaml.Node, source: str) -> None:
    """Raise OpcostError for a mapping with a repeated key, of which YAML would take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            first = lines[key.value]
            where = f"line {line}" if line == first else f"lines {first} and {line}"
            raise OpcostError(
                f"{source} has the key {shown(key.value)} twice, in {where}: delete one of them"
            )
        lines[key.value] = line


def _check_as_written(node: yaml.Node, loader: yaml.SafeLoader, source: str) -> None:
    """Raise OpcostError for a plain value that YAML 1.1 reads differently from its spelling."""
    pattern = _READ_OTHERWISE.get(node.tag)
    if pattern is not None and pattern.fullmatch(node.value):
        read = str(loader.construct_object(node)).lower()
        raise OpcostError(
            f"{source}, line {node.start_mark.line + 1}: YAML reads {node.value} as {read}; write "
            f'{read}, or "{node.value}" in quotes if it is a text'
        )


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def plain(document: Any, source: str) -> Any:
    """A copy as JSON data: finite numbers, string keys, aliases copied.

    Raises OpcostError, with the key, for values that JSON lacks and for too many of them.
    """
    values = count(1)

    def copy(value: Any, path: tuple[str, ...]) -> Any:
        if next(values) > _MAX_VALUES:
            raise OpcostError(_too_many(source))
        if len(path) > _MAX_LEVELS:
            raise OpcostError(_too_deep(source))
        where = f"{source}: {'.'.join(path) or 'top level'}"
        if isinstance(value, Mapping):
            _check_keys(value, where)
            return {key: copy(entry, (*path, key)) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [copy(entry, (*path, str(index))) for index, entry in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise OpcostError(f"{where} is {value}: only finite numbers are allowed")
        if value is None or isinstance(value, bool | int | float):
            return value
        return _string(str(value), where)  # a date, for example, becomes a string

    return copy(document, ())


def _check_keys(mapping: Mapping[Any, Any], where: str) -> None:
    for key in mapping:
        if not isinstance(key, str):
            raise OpcostError(
                f"{where} has the key {shown(key)}: keys are strings; write it in quotes"
            )
        if not key.isprintable():
            raise OpcostError(
                f"{where} has the key {shown(key)}: keys have printable characters only"
            )


def _string(value: str, where: str) -> str:
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise OpcostError(
            f"{where} is {shown(value)}: strings are Unicode, without null characters"
        )
    return value


def _too_many(source: str) -> str:
    return (
        f"{source} holds more than {_MAX_VALUES} values (those of an alias count at each use): it "
        "is not a configuration; write its values out"
    )


def _too_deep(source: str) -> str:
    return f"{source} nests values more than {_MAX_LEVELS} levels deep: it is not a configuration"
