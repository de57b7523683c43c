"""Which calls a model makes on a target: those recorded on its device, or else those extracted."""

from collections.abc import Iterable
from pathlib import Path

from opcost.devices.device_file import read_device
from opcost.results_folder import device_file, recording
from opcost.tuples.model_tuples import ModelTuples, read_extractions


def calls_on(folder: Path, models: Iterable[ModelTuples]) -> list[ModelTuples]:
    """The extracted models, with the calls that they make on the device of a target.

    Raises OpcostError for a damaged file.
    """
    return [_calls_on(folder, model) for model in models]


def _calls_on(folder: Path, model: ModelTuples) -> ModelTuples:
    path = recording(folder, model.model)
    if not path.is_file() or not device_file(folder).is_file():
        return model
    [recorded] = read_extractions([path])
    # The target may have had another device, or the model another definition.
    present = model.definition, read_device(device_file(folder)).device_name
    return recorded if (recorded.definition, recorded.device_name) == present else model
