"""The interface of power meters, in watts, joules and seconds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opcost.energy.sensor import Sensor, read_sensor

MAX_W = 100_000
"""ASSUME no single device draws more; most random values from a faulty driver do."""

ABOVE_LIMIT = 2
"""ASSUME a device exceeds its power limit by less than this factor, and only briefly."""


class MeterUnavailable(Exception):
    """Power cannot be measured here; the message is recorded as the reason."""


class Implausible(MeterUnavailable):
    """A reading that no device can draw; the next one may be right."""


_CAPPED_SHARE = 0.01
_NEAR_LIMIT = 0.97


@dataclass(frozen=True)
class DeviceState:
    """The state of a device at one moment. Unknown values are None, with the cause in `missing`.

    `power_capped_s` (power limit), `thermal_throttle_s` and `brake_throttle_s` are cumulative since
    the driver was loaded. `other_processes` counts compute processes on the device except this one;
    `utilisation` is a share of the last sampling period.
    """

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    performance_state: str | None = None
    temperature_c: float | None = None
    utilisation: float | None = None
    power_limit_w: float | None = None
    power_capped_s: float | None = None
    thermal_throttle_s: float | None = None
    brake_throttle_s: float | None = None
    other_processes: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def throttled_s(before: DeviceState, after: DeviceState, cause: str) -> float | None:
    """Seconds of throttling between two states; `cause` is a `..._s` field of theirs."""
    before_s, after_s = getattr(before, cause), getattr(after, cause)
    if before_s is None or after_s is None or after_s < before_s:  # the driver was reloaded
        return None
    return after_s - before_s


def power_capped(before: DeviceState, after: DeviceState, length_s: float, power_w: float) -> bool:
    """Whether the driver reports capping or, if it reports nothing, power is close to the limit.

    `power_w` is the mean under load, which lasted `length_s`.
    """
    capped_s = throttled_s(before, after, "power_capped_s")
    if capped_s is not None:
        return capped_s > _CAPPED_SHARE * length_s
    return after.power_limit_w is not None and power_w > _NEAR_LIMIT * after.power_limit_w


class Meter(ABC):
    """The power sensor of one device, and its energy counter if it has one.

    `name` identifies the reading, `assumed` holds the sensor's properties without characterisation,
    `missing` the reasons for quantities that are None. With `reads_since_last` the meter has only a
    counter, and each power is the mean since the previous reading. `overlap` completes a sentence
    about the device: which meters count the same energy. `shared_by_time` is true if processes
    share the device by their processor time, None if they do not share it in a known way.
    """

    name: str
    assumed: Sensor
    missing: dict[str, str]
    reads_since_last = False
    overlap: str | None = None
    shared_by_time: bool | None = False

    @abstractmethod
    def power_w(self) -> float:
        """The power drawn now, in watts. Raises MeterUnavailable."""

    @abstractmethod
    def counter_j(self) -> float | None:
        """Energy in joules since a fixed moment, or None without a counter. It decreases if the
        counter was reset, which the caller has to notice.

        Raises MeterUnavailable if the counter has disappeared.
        """

    def state(self) -> DeviceState:
        """Clocks, temperature, limits, other processes: none, of a meter that reads only energy.
        Raises MeterUnavailable.
        """
        return DeviceState(missing=self.missing)

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """Name -> function for every power reading of the device, including the meter's own."""
        return {self.name: self.power_w}

    def memory_by_process(self) -> Mapping[int, int]:
        """Process -> bytes of the device's memory that it holds; empty if that is unknown."""
        return {}


def plausible_w(power_w: float) -> float:
    """The power, unchanged. Raises Implausible if no device can draw it."""
    if not 0 <= power_w <= MAX_W:
        raise Implausible(f"the meter reads {power_w:g} W, which no device draws")
    return power_w


def sensor_of(meter: Meter, path: Path | None) -> Sensor:
    """The sensor as characterised in the file `path`, or as assumed without one."""
    return meter.assumed if path is None else read_sensor(path, meter.name, meter.assumed)
