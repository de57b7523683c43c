"""The energy counters of a processor (RAPL), read through Linux's powercap files.

A counter covers a whole package or its memory, including idle cores and other processes. AMD's
packages appear under the same names (Linux, Documentation/power/powercap). Packages and memory
together are the processor. Other counters are parts of a package (`core`, `uncore`) or contain all
packages (`psys`): they have meters of their own, and are never added.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from opcost.energy.meter import DeviceState, Meter, MeterUnavailable, plausible_w
from opcost.energy.sensor import Sensor
from opcost.files import first_line

_ROOT = Path("/sys/class/powercap")
_REMEDY = (
    "only root may read energy_uj since Linux 5.10: "
    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj "
    "/sys/class/powercap/intel-rapl:*:*/energy_uj, "
    "or permanently by the udev rule "
    """SUBSYSTEM=="powercap", RUN+="/bin/sh -c 'chmod a+r /sys/%p/energy_uj'" """
).strip()

_STEP_S = 0.1
"""Counters are updated about every millisecond, which is 1 % of this interval."""

_MOST_W = 5_000
"""ASSUME no package draws more: Linux expects counters of 262 kJ to last at least a minute
(drivers/powercap/intel_rapl_common.c), which is 4,400 W."""

_LASTING_W = 1_000
"""ASSUME no package draws more for the time in which a counter wraps around, 65 to 262 s."""

_INSIDE = ("core", "uncore")
"""Parts of a package: all of its cores; other units, mostly integrated graphics."""

_AROUND = "psys"
"""The platform: `psys`, or `psys-1` where package 1 holds its counter (Linux,
drivers/powercap/intel_rapl_common.c). The computer's maker decides which components it covers."""


class RaplMeter(Meter):
    """Power of all packages and their memory together, or of a part that `rapl_parts` lists.

    Power is the mean since the previous reading. `root` is the folder of the powercap files,
    `now_s` a clock in seconds. Raises MeterUnavailable if counters are missing or unreadable.
    """

    assumed = Sensor(
        refresh_s=_STEP_S,
        averaging_s=_STEP_S,
        counter_refresh_s=0.001,
        correlated_share=0.0,
        source="powercap",
    )
    reads_since_last = True
    shared_by_time = True

    def __init__(
        self,
        root: Path = _ROOT,
        now_s: Callable[[], float] = time.monotonic,
        part: str | None = None,
    ) -> None:
        self._now_s = now_s
        self.name = "rapl" if part is None else f"rapl_{part}"
        self.overlap = part and _overlap(part)
        self._domains = _whole(root) if part is None else _part(root, part)
        self.missing = {
            name: "RAPL counters report energy only"
            for name in DeviceState.__dataclass_fields__
            if name != "missing"
        }
        if part is None:
            self.missing |= {
                f"memory of {package.name}": "this processor has no counter for its memory"
                for package in _packages(root)
                if not any(domain.parent == package for domain in self._domains)
            }
        self._last_uj = {domain: _read(domain / "energy_uj") for domain in self._domains}
        self._ranges_uj = {
            domain: _read(domain / "max_energy_range_uj") for domain in self._domains
        }
        self._total_j = 0.0
        self._read_s = self._now_s()
        self._previous = (self._now_s(), 0.0)

    def power_w(self) -> float:
        """The mean power in watts since the previous call, or since the meter was opened."""
        energy_j, now_s = self.counter_j(), self._now_s()
        (before_s, before_j), self._previous = self._previous, (now_s, energy_j)
        if now_s <= before_s:
            raise MeterUnavailable("two RAPL readings at the same time give no power")
        return plausible_w((energy_j - before_j) / (now_s - before_s))

    def counter_j(self) -> float:
        """Joules since the meter was opened, or since a counter was reset, as by a suspend.

        A counter that decreased has wrapped around once, if a package can draw that energy in the
        time. One that was not read for so long that it may have wrapped around unseen counts as
        reset.
        """
        now_s = self._now_s()
        since_s = now_s - self._read_s
        for domain, last_uj in self._last_uj.items():
            now_uj, range_uj = _read(domain / "energy_uj"), self._ranges_uj[domain]
            spent_uj = (now_uj - last_uj) % range_uj
            is_sure = since_s * _LASTING_W * 1e6 < range_uj or since_s < _STEP_S
            if is_sure and spent_uj <= _MOST_W * max(since_s, _STEP_S) * 1e6:
                self._total_j += spent_uj / 1e6
            else:
                self._total_j = 0.0
            self._last_uj[domain] = now_uj
        self._read_s = now_s  # not reached if a counter could not be read
        return self._total_j


def rapl_parts(root: Path = _ROOT) -> list[str]:
    """The counters in addition to those of the whole processor: parts of packages, the platform."""
    inside = [name for name in _INSIDE if _inside(_packages(root), name)]
    around = {first_line(path / "name") for path in _zones(root)}
    return [*inside, *sorted(label for label in around if label.startswith(_AROUND))]


def _overlap(part: str) -> str:
    relation = "contains" if part.startswith(_AROUND) else "is contained in"
    return f"{relation} cpu: do not add the two"


def _whole(root: Path) -> list[Path]:
    """The folders of all packages and their memory."""
    packages = _packages(root)
    if not packages:
        raise MeterUnavailable(
            f"no energy sensor: {root} lists no RAPL package (virtual machines hide them; the "
            "kernel module is intel_rapl_common)"
        )
    return [*packages, *_inside(packages, "dram")]


def _part(root: Path, part: str) -> list[Path]:
    """The folders of a part in all packages, or the folder of the platform."""
    packages = _packages(root)
    wanted = len(packages) if part in _INSIDE else 1
    if part in _INSIDE:
        found = _inside(packages, part)
    else:
        found = [path for path in _zones(root) if first_line(path / "name") == part]
    if len(found) != wanted:
        raise MeterUnavailable(
            f"{root} lists {len(found)} counters named {part}, not {wanted}: a sum of them is not "
            f"the energy of {part}"
        )
    return found


def _packages(root: Path) -> list[Path]:
    return [path for path in _zones(root) if first_line(path / "name").startswith("package")]


def _zones(root: Path) -> list[Path]:
    """The folders of top-level domains: packages and platforms."""
    found = sorted(root.glob("intel-rapl:*")) if root.is_dir() else []
    return [path for path in found if path.name.count(":") == 1]


def _inside(packages: Sequence[Path], label: str) -> list[Path]:
    """The folders of the packages' domains with a label."""
    return [
        domain
        for package in packages
        for domain in sorted(package.glob(f"{package.name}:*"))
        if first_line(domain / "name") == label
    ]


def _read(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except PermissionError as error:
        # Without the path: the reason is the same for all counters.
        raise MeterUnavailable(f"RAPL: permission denied: {_REMEDY}") from error
    except (OSError, ValueError) as error:
        raise MeterUnavailable(f"{path} cannot be read: {error}") from error
