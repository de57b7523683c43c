"""The energy and power of a device in a window, and the flags that qualify them."""

from dataclasses import dataclass
from typing import Self

from opcost.power.attribution import By
from opcost.statistics import Estimate

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


@dataclass(frozen=True)
class DeviceEnergy:
    """Joules of a device in a window with their 95 % interval, or None with the `reason`.

    `at_most_j` is an upper limit, if there is one. `changes` counts the sensor's changes in the
    window. `idle_w` is the idle power, if it is known. The interval excludes the error of the
    sensor's gain, `gain_uncertainty`. `overlap` says which other meter includes this energy.
    `share` is attributed to the user, `by` processor time or memory (attribution.py).
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
        """A device that is not read."""
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
        """Joules above idle, if the idle power is known."""
        if self.energy is None or self.idle_w is None:
            return None
        return self.energy.value - self.idle_w * self.time_s
