"""The processor's name and cache sizes, from Linux."""

import platform
from pathlib import Path

from opcost.files import first_line

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def processor_name() -> str:
    """The model name in /proc/cpuinfo, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cache_sizes() -> dict[int, int]:
    """Level -> bytes of the first core's data caches, as far as Linux lists them."""
    sizes = {}
    for index in sorted(_CACHES.glob("index*")):
        kind, level, size = (first_line(index / name) for name in ("type", "level", "size"))
        number, unit = size[:-1], _UNITS.get(size[-1:])
        if kind != "Instruction" and level.isdigit() and number.isdigit() and unit:
            sizes[int(level)] = int(number) * unit
    return sizes


def last_level_cache_bytes() -> int | None:
    """Size of the last-level cache, or None; on a shared machine, other guests use it too."""
    sizes = cache_sizes()
    return sizes[max(sizes)] if sizes else None


def core_cache_bytes() -> int:
    """Size of the second-level cache; 0 if Linux lists none."""
    return cache_sizes().get(2, 0)
