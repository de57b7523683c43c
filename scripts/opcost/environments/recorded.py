"""The environment in which a target was measured so far, as its files tell."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opcost.devices.device_file import ENVIRONMENT, DeviceFile, read_device
from opcost.results_folder import all_measurements, device_file, series_of


def device_of(folder: Path) -> DeviceFile | None:
    """What the target's `device.json` holds, None where there is none. Raises OpcostError."""
    path = device_file(folder)
    return read_device(path) if path.exists() else None


def recorded_environment(folder: Path) -> dict[str, Any]:
    """What a target was measured on, by columns: as its `device.json` says.

    Where there is none, or an older one that does not say it, the first row tells that does. Empty
    where nothing was measured yet. Raises OpcostError for a damaged file.
    """
    device = device_of(folder)
    stated = asdict(device) if device else {}
    known = {name: stated[name] for name in ENVIRONMENT if name in stated}
    if known.get("torch_version") is not None:
        return known
    told = next(_rows_that_tell(folder), {})
    return told | {name: value for name, value in known.items() if value is not None}


def _rows_that_tell(folder: Path) -> Iterator[dict[str, Any]]:
    """Of each row that says what it was measured with (one of a crash does not) these columns."""
    from opcost.rows import records, schemas  # not for a study whose device.json tells

    for path in all_measurements(folder):
        kind, _ = series_of(path)
        table = records.read(path, schemas.MEASUREMENTS[kind], ENVIRONMENT)
        yield from (row for row in table.to_pylist() if row["torch_version"] is not None)
