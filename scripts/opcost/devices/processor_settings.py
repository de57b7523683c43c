"""The highest frequency that Linux allows the cores: its range, setting and restoring (cpufreq)."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from opcost.errors import OpcostError
from opcost.files import first_line
from opcost.target import OperatingPoint

FOLDER = Path(os.environ.get("OPCOST_CPUFREQ", "/sys/devices/system/cpu/cpufreq"))
"""The folder of cpufreq's policies, each of which applies to some cores."""

_SET, _KEPT_ABOVE = "scaling_max_freq", "scaling_min_freq"
_LEAST, _MOST = "cpuinfo_min_freq", "cpuinfo_max_freq"
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_TOLERANCE_KHZ = 1000
_PERMISSION = (
    "Only root may do that, where the kernel's files can be written: run as root (sudo), in a "
    "container with --privileged. Or have the administrator set it (cpupower frequency-set "
    "--max), and leave it out of the target"
)


class Processor:
    """The online cores of this machine: Linux reports and sets nothing for others."""

    def __init__(self, _: str) -> None:
        known = sorted(FOLDER.glob("policy*"))
        self._policies = {policy.name: policy for policy in known if first_line(policy / _SET)}

    def temperature_c(self) -> float | None:
        """Degrees Celsius of the hottest core; None if Linux does not report it."""
        import psutil  # slow to import, and few jobs need the temperature

        found = psutil.sensors_temperatures()
        return max(
            (each.current for name in _SENSORS for each in found.get(name, [])), default=None
        )

    def check(self, point: OperatingPoint) -> None:
        """Raise OpcostError if the cores do not allow a point, or Linux has no limits of theirs."""
        if point.max_frequency_mhz is None:
            return
        policies = self._policies.values()
        if not policies:
            raise OpcostError(
                f"max_frequency_mhz cannot be set: {FOLDER} has no policy, as in virtual machines. "
                "Leave it out of the target"
            )
        least = max(_khz(policy, name) for policy in policies for name in (_LEAST, _KEPT_ABOVE))
        most = min(_khz(policy, _MOST) for policy in policies)
        if not least <= 1000 * point.max_frequency_mhz <= most:
            raise OpcostError(
                f"max_frequency_mhz is {point.max_frequency_mhz}; the cores allow "
                f"{least / 1000:g} to {most / 1000:g}: choose a frequency among these"
            )

    def present(self, _: str) -> dict[str, int]:
        """The present highest frequency of each policy in kHz."""
        return {name: _khz(policy, _SET) for name, policy in self._policies.items()}

    def set(self, name: str, value: float) -> None:
        """Set the highest frequency in MHz of all policies. Raises OpcostError if one cannot be
        set, or reads back otherwise.
        """
        before = self.present(name)
        try:
            for policy in self._policies.values():
                _write(policy, int(1000 * value))
        except OpcostError:
            self.restore(name, before, math.inf)
            raise

    def restore(self, _: str, before: Mapping[str, int], value: float) -> str | None:
        """Restore the frequencies of policies whose cores are online. Raises OpcostError if one
        cannot be restored, after the others. Returns a frequency above `value` that is not that
        `before`, and stays; one below may be Linux's own, for a hot processor.
        """
        faults, stays = [], None
        for name, khz in before.items():
            policy = self._policies.get(name)
            try:
                if policy and first_line(policy / _SET) and (now := _khz(policy, _SET)) != khz:
                    if now > 1000 * value + _TOLERANCE_KHZ:
                        stays = f"{now / 1000:g} MHz"
                    else:
                        _write(policy, khz)
            except OpcostError as error:
                faults.append(str(error))
        if faults:
            raise OpcostError("; ".join(faults))
        return stays


def max_frequency_mhz() -> float | None:
    """The highest frequency that Linux allows this process's cores; None if it is unknown."""
    known = {
        int(core): first_line(policy / _SET)
        for policy in FOLDER.glob("policy*")
        for core in first_line(policy / "affected_cpus").split()
    }
    found = [known[core] for core in os.sched_getaffinity(0) if known.get(core, "").isdigit()]
    return max(map(int, found)) / 1000 if found else None


def _write(policy: Path, khz: int) -> None:
    path = policy / _SET
    try:
        path.write_text(str(khz), encoding="ascii")
    except OSError as error:
        raise OpcostError(
            f"setting the highest frequency of the cores failed: {path}: {error.strerror}. "
            f"{_PERMISSION}"
        ) from error
    if abs(_khz(policy, _SET) - khz) > _TOLERANCE_KHZ:
        raise OpcostError(
            f"{path} was set to {khz} kHz, and reads {_khz(policy, _SET)}: choose a frequency "
            "that it keeps"
        )


def _khz(policy: Path, name: str) -> int:
    text = first_line(policy / name)
    if not text.isdigit():
        raise OpcostError(
            f"max_frequency_mhz cannot be set: {policy / name} says {text!r}, no frequency. Leave "
            "it out of the target"
        )
    return int(text)
