"""Configurations, validated against JSON schemas. Errors name the key."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import OpcostError, closest
from opcost.launch_modes import FURTHER_MODES, FURTHER_MODES_TEXT
from opcost.plain_yaml import plain
from opcost.target import SETTINGS
from opcost.values import shown

_LONGEST_NAME = 200
_SCHEMAS = Path(__file__).parent / "schemas"


def checked(document: Any, schema_name: str, source: str) -> dict[str, Any]:
    """The document with defaults filled in. `schema_name` names a file in `schemas/`.

    Raises OpcostError that lists all problems.
    """
    return _fitting(document, read_schema(schema_name), source)


def checked_keys(document: Mapping[str, Any], schema_name: str, source: str) -> dict[str, Any]:
    """Some keys of a document, as `checked` returns them; others may be missing or wrong."""
    properties = read_schema(schema_name)["properties"]
    schema = {"type": "object", "properties": {key: properties[key] for key in document}}
    return _fitting(document, schema, source)


def _fitting(document: Any, schema: Mapping[str, Any], source: str) -> dict[str, Any]:
    instance = plain({} if document is None else document, source)
    _fill_defaults(instance, schema)
    errors = _validator()(schema).iter_errors(instance)
    ordered = sorted(errors, key=lambda error: [*map(str, error.path)])
    problems = [_explain(error) for error in ordered]
    if problems:
        raise invalid(source, *problems)
    return instance


def invalid(source: str, *problems: str) -> OpcostError:
    """The error that lists the problems of a configuration."""
    return OpcostError(f"{source} is not valid:\n  " + "\n  ".join(problems))


@cache
def read_schema(name: str) -> dict[str, Any]:
    """A schema, read once: a study may have hundreds of models.

    Settings of targets are inserted from target.py into that of config.yaml, and launch modes from
    launch_modes.py.
    """
    path = _SCHEMAS / f"{name}.schema.yaml"
    schema: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if name == "config":
        target = schema["properties"]["targets"]["additionalProperties"]
        settings = {each: setting.schema for each, setting in SETTINGS.items()}
        target["properties"] = settings | target["properties"]
        modes = schema["properties"]["launch_modes"]
        modes["items"] = {"enum": FURTHER_MODES}
        modes["description"] += f" The modes: {FURTHER_MODES_TEXT}."
    return schema


def check_name(name: str) -> None:
    """Raise OpcostError for an invalid name of a model config."""
    allowed = read_schema("config")["properties"]["models"]["items"]["pattern"]
    if not re.fullmatch(allowed, name) or len(name) > _LONGEST_NAME:
        raise OpcostError(
            f"{shown(name)} cannot name a model: give at most {_LONGEST_NAME} letters, digits, "
            "'_', '-' and '.' (not first)"
        )


def targets_named_last(
    config: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The merged configuration, with only the targets that the last of its sources names.

    Snakemake merges a `--configfile` key by key into config/config.yaml, which would measure the
    targets of both. Keys that the last source omits keep their earlier values.
    """
    named = [source["targets"] for source in sources if "targets" in source]
    merged = config.get("targets")
    if not named or not isinstance(merged, Mapping) or not isinstance(named[-1], Mapping):
        return dict(config)
    return {**config, "targets": {name: merged[name] for name in merged if name in named[-1]}}


def on_command_line(value: Any) -> str:
    """The text after `--config KEY=` for a value, as `from_command_line` reads it."""
    return "" if value is None else json.dumps(_nested(value, _as_text), ensure_ascii=False)


def from_command_line(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `--config`; Snakemake turns values in mappings into text, so text that is JSON is
    parsed.
    """
    return {key: _nested(value, _from_text) for key, value in config.items()}


def _nested(value: Any, change: Callable[[str], Any], inside: bool = False) -> Any:
    """A copy in which texts within mappings are changed; other texts are names."""
    if isinstance(value, Mapping):
        return {key: _nested(each, change, True) for key, each in value.items()}
    if isinstance(value, list):
        return [_nested(each, change, inside) for each in value]
    return change(value) if inside and isinstance(value, str) else value


def _from_text(text: str) -> Any:
    try:
        found = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return text if isinstance(found, dict | list) else found


def _as_text(text: str) -> str:
    """A text, quoted if it would be read as another value."""
    return text if _from_text(text) == text else json.dumps(text, ensure_ascii=False)


@cache
def _validator() -> Any:
    """A validator for which a pattern matches a whole string, and 2.0 is not an integer."""
    # Imported late: jobs load this module, too, and validate nothing.
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def check_pattern(_validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not re.fullmatch(pattern, instance):
            yield ValidationError(f"{shown(instance)} does not match {pattern!r}")

    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, {"pattern": check_pattern}, type_checker=types)


def _fill_defaults(instance: Any, schema: Mapping[str, Any]) -> None:
    if not isinstance(instance, dict):
        return
    for key, property_schema in schema.get("properties", {}).items():
        if "default" in property_schema:
            instance.setdefault(key, json.loads(json.dumps(property_schema["default"])))
        if key in instance:
            _fill_defaults(instance[key], property_schema)
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        for key in instance.keys() - schema.get("properties", {}).keys():
            _fill_defaults(instance[key], others)


def _explain(error: Any) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "additionalProperties":
        allowed: Iterable[str] = schema.get("properties", {})
        unknown = sorted(error.instance.keys() - set(allowed))
        former: Mapping[str, str] = schema.get("formerKeys", {})
        hints = " ".join(
            f"Unknown key {key!r}{f': {former[key]}' if key in former else ''}. "
            f"{'' if key in former else closest(key, allowed)}".strip()
            for key in unknown
        )
        if comment := schema.get("$comment"):
            hints += f" ({comment})"
        return f"{path}: {hints}" if path else hints
    pitfall = _pitfall(error.instance, schema.get("type")) if error.validator == "type" else ""
    description = schema.get("description")
    hint = f" ({description})" if description else ""
    return f"{path or 'top level'}: {_message(error)}{pitfall}{hint}"


def _message(error: Any) -> str:
    """The validator's message, or a clearer one if it requires knowledge of the schema."""
    if error.validator == "pattern" and "description" in error.schema:
        return f"{shown(error.instance)} is not allowed"
    if error.validator == "exclusiveMinimum":
        return f"{shown(error.instance)} is not greater than {error.validator_value}"
    if error.validator != "oneOf":
        return str(error.message)
    keys = [key for schema in error.validator_value for key in schema.get("required", ())]
    if not keys or not isinstance(error.instance, Mapping):
        return f"{shown(error.instance)} is not allowed"
    given = [key for key in keys if key in error.instance]
    return f"it has {' and '.join(given)}" if given else f"it has neither {' nor '.join(keys)}"


def _pitfall(value: Any, wanted: Any) -> str:
    """A hint why YAML or Snakemake may have changed a value's type, or ""."""
    if isinstance(value, float) and wanted == "integer" and value.is_integer():
        return f": write {value:.0f}"
    if not isinstance(value, str):
        return ""
    written = _as_written(value, wanted)
    if written is None:
        return ""
    return f": it is a string; in YAML write {written}"


def _as_written(text: str, wanted: Any) -> str | None:
    """A string as the number or boolean of the wanted type that it spells in YAML, or None."""
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        number = int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if wanted == "integer":
        return f"{number:.0f}" if number == int(number) else None
    mantissa, exponent, power = repr(number).partition("e")
    # YAML reads 6e-07 as a string and 6.0e-07 as a number.
    return mantissa if not exponent else f"{mantissa}{'' if '.' in mantissa else '.0'}e{power}"
