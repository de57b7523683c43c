"""The page of configuration keys, from the schemas that check configurations."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from opcost.configuration import read_schema

from docs.reference.generate.layout import page, table

INTRODUCTION = """\
The keys of a study's configuration files, with their limits. Any other key is refused. The
[configuration guide](../../config/README.md) explains the keys."""

_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "minItems": "items ≥"}

Schema = Mapping[str, Any]


def configuration_page() -> str:
    """Every key of a study, of a model and of an operator."""
    parts = [INTRODUCTION]
    titles = {"A study": "config", "A model": "model", "An operator": "operator"}
    for title, name in titles.items():
        parts += [f"## {title}", *_tables("", read_schema(name))]
    return page("Configuration keys", *parts)


def _tables(path: str, schema: Schema) -> Iterator[str]:
    """A table of a mapping's keys, then tables of nested mappings."""
    required = schema.get("required", ())
    rows = [
        (
            f"`{path}{name}`",
            _values(entry),
            "required" if name in required else _default(entry),
            entry["description"],
        )
        for name, entry in schema["properties"].items()
    ]
    yield table(("key", "values", "default", "meaning"), rows)
    for name, entry in schema["properties"].items():
        inner_path, inner = _within(f"{path}{name}", entry)
        if "properties" in inner:
            yield f"### `{inner_path}`"
            yield from _tables(f"{inner_path}.", inner)
    for name, entry in schema.get("$defs", {}).items():
        if "properties" in entry:
            yield f"### A {name}"
            yield from _tables("", entry)


def _within(path: str, entry: Schema) -> tuple[str, Schema]:
    """The path and schema of the keys of a mapping, of named mappings, or of a list of mappings."""
    if isinstance(entry.get("additionalProperties"), Mapping):
        return f"{path}.NAME", entry["additionalProperties"]
    if "items" in entry:
        return f"{path}[]", entry["items"]
    return path, entry


def _values(entry: Schema) -> str:
    """The allowed values of a key."""
    if "oneOf" in entry:
        return " or ".join(map(_values, entry["oneOf"]))
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    kinds = [entry["type"]] if isinstance(entry["type"], str) else entry["type"]
    text = " or ".join(kinds)
    if "items" in entry and "$ref" not in entry["items"]:
        text += f" of {_values(entry['items'])}"
    limits = [f"{sign} {entry[limit]}" for limit, sign in _LIMITS.items() if limit in entry]
    pattern = [f"`{entry['pattern']}`"] if "pattern" in entry else []
    return ", ".join([text, *limits, *pattern])


def _default(entry: Schema) -> str:
    """The default value of a key."""
    if "default" not in entry or isinstance(entry["default"], dict):
        return ""
    return f"`{yaml.safe_dump(entry['default'], default_flow_style=True).splitlines()[0]}`"
