"""The processor as a device."""

import ctypes
import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter  # bound here: a model may replace the one in `time`

import torch

from opcost.devices import cpuinfo
from opcost.devices.device import BatchTime, Device, OutOfMemory
from opcost.devices.disturbance import CoreWatch, Watch, find_quiet_s
from opcost.devices.kinds import KINDS
from opcost.memory import free_bytes, limited_to_free_bytes


class CpuDevice(Device):
    """The processor, with the number of threads that the target gives."""

    kind = KINDS["cpu"]
    name = "cpu"
    torch_device = torch.device("cpu")
    busy_matrix = 256

    def __init__(self, index: int = 0) -> None:
        # ASSUME random weights make subnormal numbers that trained ones would not; they are slow.
        torch.set_flush_denormal(True)
        self.allocator = "keeps freed memory" if _keep_freed_memory() else "system default"

    @staticmethod
    def count() -> int:
        """All processors together are one device."""
        return 1

    def quiet_s(self) -> float:
        """By timing the sentinel for some seconds."""
        return find_quiet_s()

    def watch(self, quiet_s: float | None) -> Watch:
        """Of the core that this process runs on."""
        return CoreWatch(self.quiet_s() if quiet_s is None else quiet_s)

    @property
    def model_name(self) -> str:
        """As Linux names it, else the architecture."""
        return cpuinfo.processor_name()

    @property
    def uuid(self) -> str | None:
        """A processor has none."""
        return None

    @property
    def last_level_cache_bytes(self) -> int | None:
        """As Linux lists it; on a shared machine, other guests use it too."""
        return cpuinfo.last_level_cache_bytes()

    @property
    def core_cache_bytes(self) -> int:
        """The second level, as Linux lists it."""
        return cpuinfo.core_cache_bytes()

    def free_memory_bytes(self) -> int:
        """As Linux estimates it (MemAvailable), within a control group's limit."""
        return free_bytes()

    def within_free_memory(self) -> AbstractContextManager[None]:
        """By a limit of this process: else Linux kills it when it touches what it was promised."""
        return limited_to_free_bytes()

    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Mapped with MAP_POPULATE: five times faster than touching page after page."""
        size = elements * dtype.itemsize
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        try:
            memory = mmap.mmap(-1, size, flags=flags)
        except OSError as error:
            raise OutOfMemory(f"{size / 2**20:.0f} MiB cannot be mapped: {error}") from error
        return torch.frombuffer(memory, dtype=dtype)

    def synchronise(self) -> None:
        """Nothing to wait for: operators return when they are done."""

    def time(self, work: Callable[[], None]) -> BatchTime:
        """Seconds of the monotonic clock."""
        start = perf_counter()
        work()
        seconds = perf_counter() - start
        return BatchTime(seconds, seconds)

    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Run it: a processor's work is done when the call returns."""
        work()
        return lambda: True


def _keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next operator, as a process that has run for long does.

    By default it gives large blocks back to the system, or does not, as the heap happens to lie;
    the page faults of getting them anew made one convolution four times slower. False where there
    is no glibc.
    """
    trim_threshold, mmap_max = -1, -4
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc.mallopt(trim_threshold, -1) == 1 and libc.mallopt(mmap_max, 0) == 1
    except (OSError, AttributeError):
        return False
