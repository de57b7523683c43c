"""The energy of windows from the samples of a device.

Windows that begin in the same second and end in the same second are computed from the same samples
and curves: a program may have thousands.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import ABOVE_LIMIT, MAX_W
from opcost.energy.sensor import Sensor
from opcost.power.attribution import By, share
from opcost.power.curves import Curve, Numbers, of_counter, of_readings
from opcost.power.device_energy import DeviceEnergy
from opcost.power.estimation import CUT_OFF, NOT_SHOWN, WindowEnergy, energy_of
from opcost.power.stretches import NO_EDGES
from opcost.rows.flags import (
    COUNTER_DISAGREES,
    OTHER_PROCESS,
    POWER_CAPPED,
    THROTTLED,
    TOO_FEW_REFRESHES,
)
from opcost.statistics import overlap as overlaps

_SHARED_S = 1.0
_BEFORE_S, _AFTER_S = 5.0, 2.0
_PERIODS = 3
"""Margin of samples around windows, needed for the range of power: seconds, or readings where
sensors are read seldom."""

_DIFFERENT = 0.02
_VERY_DIFFERENT = 0.2
_COMPARED_CHANGES = 20
"""A counter that differs a little from readings is flagged in windows with at least so many changes
of each; in shorter windows it must differ by much."""

_LEAST_DIFFERENT = 3
_THROTTLED_SHARE = 0.01
_THROTTLES = {
    "power_capped_s": POWER_CAPPED,
    "thermal_throttle_s": THROTTLED,
    "brake_throttle_s": THROTTLED,
}


def around(start_s: float, end_s: float, period_s: float) -> tuple[float, float]:
    """The period of samples used for a window; they are `period_s` apart."""
    first_s = math.floor(start_s / _SHARED_S) * _SHARED_S
    last_s = math.floor(end_s / _SHARED_S + 1) * _SHARED_S
    return (
        first_s - max(_BEFORE_S, _PERIODS * period_s),
        last_s + max(_AFTER_S, _PERIODS * period_s),
    )


class Shown:
    """The energy of windows among the samples of one device."""

    def __init__(
        self, samples: NDArray[np.void], sensor: Sensor, reads_since_last: bool = False
    ) -> None:
        self._samples, self._sensor = samples, sensor
        counted = self._of_counter(reads_since_last)
        read = self._of_readings()
        self._curves = [
            replace(curve, limit_w=self._limit_w) for curve in (counted, read) if curve is not None
        ]
        # The counter is more accurate, unless it is stuck.
        self._best = int(counted is not None and read is not None and not len(counted.times_s))

    @classmethod
    def of_sources(
        cls, samples: NDArray[np.void], sources: Sequence[Mapping[str, Any]]
    ) -> list["Shown"]:
        """An instance for each device of a recording."""
        return [
            cls(
                samples[samples["source"] == number],
                Sensor(**source["sensor"]),
                source["reads_since_last"],
            )
            for number, source in enumerate(sources)
        ]

    def energy(
        self,
        start_s: float,
        end_s: float,
        *,
        by: By | None = None,
        lost: str | None = None,
        overlap: str | None = None,
        edges_s: Numbers = NO_EDGES,
    ) -> DeviceEnergy:
        """The energy of the device in a window; `lost` is why its meter failed, if it did.
        `edges_s` are the ascending edges of all windows of the program.
        """
        if not self._curves:
            return DeviceEnergy.without(lost or "the meter gave no reading in the window")
        found = [energy_of(curve, start_s, end_s, edges_s) for curve in self._curves]
        best = found[self._best]
        return DeviceEnergy(
            best.energy,
            lost if lost and best.reason in (NOT_SHOWN, CUT_OFF) else best.reason,
            end_s - start_s,
            best.at_most_j,
            best.changes,
            (
                *self._throttling(start_s, end_s),
                *_disagreement(found),
                *([COUNTER_DISAGREES] if self._best and best.energy is not None else []),
                *([TOO_FEW_REFRESHES] if self._stays and best.changes >= _COMPARED_CHANGES else []),
            ),
            self._sensor.idle_w,
            self._sensor.gain_uncertainty,
            overlap,
            share(self._used, by, start_s, end_s),
            by,
        )

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The period in which energy is known, or None."""
        if not self._curves or len(self._curves[self._best].times_s) < 2:
            return None
        moments_s = self._curves[self._best].times_s
        return float(moments_s[0]), float(moments_s[-1])

    def limit_j(self, start_s: float, end_s: float) -> float | None:
        """An upper limit of the energy between two moments, or None."""
        if not self._curves:
            return None
        return energy_of(self._curves[self._best], start_s, end_s).at_most_j

    def _of_counter(self, reads_since_last: bool) -> Curve | None:
        known, sensor = self._samples[np.isfinite(self._samples["counter_j"])], self._sensor
        if len(known) < 2:
            return None
        shown_w = self._readings["power_w"]
        return of_counter(
            known["time_s"],
            known["counter_j"],
            0.001 if reads_since_last else sensor.counter_refresh_s or sensor.refresh_s,
            self._most_w,
            max(sensor.refresh_s, sensor.averaging_s),
            (float(shown_w.min()), float(shown_w.max())) if len(shown_w) else None,
        )

    def _of_readings(self) -> Curve | None:
        known = self._readings
        if len(known) < 2:
            return None
        return of_readings(known["time_s"], known["power_w"], self._sensor)

    @cached_property
    def _readings(self) -> NDArray[np.void]:
        """Samples with a possible power: the device is on, so 0 W among others is an error."""
        power_w = self._samples["power_w"]
        least_w = np.nextafter(0.0, 1.0) if (power_w > 0).any() else 0.0
        return self._samples[(power_w >= least_w) & (power_w <= self._most_w)]

    @cached_property
    def _most_w(self) -> float:
        """The highest possible power, by the power limit if it is known."""
        return MAX_W if self._limit_w is None else min(MAX_W, ABOVE_LIMIT * self._limit_w)

    @cached_property
    def _limit_w(self) -> float | None:
        limits_w = self._samples["power_limit_w"][self._samples["power_limit_w"] > 0]
        return float(limits_w.max()) if len(limits_w) else None

    @cached_property
    def _used(self) -> NDArray[np.void]:
        """Samples with known use of the device."""
        return self._samples[~np.isnan(self._samples["all_use"])]

    @cached_property
    def _stays(self) -> bool:
        """Whether readings are constant, as real power is not."""
        counter_j = self._samples["counter_j"]
        counted = len(np.unique(counter_j[~np.isnan(counter_j)])) > 1
        return not counted and len(np.unique(self._samples["power_w"])) < _LEAST_DIFFERENT

    @cached_property
    def _states(self) -> dict[str, tuple[Numbers, Numbers]]:
        """Times and values of states of the device, without those that set no flag."""
        found = {}
        for name in ("other_processes", *_THROTTLES):
            known = self._samples[~np.isnan(self._samples[name])]
            values = known[name].astype(np.float64)
            least = values.min(initial=math.inf) if name in _THROTTLES else 1.0
            if (values > least).any():
                found[name] = np.ascontiguousarray(known["time_s"]), values
        return found

    def _throttling(self, start_s: float, end_s: float) -> list[str]:
        """Flags of throttling and of other processes, from the states around the window."""
        flags: dict[str, None] = {}
        for name, (times_s, values) in self._states.items():
            beside_s = 1.0 if name in _THROTTLES else 0.0
            first = np.searchsorted(times_s, start_s - beside_s)
            near = values[first : np.searchsorted(times_s, end_s + beside_s, "right")]
            if name not in _THROTTLES:
                if (near > 1).any():
                    flags[OTHER_PROCESS] = None
            elif len(near) and near[-1] - near[0] > _THROTTLED_SHARE * (end_s - start_s):
                flags[_THROTTLES[name]] = None
        return list(flags)


def _disagreement(found: list[WindowEnergy]) -> list[str]:
    """The flag, if counter and readings differ by more than their intervals, and by a little in a
    long window or by much in a short one.
    """
    if len(found) < 2:
        return []
    first, second = (each.energy for each in found)
    if first is None or second is None:
        return []
    off = abs(first.value / second.value - 1)
    often = min(each.changes for each in found) >= _COMPARED_CHANGES
    differs = off > (_DIFFERENT if often else _VERY_DIFFERENT)
    return [COUNTER_DISAGREES] if differs and not overlaps(first, second) else []
