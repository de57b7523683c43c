"""An NVIDIA GPU as a device."""

from collections.abc import Callable
from time import perf_counter  # bound here: a model may replace the one in `time`
from typing import Any

import torch

from opcost.devices.device import BatchTime, Device
from opcost.devices.disturbance import NoWatch, Watch
from opcost.devices.gpu_state import driver_version, gpu_state
from opcost.devices.kinds import KINDS


class CudaDevice(Device):
    """An NVIDIA GPU."""

    kind = KINDS["cuda"]
    allocator = "PyTorch's caching allocator"
    busy_matrix = 4096

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(index)
        self._properties = torch.cuda.get_device_properties(index)

    @staticmethod
    def count() -> int:
        """Those that CUDA lists; CUDA_VISIBLE_DEVICES hides some."""
        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def baseline_s(self) -> None:
        """None: no tenant shares the GPU."""

    def watch(self, baseline_s: float | None) -> Watch:
        """None is needed."""
        return NoWatch()

    @property
    def model_name(self) -> str:
        """The driver's name for it."""
        return self._properties.name

    @property
    def uuid(self) -> str | None:
        """In NVML's form, `GPU-...`."""
        return f"GPU-{self._properties.uuid}"

    def software(self) -> dict[str, str | None]:
        """The driver, and the CUDA and cuDNN that PyTorch uses."""
        return {
            "driver_version": driver_version(),
            "cuda_version": torch.version.cuda,
            "cudnn_version": str(torch.backends.cudnn.version()),
        }

    def setup(self) -> dict[str, Any]:
        """Modes and clocks, from NVML."""
        return gpu_state(self.uuid) if self.uuid else {}

    @property
    def last_level_cache_bytes(self) -> int | None:
        """The L2 cache."""
        return int(self._properties.L2_cache_size)

    @property
    def core_cache_bytes(self) -> int:
        """0: multiprocessors keep no data between kernels."""
        return 0

    def free_memory_bytes(self) -> int:
        """Free memory, from the driver."""
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

    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Enqueue it. Blocks while the device's queue (about a thousand launches) is full."""
        work()
        event = torch.cuda.Event()
        event.record()
        return event.query
