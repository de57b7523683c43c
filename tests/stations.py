"""Stations on devices that tests open or simulate."""

from collections.abc import Callable
from functools import partial
from typing import Any

from opcost.devices.disturbance import Watch
from opcost.energy.load import SYSTEM_CLOCK, Clock
from opcost.energy.meter import Meter
from opcost.energy.meters import open_meter
from opcost.energy.sensor import Sensor
from opcost.measuring.station import Station
from opcost.study import Conditions, MeasurementSettings
from opcost.target import Target


def station_of(
    device: Any,
    conditions: Conditions | MeasurementSettings,
    watch: Watch | None = None,
    meter: Callable[[], Meter] | None = None,
    sensor: Sensor | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Station:
    """A station `local`. `conditions` may be settings alone; `meter` opens one, else the device's.

    `sensor` is what is known of the meter's; else what the meter assumes.
    """
    if not isinstance(conditions, Conditions):
        conditions = Conditions(Target("cpu", 1, False), conditions)
    return Station(
        "local",
        conditions,
        device,
        watch or Watch(),
        meter or partial(open_meter, device.kind.name, device.uuid),
        (lambda found: found.assumed) if sensor is None else (lambda _: sensor),
        clock,
    )
