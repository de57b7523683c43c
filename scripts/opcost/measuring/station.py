"""The station: an opened target, on which subjects are measured."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from opcost.devices.device import Device
from opcost.devices.disturbance import Watch
from opcost.devices.environment import describe_environment
from opcost.energy.limited_meter import open_limited
from opcost.energy.load import SYSTEM_CLOCK, Clock
from opcost.energy.meter import Meter, MeterUnavailable, sensor_of
from opcost.energy.meters import open_meter
from opcost.energy.sensor import Sensor, meter_fault
from opcost.measuring.target_files import TargetFiles
from opcost.measuring.target_identity import expected_device
from opcost.rows import records
from opcost.study import Conditions


@dataclass(frozen=True)
class Station:
    """An opened target. `open_meter` raises MeterUnavailable if power cannot be measured."""

    target: str
    conditions: Conditions
    device: Device
    watch: Watch
    open_meter: Callable[[], Meter]
    find_sensor: Callable[[Meter], Sensor] = lambda meter: meter.assumed
    clock: Clock = SYSTEM_CLOCK

    def columns(self) -> dict[str, Any]:
        """The columns of target, conditions and environment."""
        return {
            **records.condition_columns(self.conditions, self.target),
            **describe_environment(self.device),
            "quiet_sentinel_time_s": self.watch.baseline_s,
        }


def open_station(files: TargetFiles, fault: str | None = None) -> Station:
    """Open a target. With a `fault`, the meter is not opened.

    Raises OpcostError if the device or the environment has changed since the study began, or if the
    sensor file cannot be read: every row would fail.
    """
    device, watch = expected_device(files.conditions.target, files.target, files.device_file)
    known = None if files.sensor_file is None else meter_fault(files.sensor_file)
    reason = fault or known

    def open_unless_faulty() -> Meter:
        if reason:
            raise MeterUnavailable(reason)
        return open_limited(partial(open_meter, device.kind.name, device.uuid))

    find_sensor = partial(sensor_of, path=files.sensor_file)
    return Station(files.target, files.conditions, device, watch, open_unless_faulty, find_sensor)
