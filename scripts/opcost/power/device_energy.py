"""What a device used in a window: energy, power, and the flags that tell how far to trust them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from opcost.energy.meter import ABOVE_LIMIT, MAX_W
from opcost.energy.sensor import Sensor
from opcost.power.attribution import By, share
from opcost.power.curves import Curve, Numbers, of_counter, of_readings
from opcost.power.estimation import NOT_SHOWN, WindowEnergy, energy_of
from opcost.power.stretches import NO_EDGES
from opcost.rows.flags import (
    COUNTER_DISAGREES,
    OTHER_PROCESS,
    POWER_CAPPED,
    THROTTLED,
    TOO_FEW_REFRESHES,
)
from opcost.statistics import Estimate, overlap

_BEFORE_S = 5.0
PERIODS = 3
"""How much before a window tells the range of power: seconds, and, where sensors are read seldom,
readings."""

_NO_IDLE_POWER = (
    "the power of the idle device is unknown: measure a window in which it is idle, and subtract "
    "its mean power"
)
_NO_PROGRAM = "no program is measured whose part it could be"
_NO_SHARE = {
    By.PROCESSOR_TIME: "no processor time was counted in the window",
    By.MEMORY: (
        "its driver names no process that holds its memory: none computes on it, the driver does "
        "not tell, or a container hides them (docker run --pid=host shows them)"
    ),
}
_DIFFERENT = 0.02
_VERY_DIFFERENT = 0.2
_COMPARED_CHANGES = 20
"""A counter that differs a little from readings is noted in windows of at least so many changes of
each; in shorter ones, it has to differ by much."""

_LEAST_DIFFERENT = 3
_THROTTLED_SHARE = 0.01
_THROTTLES = {
    POWER_CAPPED: ["power_capped_s"],
    THROTTLED: ["thermal_throttle_s", "brake_throttle_s"],
}


@dataclass(frozen=True)
class DeviceEnergy:
    """Joules of a device in a window with their 95 % interval, or None with the `reason`.

    `at_most_j` is an upper limit, where there is one. `changes` counts the changes of the sensor
    that were seen in the window. `idle_w` is the power of the idle device, if it is known. The
    error of the sensor's gain, `gain_uncertainty`, is not in the interval. `overlap` is that of the
    meter. `share` is that of the user, `by` processor time or memory: an attribution
    (attribution.py).
    """

    energy: Estimate | None
    reason: str | None
    time_s: float = 0.0
    at_most_j: float | None = None
    changes: int = 0
    flags: tuple[str, ...] = ()
    idle_w: float | None = None
    gain_uncertainty: float | None = None
    overlap: str | None = None
    share: float | None = None
    by: By | None = None

    @classmethod
    def without(cls, reason: str) -> Self:
        """That of a device that is not read."""
        return cls(None, reason)

    @property
    def mean_power_w(self) -> float | None:
        """Watts, averaged over the window."""
        return None if self.energy is None or not self.time_s else self.energy.value / self.time_s

    @property
    def share_reason(self) -> str | None:
        """Why there is no `share`, and what to do; None if there is one."""
        if self.share is not None:
            return None
        return self.reason or _NO_PROGRAM if self.by is None else _NO_SHARE[self.by]

    @property
    def above_idle_reason(self) -> str | None:
        """Why there is no `above_idle_j`; None if there is one."""
        if self.above_idle_j is not None:
            return None
        return self.reason if self.energy is None else _NO_IDLE_POWER

    @property
    def above_idle_j(self) -> float | None:
        """Joules beyond those of the idle device, if its power is known."""
        if self.energy is None or self.idle_w is None:
            return None
        return self.energy.value - self.idle_w * self.time_s


def read_before_s(period_s: float) -> float:
    """From how many seconds before a window on readings are used, if they are so far apart."""
    return max(_BEFORE_S, PERIODS * period_s)


def device_energy(
    samples: NDArray[np.void],
    sensor: Sensor,
    reads_since_last: bool,
    by: By | None,
    start_s: float,
    end_s: float,
    lost: str | None = None,
    overlap: str | None = None,
    edges_s: Numbers = NO_EDGES,
) -> DeviceEnergy:
    """From the samples of one device; its meter may have been `lost` for that reason. `edges_s`,
    ascending, are those of all windows of the program.

    The counter tells best; where it stands still, the readings do.
    """
    curves, best_curve = _curves(samples, sensor, reads_since_last)
    if not curves:
        return DeviceEnergy.without(lost or "the meter gave no reading in the window")
    found = [energy_of(curve, start_s, end_s, edges_s) for curve in curves]
    stands_still, best = best_curve > 0, found[best_curve]
    return DeviceEnergy(
        best.energy,
        lost if lost and best.reason == NOT_SHOWN else best.reason,
        end_s - start_s,
        best.at_most_j,
        best.changes,
        (
            *_throttling(samples, start_s, end_s),
            *_disagreement(found),
            *([COUNTER_DISAGREES] if stands_still and best.energy is not None else []),
            *_stuck(samples, best),
        ),
        sensor.idle_w,
        sensor.gain_uncertainty,
        overlap,
        share(samples, by, start_s, end_s),
        by,
    )


def limits_j(
    samples: NDArray[np.void],
    sensor: Sensor,
    reads_since_last: bool,
    spans: Iterable[tuple[float, float]],
) -> list[float | None]:
    """The most that a device can have used in each of some spans of time, as `at_most_j`."""
    curves, best = _curves(samples, sensor, reads_since_last)
    return [energy_of(curves[best], *span).at_most_j if curves else None for span in spans]


def _curves(
    samples: NDArray[np.void], sensor: Sensor, reads_since_last: bool
) -> tuple[list[Curve], int]:
    """Those of the counter and of the readings, as far as there are any; and which of them tells
    best: the second if the counter stands still.
    """
    counted = _of_counter(samples, sensor, reads_since_last)
    read = _of_readings(samples, sensor)
    stands_still = counted is not None and read is not None and not len(counted.times_s)
    limit_w = _limit_w(samples)
    curves = [replace(curve, limit_w=limit_w) for curve in (counted, read) if curve is not None]
    return curves, int(stands_still)


def _of_counter(samples: NDArray[np.void], sensor: Sensor, reads_since_last: bool) -> Curve | None:
    known = samples[np.isfinite(samples["counter_j"])]
    if len(known) < 2:
        return None
    shown_w = _readings(samples)["power_w"]
    return of_counter(
        known["time_s"],
        known["counter_j"],
        0.001 if reads_since_last else sensor.counter_refresh_s or sensor.refresh_s,
        _most_w(samples),
        max(sensor.refresh_s, sensor.averaging_s),
        (float(shown_w.min()), float(shown_w.max())) if len(shown_w) else None,
    )


def _of_readings(samples: NDArray[np.void], sensor: Sensor) -> Curve | None:
    known = _readings(samples)
    return of_readings(known["time_s"], known["power_w"], sensor) if len(known) > 1 else None


def _readings(samples: NDArray[np.void]) -> NDArray[np.void]:
    """Samples with a power that the device can draw: it is on, so 0 W among others is an error."""
    power_w = samples["power_w"]
    least_w = np.nextafter(0.0, 1.0) if (power_w > 0).any() else 0.0
    return samples[(power_w >= least_w) & (power_w <= _most_w(samples))]


def _most_w(samples: NDArray[np.void]) -> float:
    """What the device can draw at any moment, by its power limit, if that is known."""
    limit_w = _limit_w(samples)
    return MAX_W if limit_w is None else min(MAX_W, ABOVE_LIMIT * limit_w)


def _limit_w(samples: NDArray[np.void]) -> float | None:
    limits_w = samples["power_limit_w"][samples["power_limit_w"] > 0]
    return float(limits_w.max()) if len(limits_w) else None


def _disagreement(found: list[WindowEnergy]) -> list[str]:
    """Whether counter and readings differ by more than their intervals allow, and by a little in a
    long window, or by much in any.
    """
    if len(found) < 2:
        return []
    first, second = (each.energy for each in found)
    if first is None or second is None:
        return []
    off = abs(first.value / second.value - 1)
    often = min(each.changes for each in found) >= _COMPARED_CHANGES
    differs = off > (_DIFFERENT if often else _VERY_DIFFERENT)
    return [COUNTER_DISAGREES] if differs and not overlap(first, second) else []


def _stuck(samples: NDArray[np.void], found: WindowEnergy) -> list[str]:
    """Whether readings stay exactly the same, as those of real power do not."""
    counted = len(np.unique(samples["counter_j"][~np.isnan(samples["counter_j"])])) > 1
    same = len(np.unique(samples["power_w"])) < _LEAST_DIFFERENT
    many = found.changes >= _COMPARED_CHANGES
    return [TOO_FEW_REFRESHES] if same and many and not counted else []


def _throttling(samples: NDArray[np.void], start_s: float, end_s: float) -> list[str]:
    """Flags of throttling and of other processes, from the states around the window."""
    stated = samples[~np.isnan(samples["other_processes"])]
    others = stated[(stated["time_s"] >= start_s) & (stated["time_s"] <= end_s)]
    flags = [OTHER_PROCESS] if len(others) and others["other_processes"].max() > 1 else []
    for flag, columns in _THROTTLES.items():
        for column in columns:
            known = samples[~np.isnan(samples[column])]
            near = known[(known["time_s"] >= start_s - 1) & (known["time_s"] <= end_s + 1)]
            lasted_s = float(near[column][-1] - near[column][0]) if len(near) > 1 else 0.0
            if lasted_s > _THROTTLED_SHARE * (end_s - start_s) and flag not in flags:
                flags.append(flag)
    return flags
