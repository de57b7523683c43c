"""The energy of a device in a window, and in several windows together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Self

from opcost.power.attribution import MEMORY, PROCESSOR_TIME
from opcost.rows.quantities import ENERGY, POWER
from opcost.statistics import Estimate, correlated_sum, mean, weighted_sum

_ABOVE_IDLE, _IDLE = ENERGY.of("above_idle"), POWER.of("idle")
_NO_IDLE = (
    "the idle power is unknown: opcost measure --idle 10s, or Monitor(idle_s=10), measures it"
)

_NO_SHARE = {
    None: "no program is measured whose part it could be, or the device is shared in no known way",
    PROCESSOR_TIME: "no processor time was counted in the window",
    MEMORY: (
        "its driver names no process that holds its memory: none computes on it, the driver does "
        "not tell, or a container hides them (docker run --pid=host shows them)"
    ),
}


@dataclass(frozen=True)
class DeviceEnergy:
    """Joules of a device in a window with their 95 % interval, or None with the `reason`. Of a
    device that was not read, `time_s` is None.

    `changes` counts the sensor's changes in the window. The interval excludes the error of the
    sensor's gain, `gain_uncertainty`. `overlap` says which other meter includes this energy.
    `share` is attributed to the user, `by` processor time or memory (attribution.py). `idle_power`
    is in watts.
    """

    energy: Estimate | None
    reason: str | None
    time_s: float | None = None
    changes: int = 0
    flags: tuple[str, ...] = ()
    gain_uncertainty: float | None = None
    overlap: str | None = None
    share: float | None = None
    by: str | None = None
    idle_power: Estimate | None = None

    @property
    def above_idle(self) -> Estimate | None:
        """Joules above those of the idle device in the same time."""
        if self.energy is None or self.idle_power is None or not self.time_s:
            return None
        return weighted_sum([(1.0, self.energy), (-self.time_s, self.idle_power)])

    @property
    def above_idle_reason(self) -> str | None:
        """Why there is no energy above idle; None if there is one."""
        return None if self.above_idle is not None else self.reason or _NO_IDLE

    def with_idle(self, idle: "DeviceEnergy | None") -> Self:
        """The same with the mean power of an idle window, if that has an energy."""
        if idle is None or idle.energy is None or not idle.time_s:
            return self
        return replace(self, idle_power=idle.energy.times(1 / idle.time_s))

    @property
    def mean_power_w(self) -> float | None:
        """Watts, averaged over the window."""
        return None if self.energy is None or not self.time_s else self.energy.value / self.time_s

    @property
    def share_reason(self) -> str | None:
        """Why there is no `share`, and what to do; None if there is one."""
        if self.share is not None:
            return None
        return self.reason if self.by is None and self.reason else _NO_SHARE[self.by]

    @property
    def columns(self) -> dict[str, Any]:
        """The values as JSON data, in joules, watts and seconds."""
        return {
            **ENERGY.columns(self.energy),
            "reason": self.reason,
            "time_s": self.time_s,
            "mean_power_w": self.mean_power_w,
            **_IDLE.columns(self.idle_power),
            **_ABOVE_IDLE.columns(self.above_idle),
            "above_idle_reason": self.above_idle_reason,
            "changes": self.changes,
            "gain_uncertainty": self.gain_uncertainty,
            "flags": list(self.flags),
        }

    @classmethod
    def read(cls, columns: Mapping[str, Any]) -> Self:
        """The energy that `columns` describe."""
        names = ("reason", "time_s", "changes", "gain_uncertainty")
        known = {name: columns[name] for name in names}
        idle = _IDLE.read({**dict.fromkeys(_IDLE.names), **columns})  # of older recordings
        flags = tuple(columns["flags"])
        return cls(ENERGY.read(columns), flags=flags, idle_power=idle, **known)


def total(parts: Sequence[DeviceEnergy], what: str = "windows") -> DeviceEnergy:
    """The energy of several windows, or others (`what`), together.

    Such windows usually begin and end at the same places of a program, where power rises and falls
    in the same way: their errors are correlated, so limits add up.
    """
    reasons = [each.reason for each in parts if each.reason is not None]
    energies = [each.energy for each in parts if each.energy is not None]
    times_s = [each.time_s for each in parts]
    return replace(
        parts[0],
        energy=None if reasons else correlated_sum((1.0, each) for each in energies),
        reason=_common(reasons, len(parts), what),
        time_s=None if None in times_s else sum(_known(times_s)),
        changes=sum(each.changes for each in parts),
        flags=tuple(dict.fromkeys(flag for each in parts for flag in each.flags)),
        share=_share(parts),
    )


def together(devices: Mapping[str, DeviceEnergy]) -> tuple[str, DeviceEnergy]:
    """The name and the energy of all devices of a window together, without those that contain
    others or are contained in them. Null with a reason if one of them is unknown. Limits add up.
    """
    parts = {name: each for name, each in devices.items() if each.overlap is None}
    name, listed = " + ".join(parts), list(parts.values())
    if len(parts) < 2:
        why = "a total needs two devices, neither of which has the other"
        return "all devices", DeviceEnergy(None, next((p.reason for p in listed if p.reason), why))
    idle = [each.idle_power for each in listed]
    return name, replace(
        total(listed, "devices"),
        time_s=listed[0].time_s,
        gain_uncertainty=max(_known(each.gain_uncertainty for each in listed), default=None),
        share=None,
        by=None,
        idle_power=None if None in idle else correlated_sum((1.0, each) for each in idle if each),
    )


def mean_of_runs(runs: Sequence[DeviceEnergy]) -> DeviceEnergy:
    """The mean energy of several runs; changes are counted over all of them. Its interval contains
    Student's interval over the runs and the mean of their own intervals.
    """
    together, number = total(runs, "runs"), len(runs)
    energy = together.energy
    if energy is not None:
        over_runs = mean([run.energy.value for run in runs if run.energy is not None])
        lows = (over_runs.low, None if energy.low is None else energy.low / number)
        highs = (over_runs.high, None if energy.high is None else energy.high / number)
        low, high = min(_known(lows), default=None), max(_known(highs), default=None)
        energy = Estimate(over_runs.value, low, high)
    time_s = None if together.time_s is None else together.time_s / number
    return replace(together, energy=energy, time_s=time_s)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _common(reasons: Sequence[str], of: int, what: str) -> str | None:
    """Why several parts have no energy together, or None if they have one."""
    if not reasons:
        return None
    if len(reasons) == of and len(set(reasons)) == 1:
        return reasons[0]
    return f"{len(reasons)} of {of} {what} have no energy; the first of them: {reasons[0]}"


def _share(parts: Sequence[DeviceEnergy]) -> float | None:
    """The share over all parts, weighted by energy or else time; None if one is unknown."""
    shares = _known(each.share for each in parts)
    energies_j = [each.energy.value for each in parts if each.energy is not None]
    if len(shares) < len(parts):
        return None
    known = len(energies_j) == len(parts)
    return fmean(shares, energies_j if known else _known(each.time_s for each in parts))
