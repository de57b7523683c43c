"""What meters of power and energy have in common.

Only `nvml` and `rapl` talk to hardware. Raw readings (milliwatts, microjoules, nanoseconds) become
watts, joules and seconds there, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opcost.energy.sensor import Sensor, read_sensor

_MOST_W = 100_000
"""ASSUME no single device draws more: a driver that answers at random mostly does."""


class MeterUnavailable(Exception):
    """Why power cannot be measured here; an answer, not an error."""


@dataclass(frozen=True)
class DeviceState:
    """How a device is, at one moment. What it does not tell is None; `missing` says why.

    The throttle times are cumulative since the driver was loaded: held below its clock by the power
    limit, by temperature, by the power brake. `other_processes` counts compute processes on the
    device that are not this one; `utilisation` is a share of the last sampling period.
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


class Meter(ABC):
    """The power sensor of one device, with an energy counter beside it where there is one.

    `name` says which reading it is, `assumed` what is taken for granted about it where it has not
    been characterised, `missing` why a quantity is None. A meter `reads_since_last` where it has
    only a counter: each power is then the mean since the reading before.
    """

    name: str
    assumed: Sensor
    missing: dict[str, str]
    reads_since_last = False

    @abstractmethod
    def power_w(self) -> float:
        """The power drawn now, in watts. Raises MeterUnavailable."""

    @abstractmethod
    def counter_j(self) -> float | None:
        """Energy since some fixed moment, in joules, or None without a counter.

        Raises MeterUnavailable when a counter that was there has gone.
        """

    @abstractmethod
    def state(self) -> DeviceState:
        """Clocks, temperature, limits and company. Raises MeterUnavailable when the device left."""

    @abstractmethod
    def readings(self) -> Mapping[str, Callable[[], float]]:
        """Every power reading that the device has, by name, the meter's own among them."""


def plausible_w(power_w: float) -> float:
    """The power, if it can be one. Raises MeterUnavailable."""
    if not 0 <= power_w <= _MOST_W:
        raise MeterUnavailable(f"the meter reads {power_w:g} W, which is no power of a device")
    return power_w


def sensor_of(meter: Meter, path: Path | None) -> Sensor:
    """What is known of a meter's sensor by the file `path`; what is assumed without one."""
    return meter.assumed if path is None else read_sensor(path, meter.name, meter.assumed)
