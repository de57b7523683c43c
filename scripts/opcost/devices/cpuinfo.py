"""What Linux says of the processor: its name and its caches."""

import platform
from pathlib import Path


def processor_name() -> str:
    """As /proc/cpuinfo names it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cache_sizes() -> dict[int, int]:
    """Bytes of the data cache at each level, for the first core."""
    sizes = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "type").read_text().strip() != "Instruction":
            kibibytes = int((index / "size").read_text().strip().removesuffix("K"))
            sizes[int((index / "level").read_text())] = kibibytes * 1024
    return sizes


def last_level_cache_bytes() -> int | None:
    """Of the last cache before memory; on a shared machine, other guests use it too."""
    sizes = cache_sizes()
    return sizes[max(sizes)] if sizes else None


def core_cache_bytes() -> int:
    """Of the second level; 0 where Linux lists none."""
    return cache_sizes().get(2, 0)
