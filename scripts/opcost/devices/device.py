"""The interface of devices: timing work, allocating memory, describing, opening."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import torch

from opcost.devices.disturbance import Watch
from opcost.devices.kinds import KINDS, Kind, kind_of
from opcost.devices.lock import measure_here
from opcost.devices.machine import hashed_uuid
from opcost.errors import OpcostError
from opcost.target import SETTINGS, Target


def nothing() -> None:
    """Do nothing, as `work`."""


class OutOfMemory(Exception):
    """An allocation does not fit into the device's memory."""


class NotCapturable(Exception):
    """Work cannot be repeated without its host."""


@dataclass(frozen=True)
class BlockTime:
    """Seconds of a block of iterations: the device's time, and the host's time to launch it.

    Both are equal on a processor. If the device `waited` for its host, its time includes the wait.
    """

    device_s: float
    host_s: float
    waited: bool = False


class Device(ABC):
    """A device that runs operators. A matrix product of size `busy_matrix` saturates it.

    `model_name` is the product name, `core_cache_bytes` the size of a core's private cache: 0 if it
    keeps no data between operators. None is unknown.
    """

    kind: Kind
    name: str
    torch_device: torch.device
    allocator: str
    busy_matrix: int
    model_name: str
    uuid: str | None
    last_level_cache_bytes: int | None
    core_cache_bytes: int

    @abstractmethod
    def __init__(self, index: int) -> None: ...

    def prepare(self) -> None:  # noqa: B027
        """Set this process to measure only operators; by default, there is nothing to set."""

    @staticmethod
    @abstractmethod
    def count() -> int:
        """The number of devices of this kind that PyTorch finds."""

    @staticmethod
    def fault() -> str | None:
        """Why PyTorch cannot use this machine's devices of this kind; None if it can."""
        return None

    def baseline_s(self) -> float | None:
        """The sentinel's time on the undisturbed device; None if nothing can disturb it.

        Measuring it takes seconds, so each study does it once.
        """
        return None

    def watch(self, baseline_s: float | None) -> Watch:
        """A watch for interference on the device, which nothing disturbs unless it is shared."""
        return Watch()

    def host_watch(self, baseline_s: float | None) -> Watch:
        """A watch for interference with the host that launches work on it."""
        return self.watch(baseline_s)

    @property
    def uuid_hash(self) -> str | None:
        """A hash of the identifier, so that rows do not contain the identifier."""
        return hashed_uuid(self.uuid) if self.uuid else None

    def software(self) -> dict[str, str | None]:
        """Columns for the versions of driver and libraries, if the device has any."""
        return {}

    def setup(self) -> dict[str, Any]:
        """Columns for modes and requested clocks, if the device has any."""
        return {}

    @abstractmethod
    def most_flops_per_s(self, dtype: str) -> float:
        """An upper bound of the rate of matrix products of this dtype."""

    @abstractmethod
    def free_memory_bytes(self) -> int:
        """Memory that can be allocated now."""

    def within_free_memory(self) -> AbstractContextManager[None]:
        """A context in which allocations beyond free memory fail."""
        return nullcontext()

    @abstractmethod
    def allocate(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A flat, uninitialised tensor in memory that is already mapped."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all work is done."""

    def hold_back(self, hold_s: float) -> Callable[[], bool]:
        """Delay the start of the following work by `hold_s`, if the host runs ahead of the device.
        Returns a function that returns whether the delay is over.
        """
        return lambda: False

    @abstractmethod
    def mark(self) -> Any:
        """Enqueue a mark: it records when the device reaches it."""

    @abstractmethod
    def between_s(self, marks: Sequence[tuple[Any, Any]]) -> list[float]:
        """Seconds between the marks of each pair; waits until all work is done."""

    @abstractmethod
    def time(self, work: Callable[[], None], lead: Callable[[], None] = nothing) -> BlockTime:
        """Run `lead`, then `work`, and time `work`, if possible without the device waiting for its
        host.
        """

    def time_in_use(self, lead: Callable[[], None], work: Callable[[], None]) -> BlockTime:
        """Run `lead`, then `work`, and time `work` at the pace at which the host launches it."""
        lead()
        return self.time(work)

    def capture(self, works: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        """Functions that repeat each piece of work without its host part.

        The work must have run before, and the pieces must not be repeated concurrently. Raises
        NotCapturable with the reason.
        """
        raise NotCapturable(f"{self.name} has no graphs")

    @abstractmethod
    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Start `work`, without waiting for it if the device is asynchronous.

        Returns a function that returns whether the device has finished.
        """


def open_device(target: Target) -> Device:
    """Open the target's device, and set this process to its cores and operating point.

    Raises OpcostError if the device does not exist here, or if PyTorch cannot use it: `auto` is
    the processor only where there is no GPU.
    """
    measure_here(target.device)
    for name, setting in SETTINGS.items():
        if setting.set_by:
            resolve_name(setting.set_by)(getattr(target, name))
    torch.set_num_threads(target.threads)
    torch.backends.cuda.matmul.allow_tf32 = target.tf32
    torch.backends.cudnn.allow_tf32 = target.tf32
    torch.backends.cudnn.benchmark = target.cudnn_benchmark
    device = find_device(target.device)
    device.prepare()
    return device


def find_device(name: str) -> Device:
    """A device of this machine, with this process as it is. Raises what `open_device` raises."""
    kind = kind_of(name)
    kinds = KINDS.values() if kind is None else (kind,)
    classes: list[type[Device]] = [resolve_name(each.implementation) for each in kinds]
    device_class = next(filter(_is_here, classes), None)
    if device_class is None:
        raise OpcostError(
            f"device {name!r} is requested, but torch {torch.__version__} finds no "
            f"{name.partition(':')[0].upper()} device here. Use device cpu or auto, or "
            "run on a machine with one"
        )
    kind_name, index = device_class.kind.name, int(name.partition(":")[2] or 0)
    if index >= (count := device_class.count()):
        raise OpcostError(
            f"device {name!r} is requested; there are {count} {kind_name.upper()} "
            f"devices here, {kind_name}:0 to {kind_name}:{count - 1}"
        )
    return device_class(index)


def _is_here(device_class: type[Device]) -> bool:
    """Whether there are devices of a kind. Raises OpcostError if PyTorch cannot use them."""
    if device_class.count():
        return True
    if fault := device_class.fault():
        raise OpcostError(fault)
    return False
