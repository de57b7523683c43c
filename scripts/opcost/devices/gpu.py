"""An NVIDIA GPU as a device."""

from collections.abc import Callable
from time import perf_counter  # bound here: a model may replace the one in `time`

import torch

from opcost.devices.device import BatchTime, Device, Pending
from opcost.devices.disturbance import NoWatch, Watch


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
        start = perf_counter()
        begin.record()
        work()
        end.record()
        enqueue_s = perf_counter() - start
        end.synchronize()
        return BatchTime(begin.elapsed_time(end) / 1e3, enqueue_s)

    def start(self, work: Callable[[], None]) -> Pending:
        """Enqueue it. Blocks while the device's queue (about a thousand launches) is full."""
        work()
        event = torch.cuda.Event()
        event.record()
        return _Recorded(event)


class _Recorded:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def done(self) -> bool:
        return bool(self._event.query())
