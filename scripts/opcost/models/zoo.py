"""All torchvision models at their official inputs, selected by family and name.

Importing torchvision takes seconds, and Snakemake reads the study at each start. Therefore
`torchvision_models` writes the required data to `torchvision_models.yaml`.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from opcost.errors import OpcostError, closest
from opcost.models.definition import InputSpec, ModelDefinition

INPUTS_FILE = Path(__file__).with_name("torchvision_models.yaml")

Shapes = list[list[int]]


@cache
def official_inputs() -> dict[str, dict[str, Shapes]]:
    """family -> model -> the shapes of its inputs, without the batch dimension."""
    return yaml.safe_load(INPUTS_FILE.read_text(encoding="utf-8"))


def family(model: str | None) -> str | None:
    """The family of a torchvision model, or None if there is no such model."""
    return next((name for name, models in official_inputs().items() if model in models), None)


def names() -> list[str]:
    """All models of torchvision."""
    return [name for models in official_inputs().values() for name in models]


def official_config(model: str) -> dict[str, Any]:
    """The config of a torchvision model at its official inputs, of one sample."""
    group = str(family(model))
    shapes = official_inputs()[group][model]
    if group == "detection":  # a list of images, not one tensor
        return {
            "model": model,
            "inputs_in_list": True,
            "inputs": [{"shape": shape} for shape in shapes],
        }
    return {"model": model, "inputs": [{"shape": [1, *shape]} for shape in shapes]}


def select(
    families: Sequence[str], names: Sequence[str], batch_size: int
) -> dict[str, ModelDefinition]:
    """The models of these families that a pattern in `names` matches, by name.

    Raises OpcostError for a pattern that matches none of them.
    """
    candidates = {name: group for group in families for name in official_inputs()[group]}
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in candidates):
            raise OpcostError(
                f"torchvision.names: {pattern!r} matches no model of the families "
                f"{', '.join(families)}. {closest(pattern, candidates)}".rstrip()
            )
    return {
        name: _definition(name, group, batch_size)
        for name, group in candidates.items()
        if any(fnmatchcase(name, pattern) for pattern in names)
    }


def _definition(name: str, group: str, batch_size: int) -> ModelDefinition:
    shapes = official_inputs()[group][name]
    in_list = group == "detection"  # a list of images, not one tensor
    if in_list:
        inputs = [InputSpec(tuple(shape)) for shape in shapes] * batch_size
    else:
        inputs = [InputSpec((batch_size, *shape)) for shape in shapes]
    return ModelDefinition(name, tuple(inputs), model=name, inputs_in_list=in_list, zoo=True)
