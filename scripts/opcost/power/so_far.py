"""The energy of a window that is not over, in constant time and memory."""

from dataclasses import replace

from opcost.power.device_energy import DeviceEnergy
from opcost.power.monitor import Monitor
from opcost.statistics import correlated_sum

_PART_S = 60.0
"""A part of this length is not evaluated again. Limits of parts add up, so the relative width of
the total's interval is that of such a part."""


class SoFar:
    """The energy of a monitor's devices since a time of the monotonic clock."""

    def __init__(self, monitor: Monitor, start_s: float) -> None:
        self._monitor, self._since_s = monitor, start_s
        self._before: dict[str, DeviceEnergy] = {}

    def energy(self, now_s: float) -> dict[str, DeviceEnergy]:
        """Energy up to a time, not before that of the last call. Waits as the monitor does."""
        latest = self._monitor.energy(self._since_s, now_s)
        found = {name: _total(self._before.get(name), each) for name, each in latest.items()}
        if now_s - self._since_s >= _PART_S:
            self._before, self._since_s = found, now_s
        return found


def _total(before: DeviceEnergy | None, latest: DeviceEnergy) -> DeviceEnergy:
    """The total of two parts; without energy for the reason of the first part that has none."""
    if before is None:
        return latest
    energies = [each.energy for each in (before, latest) if each.energy is not None]
    limits_j = [each.at_most_j for each in (before, latest) if each.at_most_j is not None]
    return replace(
        latest,
        energy=correlated_sum((1.0, each) for each in energies) if len(energies) == 2 else None,
        reason=before.reason or latest.reason,
        time_s=before.time_s + latest.time_s,
        at_most_j=sum(limits_j) if len(limits_j) == 2 else None,
        changes=before.changes + latest.changes,
        flags=tuple(dict.fromkeys((*before.flags, *latest.flags))),
    )
