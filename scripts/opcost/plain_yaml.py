"""YAML files as plain JSON data. Errors name the file and the key."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import OpcostError
from opcost.files import content_of
from opcost.values import shown

_READ_OTHERWISE = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?0[0-7_]+|.*:.*"),
    "tag:yaml.org,2002:float": re.compile(r".*:.*"),
    "tag:yaml.org,2002:bool": re.compile(r"yes|no|on|off", re.IGNORECASE),
}
"""Values that YAML 1.1 reads differently from YAML 1.2 and from most people who write them."""


class _Loader(yaml.SafeLoader):
    """Refuses repeated keys, of which YAML would take the last, and values that it would read
    otherwise than they are written.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if first := lines.get(key.value):
                where = f"line {line}" if line == first else f"lines {first} and {line}"
                raise OpcostError(
                    f"{self.name} has the key {shown(key.value)} twice, in {where}: delete one of "
                    "them"
                )
            lines[key.value] = line
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        pattern = _READ_OTHERWISE.get(node.tag)
        if pattern is not None and pattern.fullmatch(node.value):
            read = str(yaml.safe_load(node.value)).lower()
            raise OpcostError(
                f"{self.name}, line {node.start_mark.line + 1}: YAML reads {node.value} as {read}; "
                f'write {read}, or "{node.value}" in quotes if it is a text'
            )
        return node


def read_yaml(path: Path) -> Any:
    """Read a YAML file as JSON data. Raises OpcostError."""
    try:
        return parse_yaml(content_of(path).decode(), str(path))
    except UnicodeDecodeError as error:
        raise OpcostError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from error


def parse_yaml(text: str, source: str) -> Any:
    """Read YAML as JSON data. Raises OpcostError."""
    try:
        loader = _Loader(text)
        loader.name = source
        return plain(loader.get_single_data(), source)
    except RecursionError:
        raise OpcostError(f"{source} nests values too deep: it is not a configuration") from None
    except (yaml.YAMLError, ValueError) as error:
        raise OpcostError(f"{source} is not valid YAML; repair it: {error}") from error


def plain(document: Any, source: str) -> Any:
    """A copy as JSON data: finite numbers, string keys, aliases copied.

    Raises OpcostError, with the key, for values that JSON lacks.
    """

    def copy(value: Any, path: tuple[str, ...]) -> Any:
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
        if not isinstance(key, str) or not key.isprintable():
            raise OpcostError(
                f"{where} has the key {shown(key)}: keys are printable strings; write it in quotes"
            )


def _string(value: str, where: str) -> str:
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise OpcostError(
            f"{where} is {shown(value)}: strings are Unicode, without null characters"
        )
    return value
