"""The processor as a device."""

import ctypes
import math
import mmap
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter  # bound here: a model may replace the one in `time`
from typing import Any

import torch

from opcost.devices import machine
from opcost.devices.device import BlockTime, Device, OutOfMemory, nothing
from opcost.devices.disturbance import CoreWatch, Watch, find_baseline_s
from opcost.devices.kinds import KINDS
from opcost.devices.memory_placement import asks_for_huge_pages, free_bytes
from opcost.devices.processor_settings import max_frequency_mhz
from opcost.memory import limited_to

_HIGHEST_HZ = 6.5e9
"""No core has a higher clock. Linux may report it without the boost."""


class CpuDevice(Device):
    """The processor, with the number of threads that the target gives."""

    kind = KINDS["cpu"]
    name = "cpu"
    torch_device = torch.device("cpu")
    busy_matrix = 256
    uuid = None

    def __init__(self, index: int = 0) -> None:
        self.model_name = machine.processor_name()
        self.last_level_cache_bytes = machine.last_level_cache_bytes()
        self.core_cache_bytes = machine.core_cache_bytes()
        self.allocator = "system default"

    def prepare(self) -> None:
        """Make subnormal numbers zero, and glibc keep freed memory."""
        # ASSUME subnormal numbers, which are slow, come from random weights, not trained ones.
        torch.set_flush_denormal(True)
        if _keep_freed_memory():
            self.allocator = "keeps freed memory"

    @staticmethod
    def count() -> int:
        """1: all processors together are one device."""
        return 1

    def baseline_s(self) -> float:
        """Time the sentinel for some seconds."""
        return find_baseline_s()

    def watch(self, baseline_s: float | None) -> Watch:
        """A watch of the core that this process runs on."""
        return CoreWatch(self.baseline_s() if baseline_s is None else baseline_s)

    def setup(self) -> dict[str, Any]:
        """The highest frequency that Linux allows the cores."""
        return {"max_frequency_mhz": max_frequency_mhz()}

    def most_flops_per_s(self, dtype: str) -> float:
        """Two multiply-adds of 512 bits per thread and cycle; matrix units (AMX) for 16 bits or
        fewer. Infinite for other architectures, because some are faster.
        """
        if platform.machine() not in ("x86_64", "AMD64"):
            return math.inf
        per_cycle = {"float64": 32, "complex128": 32, "float32": 64, "complex64": 64}
        return torch.get_num_threads() * _HIGHEST_HZ * per_cycle.get(dtype, 4096)

    def free_memory_bytes(self) -> int:
        """MemAvailable of Linux, within the limit of the control group and of a NUMA node."""
        return free_bytes()

    def within_free_memory(self) -> AbstractContextManager[None]:
        """Limit this process: Linux overcommits memory, and would kill it at the first use."""
        return limited_to(free_bytes())

    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Map with MAP_POPULATE, five times faster than touching each page; huge pages are few, so
        they are touched.
        """
        size, huge = elements * dtype.itemsize, asks_for_huge_pages()
        populated = 0 if huge else getattr(mmap, "MAP_POPULATE", 0)
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populated)
        except OSError as error:
            raise OutOfMemory(f"{size / 2**20:.0f} MiB cannot be mapped: {error}") from error
        if huge:
            memory.madvise(mmap.MADV_HUGEPAGE)
            torch.frombuffer(memory, dtype=torch.uint8)[:: mmap.PAGESIZE] = 0
        return torch.frombuffer(memory, dtype=dtype)

    def synchronise(self) -> None:
        """Does nothing: operators are synchronous."""

    def mark(self) -> float:
        """The monotonic clock."""
        return perf_counter()

    def between_s(self, marks: Sequence[tuple[float, float]]) -> list[float]:
        """Differences of the monotonic clock."""
        return [after - before for before, after in marks]

    def time(self, work: Callable[[], None], lead: Callable[[], None] = nothing) -> BlockTime:
        """Seconds of the monotonic clock."""
        lead()
        start = perf_counter()
        work()
        seconds = perf_counter() - start
        return BlockTime(seconds, seconds)

    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Run `work` to its end."""
        work()
        return lambda: True


def _keep_freed_memory() -> bool:
    """Make glibc keep freed memory for the next operator. Returns False without glibc.

    By default, glibc may return large blocks to the system, depending on the layout of the heap;
    page faults when they are allocated again made one convolution four times slower.
    """
    trim_threshold, mmap_max = -1, -4
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc.mallopt(trim_threshold, -1) == 1 and libc.mallopt(mmap_max, 0) == 1
    except (OSError, AttributeError):
        return False
