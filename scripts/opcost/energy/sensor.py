"""The properties of a power sensor, and the file that its characterisation writes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opcost.devices.device_file import DeviceFile
from opcost.errors import OpcostError
from opcost.files import read_json, write_json
from opcost.results_folder import sensor_file, target_folders
from opcost.values import OBJECT, OBJECTS, PRINTABLE, TEXT, check_values, number, optional, shown

SCHEMA_VERSION = 1
"""Version of the sensor file; incremented when a key changes its name, unit or meaning."""

IDENTITY = ("device_name", "device_uuid_hash", "machine_id_hash", "driver_version")
"""The keys that identify the device of a sensor file."""

_PERIOD_S = optional(number(0, 100, above=True))
_DELAY_S = optional(number(0, 100))
_RULES = {"readings": OBJECTS, "counter": OBJECT, "idle_power_w": number(0, 100_000)}
_READING_RULES = {
    "refresh_s": _PERIOD_S,
    "averaging_s": _PERIOD_S,
    "lag_s": _DELAY_S,
    "rise_s": _DELAY_S,
    "correlated_share": optional(number(0, 1)),
}
_COUNTER_RULES = {"refresh_s": _PERIOD_S}


@dataclass(frozen=True)
class Sensor:
    """How a power reading follows the power, in seconds.

    Every `refresh_s`, the reading becomes the mean over an interval of `averaging_s` that ended
    `lag_s` earlier. After a change of load, power itself takes `rise_s` to settle.
    `correlated_share` is the share of the readings' variance that is variation of power, common to
    readings with overlapping windows; the rest is sensor noise. `idle_w` is the power of the idle
    device with an open context. `gain_uncertainty` is relative and cannot be measured here.
    """

    refresh_s: float
    averaging_s: float
    lag_s: float = 0.0
    rise_s: float = 0.25
    counter_refresh_s: float | None = 0.1
    correlated_share: float = 1.0
    idle_w: float | None = None
    gain_uncertainty: float | None = None
    source: str = "assumed"

    @property
    def settle_s(self) -> float:
        """Time after a change of load until readings no longer contain the previous load."""
        return self.rise_s + self.lag_s + self.averaging_s + self.refresh_s


def read_sensor(path: Path, meter: str, assumed: Sensor) -> Sensor:
    """The properties of a meter's reading in the file `path`, else as `assumed`.

    `source` is "measured" if no property that affects timing was assumed. Raises OpcostError for a
    damaged file or another schema version.
    """
    return sensor_of_document(read_document(path), meter, assumed)


def sensor_of_document(document: Mapping[str, Any], meter: str, assumed: Sensor) -> Sensor:
    """The same, from the content of the file."""
    reading = document["readings"].get(meter) if document["meter"] else None
    if reading is None:
        return assumed
    known: dict[str, Any] = {name: reading[name] for name in _READING_RULES}
    known["counter_refresh_s"] = document["counter"]["refresh_s"]
    known["idle_w"] = document["idle_power_w"]
    measured = all(known[name] is not None for name in ("refresh_s", "averaging_s", "rise_s"))
    found = {name: value for name, value in known.items() if value is not None}
    return replace(assumed, **found, source="measured" if measured else "partly assumed")


def meter_fault(path: Path) -> str | None:
    """Why the meter must not be read, because reading it killed a process, or None."""
    document = read_document(path)
    return document["meter_reason"] if document.get("meter_kills") else None


def write_killing_meter(path: Path, device: DeviceFile, death: str) -> None:
    """Write a sensor file with the `death` of the process that characterised the sensor."""
    reason = (
        f"reading the power meter kills the process ({death}); after fixing that, delete {path} "
        "and the rows without energy, and run again"
    )
    known = {"device": device.device, "device_name": device.device_name}
    document = {"schema_version": SCHEMA_VERSION, **known, "meter": None, "meter_reason": reason}
    write_json(path, {**document, "meter_kills": True})


def take_over(device: DeviceFile, output: Path) -> str | None:
    """Copy the sensor file of another target of the same device and driver, or of the same target
    under other conditions, if there is one. Returns the name of that target, which the file has as
    `characterised_on_target`.
    """
    known = {name: getattr(device, name) for name in IDENTITY}
    if device.device_uuid_hash is None and device.machine_id_hash is None:
        return None  # any device of a kind
    for folder in target_folders(output.parents[2]):
        path = sensor_file(folder)
        if path == output or not path.is_file():
            continue
        try:
            found = read_document(path)
        except OpcostError:
            continue  # reported for its own target
        if found["meter"] is not None and found.items() >= known.items():
            name = found.get("characterised_on_target", folder.parent.name)
            write_json(output, {**found, "characterised_on_target": name})
            return str(name)
    return None


def read_document(path: Path) -> dict[str, Any]:
    """The content of a sensor file. Raises OpcostError for a damaged or outdated one."""
    remedy = "delete it and run again to repeat the characterisation"
    document = read_json(path, remedy)
    if document.get("schema_version") != SCHEMA_VERSION:
        raise OpcostError(
            f"{path} has schema version {shown(document.get('schema_version'))}; this opcost reads "
            f"{SCHEMA_VERSION}: {remedy}"
        )
    check_document(document, path, remedy)
    return document


def check_document(document: Mapping[str, Any], source: object, remedy: str) -> None:
    """Raise OpcostError for values of a sensor file that are impossible."""
    check_values(document, {"meter": optional(PRINTABLE)}, source, remedy)
    if document["meter"] is None:
        check_values(document, {"meter_reason": TEXT}, source, remedy)
        return
    check_values(document, _RULES, source, remedy)
    for name, reading in document["readings"].items():
        check_values(reading, _READING_RULES, f"{source}: reading {name}", remedy)
    check_values(document["counter"], _COUNTER_RULES, f"{source}: counter", remedy)
