"""An operator described on the command line as a model config."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opcost.configuration import read_schema
from opcost.errors import OpcostError, closest
from opcost.measuring.operand_values import draws
from opcost.models.axes import KEYS, places
from opcost.models.configs import define_models
from opcost.models.variants import Variant
from opcost.plain_yaml import parse_yaml
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.parsing import arguments_of, known_arguments, with_argument


def operator_variant(description: str, axes: Sequence[str]) -> Variant:
    """The config of a description with axes, each as NAME=[VALUE,...].

    An axis replaces its placeholder in the description, adds or replaces an argument of its name,
    or is a key of the config. Raises OpcostError for points that cannot be measured.
    """
    values: dict[str, Any] = {}
    for text in axes:
        name, listed = _axis(text)
        if name in values:
            raise OpcostError(f"--axis {name} is there twice: give all its values at once")
        values[name] = listed
    call = description
    for name in values:
        call = _with_place(call, name)
    for place in places(call):
        if place not in values:
            raise OpcostError(f"{{{place}}} has no values: give --axis {place}=[VALUE,...]")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", description.partition("(")[0]).strip("_.-")
    config = {"operator": call, **({"axes": values} if values else {})}
    _check_each(name or "operator", config)
    return Variant(name or "operator", config)


def _axis(text: str) -> tuple[str, list[Any]]:
    name, _, listed = text.partition("=")
    values = parse_yaml(listed, f"--axis {text}")
    if not name.isidentifier() or not isinstance(values, list) or not values:
        lacks = "has no values" if values == [] else "is no axis"
        raise OpcostError(f"--axis {text} {lacks}: give NAME=[VALUE,...], such as padding=[0,1,2]")
    return name, values


def _with_place(call: str, axis: str) -> str:
    """The description with a placeholder for the values of an axis, unless that is a key."""
    settings = read_schema("operator")["properties"].keys() - {*KEYS, "operator", "parameters"}
    if axis in places(call) or (axis in settings and axis not in arguments_of(call)):
        return call
    if axis not in (known := known_arguments(call)):
        raise OpcostError(
            f"--axis {axis}: {call} has no argument {axis}, nor a place for its values: write "
            f"{{{axis}}} where they belong, as in 1x{{{axis}}}x56x56, or name an argument, or one "
            f"of {', '.join(sorted(settings))}. {closest(axis, known | settings)}".rstrip()
        )
    return with_argument(call, axis, f"{{{axis}}}")


def _check_each(name: str, config: dict[str, Any]) -> None:
    """Raise OpcostError for the first point that cannot be measured."""
    for definition in define_models(name, config, Path(), "the command line").models.values():
        [record] = extract_model_tuples(definition).tuples
        list(draws(record.operator_tuple, record.outputs))
