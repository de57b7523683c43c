"""The page of configuration keys, from the schemas that check configurations."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from opcost.configuration import read_schema

from docs.reference.generate.layout import page

INTRODUCTION = """\
The keys of a study's configuration files, with their values and defaults. Any other key is refused.
The [configuration guide](../../config/README.md) explains the keys."""

_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "minItems": "items ≥"}
_LARGE = 6
"""A mapping of at least as many keys has a list of its own."""

Schema = Mapping[str, Any]


def configuration_page() -> str:
    """Every key of a study, of a model and of an operator."""
    parts = [INTRODUCTION]
    titles = {"A study": "config", "A model": "model", "An operator": "operator"}
    for title, name in titles.items():
        schema = read_schema(name)
        parts += [f"## {title}", *_lists("", schema)]
        for inner_name, entry in schema.get("$defs", {}).items():
            if "properties" in entry:
                parts += [f"### A {inner_name}", *_lists("", entry)]
    return page("Configuration keys", *parts)


def _lists(path: str, schema: Schema) -> Iterator[str]:
    """A list of a mapping's keys, then lists of large mappings inside it."""
    yield "\n".join(_items(path, schema))
    for inner_path, inner in _mappings(path, schema):
        if len(inner["properties"]) >= _LARGE:
            yield f"### `{inner_path}`"
            yield from _lists(f"{inner_path}.", inner)


def _items(path: str, schema: Schema) -> Iterator[str]:
    """A line for each key, followed by the keys of a small mapping inside it."""
    required = schema.get("required", ())
    for name, entry in schema["properties"].items():
        default = "required" if name in required else _default(entry)
        values = "; ".join(part for part in (_values(entry), default) if part)
        yield f"- **`{path}{name}`** ({values}): {entry['description']}"
        for inner_path, inner in _mappings(path, {"properties": {name: entry}}):
            if len(inner["properties"]) < _LARGE:
                yield from _items(f"{inner_path}.", inner)


def _mappings(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The path and schema of each mapping among a mapping's values, or of mappings by name."""
    for name, entry in schema["properties"].items():
        if "properties" in entry:
            yield f"{path}{name}", entry
        elif "properties" in (named := entry.get("additionalProperties") or {}):
            yield f"{path}{name}.NAME", named


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
    pattern = [f"`{entry['pattern']}`"] if "pattern" in entry else []
    return ", ".join([text, *_limits(entry), *pattern])


def _limits(entry: Schema) -> list[str]:
    if {"minimum", "maximum"} <= entry.keys():
        return [f"{entry['minimum']}\N{EN DASH}{entry['maximum']}"]
    return [f"{sign} {entry[limit]}" for limit, sign in _LIMITS.items() if limit in entry]


def _default(entry: Schema) -> str:
    """The default value of a key, if it has one."""
    if entry.get("default", {}) == {}:
        return ""
    value = yaml.safe_dump(entry["default"], default_flow_style=True).splitlines()[0]
    return f"default `{value}`"
