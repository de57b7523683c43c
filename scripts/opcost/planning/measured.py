"""The results folder of a target, as planning reads it: models, device, and measured rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.addresses import Addresses
from opcost.devices.device_file import read_device
from opcost.launch_modes import EAGER
from opcost.results_folder import MODELS, OPERATORS, device_file, measurements, model_of
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.tuples.model_tuples import ModelTuples, read_extractions
from opcost.tuples.traces import calls_on

Row = Mapping[str, Any]

_COLUMNS = ("status", "flags", *TIME.names, "started_at", "device_time_s")


def models_on(addresses: Addresses, target: str) -> list[ModelTuples]:
    """The models of the study that could be extracted, with their calls on the target.

    Raises OpcostError for a damaged file.
    """
    found = read_extractions(map(addresses.extraction, addresses.study.models))
    return calls_on(addresses.folders[target], [each for each in found if each.refusal is None])


def device_of(addresses: Addresses, target: str) -> str:
    """The target's device, as far as it is known: its settings may be `auto`."""
    path = device_file(addresses.folders[target])
    return read_device(path).device if path.is_file() else addresses.device(target)


def measured_tuples(folder: Path, number: int = 1) -> Sequence[Row]:
    """The rows of all tuples in a round, of this study or another. Raises OpcostError for a damaged
    file.
    """
    paths = measurements(folder, OPERATORS, number)
    return records.read_all(paths, schemas.OPERATOR, ("tuple_id", *_COLUMNS)).to_pylist()


def measured_end_to_end(
    addresses: Addresses, target: str, number: int = 1, launch_mode: str = EAGER
) -> Sequence[Row]:
    """The end-to-end rows of all models in a round or launch mode, except models that the study
    defines differently. Raises OpcostError for a damaged file.
    """
    paths = as_defined(
        addresses, measurements(addresses.folders[target], MODELS, number, launch_mode)
    )
    return records.read_all(paths, schemas.MODEL, ("model", *_COLUMNS)).to_pylist()


def as_defined(addresses: Addresses, paths: Iterable[Path]) -> list[Path]:
    """Files of models, without models that the study defines differently."""
    own = addresses.study.models
    return [
        path
        for path in paths
        if model_of(path) not in own or addresses.definition(model_of(path)) == path.stem
    ]
