"""The environment in which a target was measured, from its files."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opcost.devices.device_file import ENVIRONMENT, DeviceFile, read_device
from opcost.results_folder import all_measurements, device_file, series_of


def device_of(folder: Path) -> DeviceFile | None:
    """The device of a target's `device.json`, or None. Raises OpcostError."""
    path = device_file(folder)
    return read_device(path) if path.exists() else None


def recorded_environment(folder: Path) -> dict[str, Any]:
    """The environment's columns of a target, from `device.json` or, if it is old, from a row.

    Empty if nothing was measured yet. Raises OpcostError for a damaged file.
    """
    device = device_of(folder)
    document = asdict(device) if device else {}
    known = {name: document[name] for name in ENVIRONMENT if name in document}
    if known.get("torch_version") is not None:
        return known
    first = next(_recording_rows(folder), {})
    return first | {name: value for name, value in known.items() if value is not None}


def _recording_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The environment's columns of rows that have them; rows of crashes do not."""
    from opcost.rows import records, schemas  # only needed for an old device.json

    for path in all_measurements(folder):
        kind = series_of(path).kind
        table = records.read(path, schemas.MEASUREMENTS[kind], ENVIRONMENT)
        yield from (row for row in table.to_pylist() if row["torch_version"] is not None)
