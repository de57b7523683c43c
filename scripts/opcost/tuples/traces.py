"""The calls of a model on a target: traced on its device, or else extracted."""

from collections.abc import Iterable
from pathlib import Path

from opcost.devices.device_file import read_device
from opcost.models.definition import ModelDefinition
from opcost.results_folder import device_file, extractions_of, recording
from opcost.tuples.model_tuples import ModelTuples, read_extractions


def calls_on(folder: Path, models: Iterable[ModelTuples]) -> list[ModelTuples]:
    """The extracted models, with their calls on the device of a target.

    Raises OpcostError for a damaged file.
    """
    return [_calls_on(folder, model) for model in models]


def _calls_on(folder: Path, model: ModelTuples) -> ModelTuples:
    path = recording(folder, model.address)
    if not path.is_file() or not device_file(folder).is_file():
        return model
    [recorded] = read_extractions([path])
    # A file may have been copied, and the target may have had another device.
    present = model.definition, read_device(device_file(folder)).device_name
    return recorded if (recorded.definition, recorded.device_name) == present else model


def extracted_as(
    definition: ModelDefinition, torch_version: str | None, folder: Path
) -> ModelTuples | None:
    """A model with its calls on the device of a target, extracted by that version of PyTorch, or
    else by another one; None if it is not extracted.
    """
    found = [
        each
        for each in read_extractions(extractions_of(definition.name, folder.parents[1]))
        if each.definition == definition
    ]
    found.sort(key=lambda each: each.torch_version == torch_version)
    return _calls_on(folder, found[-1]) if found else None
