"""Write the models of the installed torchvision, and calls of those for classification, to files
that are part of opcost.

An official input has the size that the default weights' transforms produce. If the model sets the
size (detection), the model's size is used; if the user does (optical flow, and the number of video
frames), the size for which torchvision publishes FLOPs.
"""

import json
import zipfile
from typing import Any

import torch
import torchvision
from opcost.models.construction import build, without_initialisation
from opcost.models.definition import ModelDefinition
from opcost.models.zoo import INPUTS_FILE, Shapes, official_inputs, select
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.shipped_calls import BATCHES, SHIPPED, VERSIONS, at_batch, packed
from torchvision import models

_FRAMES = 16
_FLOW_SIZE = 512

FAMILIES = {
    "classification": models,
    "segmentation": models.segmentation,
    "detection": models.detection,
    "video": models.video,
    "optical_flow": models.optical_flow,
    "quantization": models.quantization,
}


def installed() -> dict[str, dict[str, Shapes]]:
    """family -> model -> the shapes of its inputs, without the batch dimension."""
    return {
        family: {name: _shapes(family, name) for name in models.list_models(module=module)}
        for family, module in FAMILIES.items()
    }


def _shapes(family: str, name: str) -> Shapes:
    transforms = models.get_model_weights(name).DEFAULT.transforms()
    match family:
        case "segmentation":
            return [_image(*transforms.resize_size)]
        case "detection":
            return [_image(_detection_size(name))]
        case "video":
            return [[3, _FRAMES, *transforms.crop_size]]
        case "optical_flow":
            return [_image(_FLOW_SIZE)] * 2
        case _:
            return [_image(*transforms.crop_size)]


def _image(size: int) -> list[int]:
    return [3, size, size]


def _detection_size(name: str) -> int:
    """The side to which the model scales a square image."""
    with without_initialisation():
        transform: Any = build(ModelDefinition(name, (), model=name, zoo=True)).transform
    return transform.fixed_size[0] if transform.fixed_size else transform.min_size[-1]


def as_yaml(inputs: dict[str, dict[str, Shapes]]) -> str:
    """The text of the file, a line for each model."""
    lines = [
        f"# Inputs of the models of torchvision {torchvision.__version__.partition('+')[0]}, "
        "without the batch dimension.",
        "# Written by `python -m tests.torchvision_models`.",
    ]
    for family, shapes in inputs.items():
        lines += [f"{family}:", *(f"  {name}: {shapes[name]}" for name in shapes)]
    return "\n".join(lines) + "\n"


def calls(name: str) -> list[dict[str, Any]]:
    """A model's calls at each of the batch sizes that are shipped."""
    return [
        packed(extract_model_tuples(select(["classification"], [name], batch)[name]))
        for batch in BATCHES
    ]


def write_calls() -> None:
    """Write the calls of all classification models."""
    libraries = (torch, torchvision)
    versions = {each.__name__: each.__version__.partition("+")[0] for each in libraries}
    with zipfile.ZipFile(SHIPPED, "w", zipfile.ZIP_LZMA) as shipped:
        entries = {VERSIONS: versions}
        for name in official_inputs()["classification"]:
            _, two, four = entries[name] = calls(name)
            at_batch(two, four, 3)  # raises an error if the batch size decides anything else
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_LZMA
            shipped.writestr(info, json.dumps(content, separators=(",", ":"), default=dict))


if __name__ == "__main__":
    INPUTS_FILE.write_text(as_yaml(installed()), encoding="utf-8")
    write_calls()
