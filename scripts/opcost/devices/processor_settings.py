"""The highest frequency that Linux allows the cores: its range, setting and restoring (cpufreq)."""

import os
from collections.abc import Iterator
from pathlib import Path

from opcost.devices.point_record import PointRecord, this_boot
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
        known = sorted(FOLDER.glob("policy*"), key=lambda path: (len(path.name), path))
        self._policies = [policy for policy in known if first_line(policy / _SET)]

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
        if not self._policies:
            raise OpcostError(
                f"max_frequency_mhz cannot be set: {FOLDER} has no policy, as in virtual machines. "
                "Leave it out of the target"
            )
        least = max(
            _khz(policy, name) for policy in self._policies for name in (_LEAST, _KEPT_ABOVE)
        )
        most = min(_khz(policy, _MOST) for policy in self._policies)
        if not least <= 1000 * point.max_frequency_mhz <= most:
            raise OpcostError(
                f"max_frequency_mhz is {point.max_frequency_mhz}; the cores allow "
                f"{least / 1000:g} to {most / 1000:g}: choose a frequency among these"
            )

    def record(self, point: OperatingPoint, process: int) -> PointRecord:
        """A record of the present frequencies."""
        present = {policy.name: _khz(policy, _SET) for policy in self._policies}
        return PointRecord(this_boot(), process, str(point), max_frequencies_khz=present)

    def set(self, point: OperatingPoint, record: PointRecord) -> Iterator[PointRecord]:
        """Set a point. Yields the record to restore if the next step fails.

        Raises OpcostError if a frequency cannot be set, or reads back otherwise.
        """
        yield record
        if point.max_frequency_mhz is not None:
            for policy in self._policies:
                self._set(policy, 1000 * point.max_frequency_mhz)

    def restore(self, record: PointRecord) -> list[str]:
        """Restore the settings of a record. Returns a note for each policy that is gone, or whose
        cores are offline. Raises OpcostError if another one cannot be restored, after the rest.
        """
        faults, notes = [], []
        for name, khz in (record.max_frequencies_khz or {}).items():
            policy = FOLDER / name
            if not first_line(policy / _SET):
                notes.append(
                    f"{policy} is gone, or its cores are offline, and is not restored: if "
                    f"they come back, check that it allows {khz / 1000:g} MHz (cpupower "
                    "frequency-info)"
                )
                continue
            try:
                if _khz(policy, _SET) != khz:  # it may not have been changed
                    _check_allowed(policy, khz)
                    self._set(policy, khz)
            except OpcostError as error:
                faults.append(str(error))
        if faults:
            raise OpcostError("; ".join(faults))
        return notes

    def _set(self, policy: Path, khz: int) -> None:
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


def max_frequency_mhz() -> float | None:
    """The highest frequency that Linux allows this process's cores; None if it is unknown."""
    known = {
        int(core): first_line(policy / _SET)
        for policy in FOLDER.glob("policy*")
        for core in first_line(policy / "affected_cpus").split()
    }
    found = [known[core] for core in os.sched_getaffinity(0) if known.get(core, "").isdigit()]
    return max(map(int, found)) / 1000 if found else None


def _check_allowed(policy: Path, khz: int) -> None:
    least, most = _khz(policy, _LEAST), _khz(policy, _MOST)
    if not least <= khz <= most:
        raise OpcostError(
            f"{policy} allows {least} to {most} kHz, and the file says that {khz} was set before. "
            "If it is damaged, delete it and set the frequency (cpupower frequency-set --max)"
        )


def _khz(policy: Path, name: str) -> int:
    text = first_line(policy / name)
    if not text.isdigit():
        raise OpcostError(
            f"max_frequency_mhz cannot be set: {policy / name} says {text!r}, no frequency. Leave "
            "it out of the target"
        )
    return int(text)
