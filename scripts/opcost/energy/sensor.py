"""What is known of a power sensor, and the file that its characterisation leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opcost.devices.device_file import DeviceFile
from opcost.errors import OpcostError
from opcost.files import read_json, write_json
from opcost.values import OBJECT, OBJECTS, PRINTABLE, TEXT, check_values, number, optional, shown

SCHEMA_VERSION = 1
"""Of the sensor file; bumped when a key changes its name, unit or meaning."""

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

    A reading is renewed every `refresh_s` with the mean over the `averaging_s` that ended `lag_s`
    before. Under a new load, power itself needs `rise_s`. Of the scatter between readings,
    `correlated_share` stems from power itself, and is therefore shared by readings whose averaging
    windows overlap; the rest is the sensor's own. `idle_w` is the power of the idle device with an
    open context. `gain_uncertainty` is relative; no measurement from within can reduce it.
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
        """After a change of load, how long until a reading holds nothing of what was before."""
        return self.rise_s + self.lag_s + self.averaging_s + self.refresh_s


def read_sensor(path: Path, meter: str, assumed: Sensor) -> Sensor:
    """What `path` says of that meter's reading; `assumed` where it says nothing.

    `source` is "measured" if nothing was assumed that timing depends on. Raises OpcostError for a
    file of another schema version.
    """
    document = read_document(path)
    reading = document["readings"].get(meter) if document["meter"] else None
    if reading is None:
        return assumed
    known: dict[str, Any] = {
        "refresh_s": reading["refresh_s"],
        "averaging_s": reading["averaging_s"],
        "lag_s": reading["lag_s"],
        "rise_s": reading["rise_s"],
        "correlated_share": reading["correlated_share"],
        "counter_refresh_s": document["counter"]["refresh_s"],
        "idle_w": document["idle_power_w"],
    }
    measured = all(known[name] is not None for name in ("refresh_s", "averaging_s", "rise_s"))
    found = {name: value for name, value in known.items() if value is not None}
    return replace(assumed, **found, source="measured" if measured else "partly assumed")


def meter_fault(path: Path) -> str | None:
    """Why the meter is not to be read: the process that characterised it died of it. Or None."""
    document = read_document(path)
    return document["meter_reason"] if document.get("meter_kills") else None


def write_killing_meter(path: Path, device: DeviceFile, death: str) -> None:
    """Write a sensor file that says how the process died that characterised the sensor."""
    reason = (
        f"reading the power meter ends the process that does ({death}); once that is fixed, "
        f"delete {path} and the rows without energy, and run again"
    )
    known = {"device": device.device, "device_name": device.device_name}
    document = {"schema_version": SCHEMA_VERSION, **known, "meter": None, "meter_reason": reason}
    write_json(path, {**document, "meter_kills": True})


def read_document(path: Path) -> dict[str, Any]:
    """A sensor file as it was written. Raises OpcostError for a damaged or outdated one."""
    remedy = "delete it and run again to characterise the sensor once more"
    document = read_json(path, remedy)
    if document.get("schema_version") != SCHEMA_VERSION:
        raise OpcostError(
            f"{path} has schema version {shown(document.get('schema_version'))}; this opcost reads "
            f"{SCHEMA_VERSION}: {remedy}"
        )
    check_document(document, path, remedy)
    return document


def check_document(document: Mapping[str, Any], source: object, remedy: str) -> None:
    """Raises OpcostError if what a sensor file says of the sensor cannot be true of any."""
    check_values(document, {"meter": optional(PRINTABLE)}, source, remedy)
    if document["meter"] is None:
        check_values(document, {"meter_reason": TEXT}, source, remedy)
        return
    check_values(document, _RULES, source, remedy)
    for name, reading in document["readings"].items():
        check_values(reading, _READING_RULES, f"{source}: reading {name}", remedy)
    check_values(document["counter"], _COUNTER_RULES, f"{source}: counter", remedy)
