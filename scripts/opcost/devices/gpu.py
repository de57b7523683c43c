"""An NVIDIA GPU as a device."""

import os
from collections.abc import Callable, Sequence
from time import perf_counter, thread_time  # bound here: a model may replace those in `time`
from typing import Any

import torch

from opcost.devices.device import BlockTime, Device, NotCapturable, nothing
from opcost.devices.disturbance import ThreadWatch, Watch, elapsed_and_missed_s
from opcost.devices.gpu_settings import count_gpus, driver_version, gpu_state
from opcost.devices.kinds import KINDS
from opcost.errors import OpcostError
from opcost.text import counted

_REMEDY = "install a PyTorch build that fits, or set `device: cpu` to measure the processor"

_REFUSED = {
    "CUDA_LAUNCH_BLOCKING": "the host waits for each kernel, and times include launches",
    "NVIDIA_TF32_OVERRIDE": "it overrides the target's `tf32`",
}
_HOLDS, _PATIENT_HOLDS = 1.5, 4.0
"""The device is held back for this multiple of the launch time of the previous block; if that was
too short, of this block."""

_SHORTEST_HOLD_S, _LONGEST_HOLD_S = 1e-4, 0.5
_HIGHEST_HZ = 3.5e9
_MOST_CYCLES = 2**31 - 1
_NONE = "No CUDA GPUs are available"


class CudaDevice(Device):
    """An NVIDIA GPU."""

    kind = KINDS["cuda"]
    allocator = "PyTorch's caching allocator"
    busy_matrix = 4096
    core_cache_bytes = 0  # multiprocessors keep no data between kernels

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.torch_device = torch.device("cuda", index)
        for variable, effect in _REFUSED.items():
            value = os.environ.get(variable, "")
            if value and (variable, value) != ("CUDA_LAUNCH_BLOCKING", "0"):
                raise OpcostError(
                    f"{variable}={value} is set: {effect}. Unset it: unset {variable}"
                )
        self._hold_s, self._launching_s, self._cycles_per_s = _SHORTEST_HOLD_S, 0.0, 1e9
        try:
            torch.cuda.set_device(index)
            properties = torch.cuda.get_device_properties(index)
            torch.zeros(1, device=self.torch_device).add_(1).cpu()
        except RuntimeError as error:
            raise OpcostError(
                f"torch {torch.__version__} cannot use {_unusable(index, error)}"
            ) from error
        self.model_name, self.uuid = properties.name, f"GPU-{properties.uuid}"
        self.last_level_cache_bytes = int(properties.L2_cache_size)
        self._multiprocessors = properties.multi_processor_count

    @staticmethod
    def count() -> int:
        """The GPUs that CUDA lists; CUDA_VISIBLE_DEVICES hides some."""
        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    @staticmethod
    def fault() -> str | None:
        """PyTorch's error for GPUs that NVML finds."""
        gpus = count_gpus()
        if not gpus or (found := os.environ.get("CUDA_VISIBLE_DEVICES")) in ("", "-1"):
            return None
        try:
            torch.cuda.init()
            reason = _NONE
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0].partition(". Please")[0]
        if found is not None and reason == _NONE:
            return (
                f"CUDA_VISIBLE_DEVICES={found} is set, and torch {torch.__version__} finds none of "
                f"these GPUs; this machine has {gpus}. Correct it, or unset it"
            )
        return (
            f"torch {torch.__version__} cannot use the {counted(gpus, 'NVIDIA GPU')} of this "
            f"machine with driver {driver_version()}: {reason}. Update the driver, {_REMEDY}"
        )

    def host_watch(self, baseline_s: float | None) -> Watch:
        """A watch of the launching thread."""
        return ThreadWatch()

    def software(self) -> dict[str, str | None]:
        """Versions of the driver, and of the CUDA and cuDNN that PyTorch uses."""
        return {
            "driver_version": driver_version(),
            "cuda_version": torch.version.cuda,
            "cudnn_version": str(torch.backends.cudnn.version()),
        }

    def setup(self) -> dict[str, Any]:
        """Modes and clocks, from NVML."""
        return gpu_state(str(self.uuid))

    def most_flops_per_s(self, dtype: str) -> float:
        """The rate of the fastest multiprocessors up to Blackwell, of tensor cores for their
        dtypes, at a clock that no GPU reaches.
        """
        tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
        single = 4096 if tf32 else 256
        per_cycle = {"float64": 256, "complex128": 256, "float32": single, "complex64": single}
        most = self._multiprocessors * per_cycle.get(dtype, 32768)
        return _HIGHEST_HZ * most

    def free_memory_bytes(self) -> int:
        """Free memory, from the driver."""
        return torch.cuda.mem_get_info(self.torch_device)[0]

    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor from PyTorch's caching allocator."""
        return torch.empty(elements, dtype=dtype, device=self.torch_device)

    def synchronise(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize(self.torch_device)

    def hold_back(self, hold_s: float) -> Callable[[], bool]:
        """Enqueue a spinning kernel in the empty queue."""
        released = torch.cuda.Event()
        self.synchronise()
        torch.cuda._sleep(min(int(hold_s * self._cycles_per_s), _MOST_CYCLES))
        released.record()
        return released.query

    def mark(self) -> torch.cuda.Event:
        """A CUDA event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, marks: Sequence[tuple[torch.cuda.Event, torch.cuda.Event]]) -> list[float]:
        """Times of the device's clock, whose resolution is about half a microsecond."""
        self.synchronise()
        return [before.elapsed_time(after) / 1e3 for before, after in marks]

    def time(self, work: Callable[[], None], lead: Callable[[], None] = nothing) -> BlockTime:
        """Seconds between two CUDA events around the work, which a spinning kernel holds back until
        all of it is launched (as nvbench's blocking kernel).

        The device waits if work blocks its host: by waiting for the device, or by launching more
        than the queue holds. The host's time excludes the time in which other processes had its
        core.
        """
        block = self._behind(lead, work, self._hold_s)
        if block.waited:
            patient_s = max(_PATIENT_HOLDS * self._launching_s, 2 * self._hold_s)
            block = self._behind(lead, work, min(patient_s, _LONGEST_HOLD_S))
        if not block.waited:
            self._hold_s = max(_SHORTEST_HOLD_S, _HOLDS * self._launching_s)
        return block

    def _behind(
        self, lead: Callable[[], None], work: Callable[[], None], hold_s: float
    ) -> BlockTime:
        held, released, begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        cycles = min(int(hold_s * self._cycles_per_s), _MOST_CYCLES)
        self.synchronise()
        _, missed_s = elapsed_and_missed_s()  # slow, so it is read before the device is held
        held.record()
        torch.cuda._sleep(cycles)
        released.record()
        leads = perf_counter()
        lead()
        begin.record()
        start, ran = perf_counter(), thread_time()
        work()
        launched = perf_counter()
        waiting_s = launched - start - (thread_time() - ran)
        self._launching_s = launched - leads
        waited = released.query()
        end.record()
        # The thread also waits where its work sleeps; it missed its core outside the work, too.
        missed_s = min(waiting_s, elapsed_and_missed_s()[1] - missed_s)
        host_s = launched - start - max(missed_s, 0.0)
        end.synchronize()
        # An interruption between the two events makes the kernel seem to spin for longer.
        spinning_s = held.elapsed_time(released) / 1e3
        self._cycles_per_s = max(self._cycles_per_s, cycles / spinning_s)
        return BlockTime(begin.elapsed_time(end) / 1e3, host_s, waited)

    def time_in_use(self, lead: Callable[[], None], work: Callable[[], None]) -> BlockTime:
        """Seconds between two CUDA events around the work; the lead fills the queue before it."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # Created before the timed part, because the device may wait for that, too.
        stream = torch.cuda.current_stream(self.torch_device)
        end.record(stream)
        self.synchronise()
        lead()
        begin.record(stream)
        start = perf_counter()
        work()
        host_s = perf_counter() - start
        end.record(stream)
        end.synchronize()
        return BlockTime(begin.elapsed_time(end) / 1e3, host_s)

    def capture(self, works: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        """CUDA graphs of the work with a common memory pool."""
        stream = torch.cuda.Stream(self.torch_device)
        graphs: list[torch.cuda.CUDAGraph] = []
        self.synchronise()
        try:
            for work in works:
                graph = torch.cuda.CUDAGraph()
                pool = graphs[0].pool() if graphs else None
                with torch.cuda.stream(stream):
                    graph.capture_begin(pool)
                    try:
                        work()
                    finally:
                        graph.capture_end()
                graph.replay()
                graphs.append(graph)
            self.synchronise()
        except Exception as error:
            # Ending the capture then also fails, without the reason.
            cause = error.__context__ or error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            raise NotCapturable(f"not captured: {str(cause).splitlines()[0]}") from error
        return [graph.replay for graph in graphs]

    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Enqueue the work. Blocks while the queue (about a thousand launches) is full."""
        work()
        event = torch.cuda.Event()
        event.record()
        return event.query


def _unusable(index: int, error: RuntimeError) -> str:
    name, reason = f"cuda:{index}", str(error).splitlines()[0]
    if isinstance(error, torch.OutOfMemoryError):
        free = reason.partition(" Including")[0]
        return f"{name}: {free} End what else uses its memory: nvidia-smi lists it"
    if "no kernel image" not in reason:
        return f"{name}: {reason}. See what nvidia-smi says of it"
    major, minor = torch.cuda.get_device_capability(index)
    return (
        f"{name}, {torch.cuda.get_device_name(index)} of compute capability {major}.{minor}: "
        f"{reason}. It has kernels for {', '.join(torch.cuda.get_arch_list())}: {_REMEDY}"
    )
