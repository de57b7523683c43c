"""Where work runs: how to wait for it, time it, and what it is."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from opcost.devices.disturbance import Watch
from opcost.devices.kinds import Kind


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


class Device(ABC):
    """A device that operators run on. `busy_matrix` rows and columns of a product keep it busy."""

    kind: Kind
    name: str
    torch_device: torch.device
    allocator: str
    busy_matrix: int

    @abstractmethod
    def __init__(self, index: int) -> None: ...

    @staticmethod
    @abstractmethod
    def count() -> int:
        """How many of the kind PyTorch finds here."""

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

    def software(self) -> dict[str, str | None]:
        """Columns for driver and libraries beside PyTorch; none where it has no such."""
        return {}

    def setup(self) -> dict[str, Any]:
        """Columns for modes and clocks asked for; none where it has no such."""
        return {}

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

    def within_free_memory(self) -> AbstractContextManager[None]:
        """A context in which work that asks for more memory than is free fails."""
        return nullcontext()

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
    def start(self, work: Callable[[], None]) -> Callable[[], bool]:
        """Start `work`, and do not wait for it where the device can work by itself.

        Answers whether the device has finished it.
        """
