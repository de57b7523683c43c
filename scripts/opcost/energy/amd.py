"""The power sensor of an AMD GPU, read through AMD's library amdsmi.

Functions and units follow amdsmi 7 (AMD SMI Python API reference), with names of earlier versions
where they differ. Known faults of drivers and versions that would give wrong numbers are checked
here: ROCm/amdsmi#22, #38, #115 and #174, ml-energy/zeus#123 and #203.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opcost.energy.amd_library import amd_library, call, gpu_handles, number
from opcost.energy.meter import DeviceState, Meter, MeterUnavailable, plausible_w
from opcost.energy.sensor import Sensor

_CURRENT = Sensor(refresh_s=0.1, averaging_s=0.1)
"""ASSUME NVIDIA's slowest sensor: AMD states neither refresh nor averaging nor gain."""

_AVERAGED = Sensor(refresh_s=0.1, averaging_s=1.0)
"""ASSUME a mean over a second, as on NVIDIA's GPUs: AMD does not state the averaging time."""

_LEAST_UW = 1_000_000
"""Larger numbers are microwatts, as in some versions: no GPU draws a megawatt."""

_HOTTEST_C = 200
"""ASSUME no working chip is hotter."""

_COMPARED_S = 0.5
_WRONG_FACTOR = 4
"""A counter in a wrong unit is off by its resolution, 15, or more; a load that begins during the
comparison rarely changes power by this factor."""

_TWO_DIES = "MI250"


class AmdMeter(Meter):
    """Power of the GPU at a PCI address, by its best reading, which `name` identifies.

    That is the current one (MI300 and later), else the average. `now_s` and `sleep` are those of a
    clock in seconds. Raises MeterUnavailable with amdsmi's reason, and for a sensor that shows 0 W.
    """

    def __init__(
        self,
        address: str,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._smi = amd_library()
        handles = gpu_handles(self._smi)
        if address not in handles:
            raise MeterUnavailable(
                f"amdsmi lists no GPU at {address}; there are {', '.join(handles) or 'none'}"
            )
        self._handle = handles[address]
        self._number = list(handles).index(address)
        self.missing = {}
        self._readings = self._probe()
        self.name = next(iter(self._readings))
        self.assumed = _CURRENT if self.name == "amd_power_current" else _AVERAGED
        self._last_j = self._trusted_j(now_s, sleep)
        self.overlap = self._shared(len(handles))

    def power_w(self) -> float:
        """The reading `name`, in watts."""
        return self._readings[self.name]()

    def counter_j(self) -> float | None:
        """Joules since the driver was loaded, or None if the counter contradicts the power."""
        if self._last_j is None:
            return None
        before_j, self._last_j = self._last_j, self._energy_j()
        if self._last_j < before_j:
            raise MeterUnavailable(
                f"the GPU's energy counter went back from {before_j:.6g} to {self._last_j:.6g} J "
                "(as in ROCm/amdsmi#115): update ROCm and amdsmi"
            )
        return self._last_j

    def readings(self) -> Mapping[str, Callable[[], float]]:
        """`amd_power_current` and `amd_power_average`, as far as the GPU has them."""
        return self._readings

    def state(self) -> DeviceState:
        """Clocks, temperature and so on; None where amdsmi refuses the query."""
        limits = ("power_capped_s", "thermal_throttle_s", "brake_throttle_s")
        missing = dict.fromkeys(limits, "amdsmi counts violations of limits, not their seconds")
        missing["performance_state"] = "AMD GPUs have no numbered performance states"

        def read(name: str, function: Callable[..., Any], *arguments: str) -> Any:
            return self._try(name, partial(function, *arguments), missing)

        percent = read("utilisation", self._field, "amdsmi_get_gpu_activity", "gfx_activity")
        return DeviceState(
            sm_clock_mhz=read("sm_clock_mhz", self._clock_mhz, "GFX"),
            memory_clock_mhz=read("memory_clock_mhz", self._clock_mhz, "MEM"),
            temperature_c=read("temperature_c", self._temperature_c),
            utilisation=None if percent is None else percent / 100,
            power_limit_w=read("power_limit_w", self._limit_w),
            other_processes=read("other_processes", self._others),
            missing=missing,
        )

    def _probe(self) -> dict[str, Callable[[], float]]:
        """The available readings, the best first; reasons for the others go to `missing`."""
        wanted: dict[str, Callable[[], float]] = {
            "amd_power_current": partial(self._power_w, "current_socket_power"),
            "amd_power_average": partial(self._power_w, "average_socket_power"),
        }
        powers_w = {name: self._try(name, read, self.missing) for name, read in wanted.items()}
        for name, power_w in powers_w.items():
            if power_w == 0:
                self.missing[name] = "it shows 0 W, which no GPU draws that is on"
        found = {name: read for name, read in wanted.items() if powers_w[name]}
        if found:
            return found
        if self._has_two_dies() and self._number % 2:
            raise MeterUnavailable(
                f"the sensor of the card's first die, amd:{self._number - 1}, covers this one as "
                "well (ml-energy/zeus#203): measure that"
            )
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.missing.items())
        raise MeterUnavailable(f"amdsmi gives no power: {reasons}")

    def _shared(self, count: int) -> str | None:
        """A note on the other devices that the sensor covers."""
        asked = partial(self._call, "amdsmi_get_gpu_compute_partition")
        mode = self._try("partition", asked, {})
        if mode not in (None, "", "N/A", "SPX"):
            return f"covers all partitions of its card, which is in mode {mode}: do not add them"
        if self._has_two_dies() and self._number % 2 == 0 and self._number + 1 < count:
            return f"covers both dies of its card, this one and amd:{self._number + 1}"
        return None

    def _has_two_dies(self) -> bool:
        name = self._try("name", partial(self._call, "amdsmi_get_gpu_asic_info"), {})
        return name is not None and _TWO_DIES in str(name.get("market_name"))

    def _trusted_j(
        self, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> float | None:
        """The counter, or None, with the reason in `missing`, if it contradicts the power."""

        def both() -> tuple[float, float, float]:
            return now_s(), self._energy_j(), self.power_w()

        first = self._try("energy counter", both, self.missing)
        if first is None:
            return None
        sleep(_COMPARED_S)
        second = self._try("energy counter", both, self.missing)
        if second is None:
            return None
        counted_w = (second[1] - first[1]) / (second[0] - first[0])
        shown_w = (first[2] + second[2]) / 2
        if shown_w / _WRONG_FACTOR <= counted_w <= shown_w * _WRONG_FACTOR:
            return second[1]
        self.missing["energy counter"] = (
            f"it counts {counted_w:.3g} W while the sensor shows {shown_w:.3g} W (as in "
            "ROCm/amdsmi#38): energy is that of the power readings"
        )
        return None

    def _energy_j(self) -> float:
        """The accumulator counts units of `counter_resolution` microjoules; until version 6.2 it
        was called `power`."""
        found = self._call("amdsmi_get_energy_count")
        count = number(found, "energy_accumulator" if "power" not in found else "power")
        return count * number(found, "counter_resolution") / 1e6

    def _power_w(self, field: str) -> float:
        return plausible_w(_watts(self._field("amdsmi_get_power_info", field)))

    def _limit_w(self) -> float:
        limit_w = _watts(self._field("amdsmi_get_power_cap_info", "power_cap"))
        if not limit_w:
            raise MeterUnavailable("amdsmi gives a power_cap of 0")
        return limit_w

    def _clock_mhz(self, clock: str) -> float:
        found = self._call("amdsmi_get_clock_info", getattr(self._smi.AmdSmiClkType, clock))
        return number(found, "clk" if "clk" in found else "cur_clk")

    def _temperature_c(self) -> float:
        kind = self._smi.AmdSmiTemperatureType.HOTSPOT
        now = self._smi.AmdSmiTemperatureMetric.CURRENT
        found = {"temperature": self._call("amdsmi_get_temp_metric", kind, now)}
        if (celsius := number(found, "temperature")) > _HOTTEST_C:
            raise MeterUnavailable(f"amdsmi gives a temperature of {celsius:g}, in an unknown unit")
        return celsius

    def _others(self) -> int:
        processes = self._call("amdsmi_get_gpu_process_list")
        return len({process["pid"] for process in processes} - {os.getpid()})

    def _field(self, function: str, field: str) -> float:
        return number(self._call(function), field)

    def _call(self, function: str, *arguments: Any) -> Any:
        return call(self._smi, function, self._handle, *arguments)

    def _try(self, name: str, read: Callable[[], Any], missing: dict[str, str]) -> Any:
        """The result of `read`, or None with the reason in `missing`."""
        try:
            return read()
        except MeterUnavailable as reason:
            missing[name] = str(reason)
            return None


def _watts(shown: float) -> float:
    return shown / 1e6 if shown >= _LEAST_UW else shown
