"""Where work runs: how to wait for it, time it, and what it is."""

import hashlib
import mmap
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from opcost.disturbance import CoreWatch, NoWatch, Watch, find_quiet_s
from opcost.errors import OpcostError
from opcost.heap import keep_freed_memory
from opcost.study import Target


class OutOfMemory(Exception):
    """Something does not fit into the device's memory."""


@dataclass(frozen=True)
class BatchTime:
    """One timed batch, in seconds.

    `device_s` is how long the device worked on it, `enqueue_s` how long the host took to ask for
    it; on a CPU they are one.
    """

    device_s: float
    enqueue_s: float


class Pending(Protocol):
    """Work that was started."""

    def done(self) -> bool:
        """Whether the device has finished it."""


class Device(ABC):
    """A device that operators run on."""

    name: str
    torch_device: torch.device
    allocator: str

    @abstractmethod
    def quiet_s(self) -> float | None:
        """What the sentinel takes here when nothing disturbs; None if nothing can.

        Takes seconds to find out, and so is found out once for a study.
        """

    @abstractmethod
    def watch(self, quiet_s: float | None) -> Watch:
        """A watch for disturbances, given what `quiet_s` found."""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The product name."""

    @property
    @abstractmethod
    def uuid(self) -> str | None:
        """The device's own identifier, or None where it has none."""

    @property
    def uuid_hash(self) -> str | None:
        """A hash of the identifier, so that records tell devices apart and name none."""
        return hashlib.sha256(self.uuid.encode()).hexdigest()[:16] if self.uuid else None

    @property
    @abstractmethod
    def last_level_cache_bytes(self) -> int | None:
        """Size of the last cache before memory, or None if it cannot be found out."""

    @property
    @abstractmethod
    def core_cache_bytes(self) -> int:
        """Size of the largest cache of a core's own; 0 where none holds data between operators."""

    @abstractmethod
    def free_memory_bytes(self) -> int:
        """Memory that can be allocated now."""

    @abstractmethod
    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A flat, uninitialised tensor whose memory is really there."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def time(self, work: Callable[[], None]) -> BatchTime:
        """Run `work` and time it between two synchronised readings."""

    @abstractmethod
    def start(self, work: Callable[[], None]) -> Pending:
        """Start `work`, and do not wait for it where the device can work by itself."""


class CpuDevice(Device):
    """The processor, with the number of threads that the target gives."""

    name = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        # ASSUME random weights make subnormal numbers that trained ones would not; they are slow.
        torch.set_flush_denormal(True)
        self.allocator = "keeps freed memory" if keep_freed_memory() else "system default"

    def quiet_s(self) -> float:
        """By timing the sentinel for some seconds."""
        return find_quiet_s()

    def watch(self, quiet_s: float | None) -> Watch:
        """Of the core that this process runs on."""
        return CoreWatch(self.quiet_s() if quiet_s is None else quiet_s)

    @property
    def model_name(self) -> str:
        """As /proc/cpuinfo names it, else the architecture."""
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            return platform.machine()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.machine()

    @property
    def uuid(self) -> str | None:
        """A processor has none."""
        return None

    @property
    def last_level_cache_bytes(self) -> int | None:
        """As Linux lists it; on a shared machine, other guests use it too."""
        sizes = _cache_sizes()
        return sizes[max(sizes)] if sizes else None

    @property
    def core_cache_bytes(self) -> int:
        """The second level, as Linux lists it."""
        return _cache_sizes().get(2, 0)

    def free_memory_bytes(self) -> int:
        """As Linux estimates it (MemAvailable), within a control group's limit."""
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) * 1024, _control_group_room())
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

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
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        return BatchTime(seconds, seconds)

    def start(self, work: Callable[[], None]) -> Pending:
        """Run it: a processor's work is done when the call returns."""
        work()
        return _Done()


class CudaDevice(Device):
    """An NVIDIA GPU."""

    allocator = "PyTorch's caching allocator"

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(index)
        self._properties = torch.cuda.get_device_properties(index)

    def quiet_s(self) -> None:
        """No tenant shares it."""

    def watch(self, quiet_s: float | None) -> Watch:
        """No tenant shares it."""
        return NoWatch()

    @property
    def model_name(self) -> str:
        """As the driver names it."""
        return self._properties.name

    @property
    def uuid(self) -> str | None:
        """As NVML spells it, `GPU-...`."""
        return f"GPU-{self._properties.uuid}"

    @property
    def last_level_cache_bytes(self) -> int | None:
        """The L2 cache."""
        return int(self._properties.L2_cache_size)

    @property
    def core_cache_bytes(self) -> int:
        """Multiprocessors keep nothing from one kernel to the next."""
        return 0

    def free_memory_bytes(self) -> int:
        """What the driver can still give."""
        return torch.cuda.mem_get_info(self.torch_device)[0]

    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """From PyTorch's caching allocator."""
        return torch.empty(elements, dtype=dtype, device=self.torch_device)

    def synchronise(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize(self.torch_device)

    def time(self, work: Callable[[], None]) -> BatchTime:
        """Seconds between two CUDA events around the work."""
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        self.synchronise()
        start = time.perf_counter()
        begin.record()
        work()
        end.record()
        enqueue_s = time.perf_counter() - start
        end.synchronize()
        return BatchTime(begin.elapsed_time(end) / 1e3, enqueue_s)

    def start(self, work: Callable[[], None]) -> Pending:
        """Enqueue it. Blocks while the device's queue (about a thousand launches) is full."""
        work()
        event = torch.cuda.Event()
        event.record()
        return _Recorded(event)


class _Done:
    def done(self) -> bool:
        return True


class _Recorded:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        return bool(self._event.query())


def open_device(target: Target) -> Device:
    """The target's device, set to the target's operating point.

    Raises OpcostError when it does not exist here.
    """
    torch.set_num_threads(target.threads)
    torch.backends.cuda.matmul.allow_tf32 = target.tf32
    torch.backends.cudnn.allow_tf32 = target.tf32
    if target.device == "cpu" or (target.device == "auto" and not torch.cuda.is_available()):
        return CpuDevice()
    if not torch.cuda.is_available():
        raise OpcostError(
            f"the target asks for device {target.device!r}, but torch {torch.__version__} finds no "
            "CUDA device here. Use device cpu or auto, or run on a machine with an NVIDIA GPU"
        )
    index = int(target.device.partition(":")[2] or 0) if target.device != "auto" else 0
    if index >= torch.cuda.device_count():
        raise OpcostError(
            f"the target asks for device {target.device!r}; there are {torch.cuda.device_count()} "
            f"CUDA devices here, cuda:0 to cuda:{torch.cuda.device_count() - 1}"
        )
    return CudaDevice(index)


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data cache at each level, for the first core."""
    sizes = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "type").read_text().strip() != "Instruction":
            kibibytes = int((index / "size").read_text().strip().removesuffix("K"))
            sizes[int((index / "level").read_text())] = kibibytes * 1024
    return sizes


def _control_group_room() -> int:
    limit_file = Path("/sys/fs/cgroup/memory.max")
    used_file = Path("/sys/fs/cgroup/memory.current")
    try:
        limit, used = limit_file.read_text().strip(), int(used_file.read_text())
    except OSError:
        return 2**63
    return 2**63 if limit == "max" else max(0, int(limit) - used)
