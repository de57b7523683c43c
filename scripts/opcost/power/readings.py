"""The energy of windows among the samples of a recording, and flags that qualify it."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import ABOVE_LIMIT, MAX_W
from opcost.energy.sensor import Sensor
from opcost.power.attribution import MEMORY, share
from opcost.power.curve import CUT_OFF, NOT_SHOWN, Curve, CurveEnergy, of_counter, of_readings
from opcost.power.energy import DeviceEnergy
from opcost.rows.flags import (
    COUNTER_DISAGREES,
    OTHER_PROCESS,
    POWER_CAPPED,
    THROTTLED,
    TOO_FEW_REFRESHES,
)
from opcost.statistics import overlap

_BEFORE_S, _AFTER_S = 5.0, 2.0
_PERIODS = 3
"""Margin of samples around windows, needed for the range of power: seconds, or readings where
sensors are read seldom."""

EDGE_S, _SHORTEST_S, _BESIDE_S = 0.1, 0.2, 1.0
"""The machine is read this soon before or after an edge, and at the latest so often; processor time
counts in steps of 10 ms, which are too long for shorter windows."""

_DIFFERENT = 0.02
_VERY_DIFFERENT = 0.2
_COMPARED_CHANGES = 20
"""A counter that differs a little from readings is flagged in windows with at least so many changes
of each; in shorter windows it must differ by much."""

NO_READING = "the meter gave no reading in the window"
_LEAST_DIFFERENT = 3
_THROTTLED_SHARE = 0.01
_THROTTLES = {
    "power_capped_s": POWER_CAPPED,
    "thermal_throttle_s": THROTTLED,
    "brake_throttle_s": THROTTLED,
}


class WindowEnergies:
    """The energy of windows among the samples of devices, described by `about` in a recording.

    Windows that begin in the same second and end in the same second are computed from the same
    curves, which are cached: a program may have thousands.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._sources: list[Mapping[str, Any]] = about["sources"]
        self._margin_s = _PERIODS * about["period_s"]
        self._cached: tuple[tuple[int, int], list[Readings]] | None = None

    def of(
        self,
        samples: NDArray[np.void],
        start_s: float,
        end_s: float,
        lost: Callable[[], Mapping[str, str]],
        attributed: bool = False,
    ) -> dict[str, DeviceEnergy]:
        """The energy of each device between two moments. `lost` finds the reasons why meters
        failed, which may have cut the window off.
        """
        times_s = samples["time_s"]  # bisect reads only a few of them from the file
        first = bisect_left(times_s, math.floor(start_s) - max(_BEFORE_S, self._margin_s))
        last = bisect_left(times_s, math.floor(end_s) + 1 + max(_AFTER_S, self._margin_s))
        cached = self._cached  # other threads may replace it
        if cached is None or cached[0] != (first, last):
            cached = self._cached = (first, last), self._readings(samples[first:last])
        found = {}
        for source, readings in zip(self._sources, cached[1], strict=True):
            name, used = source["name"], readings.energy(start_s, end_s, attributed)
            if used.reason in (NOT_SHOWN, CUT_OFF, NO_READING):
                used = replace(used, reason=lost().get(name, used.reason))
            found[name] = used
        return found

    def span_s(
        self, samples: NDArray[np.void], lost: Mapping[str, str]
    ) -> tuple[float, float] | None:
        """The time in which the energy of all devices is known, except of lost ones; None if there
        is no such time.
        """
        every = zip(self._sources, self._readings(samples), strict=True)
        spans_s = [
            each.span_s for source, each in every if source["name"] not in lost and each.span_s
        ]
        start_s = max((first_s for first_s, _ in spans_s), default=0.0)
        end_s = min((last_s for _, last_s in spans_s), default=0.0)
        return (start_s, end_s) if start_s < end_s else None

    def _readings(self, samples: NDArray[np.void]) -> list["Readings"]:
        return [
            Readings(samples[samples["source"] == number], source)
            for number, source in enumerate(self._sources)
        ]


def machine_in(
    samples: NDArray[np.void], about: Mapping[str, Any], start_s: float, end_s: float
) -> dict[str, float | None]:
    """Use of all cores and of each GPU in per cent, the most memory that the user held, and mean
    temperatures between two moments; None for what was not read.
    """
    times_s, sources = samples["time_s"], about["sources"]
    first = bisect_left(times_s, start_s - _BESIDE_S)
    near = samples[first : bisect_left(times_s, end_s + _BESIDE_S)]
    machine = near[near["source"] == len(sources)]
    inside = machine[
        (machine["time_s"] >= start_s - EDGE_S) & (machine["time_s"] <= end_s + EDGE_S)
    ]
    length_s, busy_s = (
        float(np.ptp(inside[name])) if len(inside) else 0.0 for name in ("time_s", "all_use")
    )
    is_long = end_s - start_s >= _SHORTEST_S and length_s > 0
    memory = _known(machine, "own_memory_bytes", start_s, end_s)
    found: dict[str, float | None] = {
        "processor_use_percent": min(100 * busy_s / length_s / about["cores"], 100.0)
        if is_long
        else None,
        "processor_temperature_c": _mean(machine, "temperature_c", start_s, end_s),
        "memory_bytes": float(memory.max()) if len(memory) else None,
    }
    for number, source in enumerate(sources):
        if source.get("by") == MEMORY:
            own = near[near["source"] == number]
            used = _mean(own, "utilisation", start_s, end_s)
            found[f"{source['name']}_use_percent"] = None if used is None else 100 * used
            found[f"{source['name']}_temperature_c"] = _mean(own, "temperature_c", start_s, end_s)
    return found


def _known(
    samples: NDArray[np.void], name: str, start_s: float, end_s: float
) -> NDArray[np.floating]:
    """What is known between two moments, else around them."""
    known = samples[~np.isnan(samples[name])]
    inside = known[(known["time_s"] >= start_s) & (known["time_s"] <= end_s)]
    found: NDArray[np.floating] = (inside if len(inside) else known)[name]
    return found


def _mean(samples: NDArray[np.void], name: str, start_s: float, end_s: float) -> float | None:
    found = _known(samples, name, start_s, end_s)
    return float(found.mean()) if len(found) else None


class Readings:
    """Samples of one device, described by `source` in a recording, and windows among them."""

    def __init__(self, samples: NDArray[np.void], source: Mapping[str, Any]) -> None:
        self._samples, self._source = samples, source
        self._sensor = Sensor(**source["sensor"])
        counted, read = self._of_counter(), self._of_readings()
        # The counter is more accurate, unless it stands still.
        self._curves = [curve for curve in (counted, read) if curve is not None]
        self._stands_still = self._has_counter and counted is None

    def energy(self, start_s: float, end_s: float, attributed: bool = False) -> DeviceEnergy:
        """The energy of the device in a window."""
        if not self._curves:
            reason = NOT_SHOWN if self._has_counter else NO_READING
            return DeviceEnergy(None, reason, end_s - start_s)
        found = [curve.energy(start_s, end_s) for curve in self._curves]
        best = found[0]
        flags = [*self._throttling(start_s, end_s), *_disagreement(found)]
        if self._stands_still and best.energy is not None:
            flags.append(COUNTER_DISAGREES)
        if self._stays and best.changes >= _COMPARED_CHANGES:
            flags.append(TOO_FEW_REFRESHES)
        by = self._source.get("by") if attributed else None
        return DeviceEnergy(
            best.energy,
            best.reason,
            end_s - start_s,
            best.changes,
            tuple(flags),
            self._sensor.gain_uncertainty,
            self._source.get("overlap"),
            share(self._samples, by, start_s, end_s) if by else None,
            by,
        )

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The time in which energy is known, or None."""
        if not self._curves or len(self._curves[0].times_s) < 2:
            return None
        return float(self._curves[0].times_s[0]), float(self._curves[0].times_s[-1])

    @cached_property
    def _limit_w(self) -> float:
        """The highest possible power, by the power limit if it is known."""
        limits_w = self._samples["power_limit_w"][self._samples["power_limit_w"] > 0]
        return min(MAX_W, ABOVE_LIMIT * float(limits_w.max())) if len(limits_w) else MAX_W

    @cached_property
    def _has_counter(self) -> bool:
        return int(np.isfinite(self._samples["counter_j"]).sum()) > 1

    def _of_counter(self) -> Curve | None:
        if not self._has_counter:
            return None
        known, sensor = self._samples[np.isfinite(self._samples["counter_j"])], self._sensor
        return of_counter(
            known["time_s"],
            known["counter_j"],
            0.001
            if self._source["reads_since_last"]
            else sensor.counter_refresh_s or sensor.refresh_s,
            self._limit_w,
            max(sensor.refresh_s, sensor.averaging_s),
        )

    def _of_readings(self) -> Curve | None:
        power_w = self._samples["power_w"]
        # The device is on, so 0 W among others is an error.
        least_w = np.nextafter(0.0, 1.0) if (power_w > 0).any() else 0.0
        known = self._samples[(power_w >= least_w) & (power_w <= self._limit_w)]
        return of_readings(known["time_s"], known["power_w"], self._sensor)

    @cached_property
    def _stays(self) -> bool:
        """Whether readings are constant, as real power is not."""
        counter_j = self._samples["counter_j"]
        counted = len(np.unique(counter_j[~np.isnan(counter_j)])) > 1
        return not counted and len(np.unique(self._samples["power_w"])) < _LEAST_DIFFERENT

    @cached_property
    def _states(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
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


def _disagreement(found: Sequence[CurveEnergy]) -> list[str]:
    """The flag, if counter and readings differ by more than their intervals, and by a little in a
    long window or by much in a short one.
    """
    if len(found) < 2 or found[0].energy is None or found[1].energy is None:
        return []
    first, second = found[0].energy, found[1].energy
    off = abs(first.value / second.value - 1)
    often = min(each.changes for each in found) >= _COMPARED_CHANGES
    differs = off > (_DIFFERENT if often else _VERY_DIFFERENT)
    return [COUNTER_DISAGREES] if differs and not overlap(first, second) else []
