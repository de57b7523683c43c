"""A function of a user as a workload, which is called on copies of its arguments in turn."""

import copy
import itertools
import math
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from opcost.devices.device import Device
from opcost.devices.kinds import KINDS, kind_of
from opcost.errors import OpcostError
from opcost.measuring.operands import MEMORY_SHARE
from opcost.measuring.timing import calibrate, timer_of
from opcost.measuring.workload import footprint
from opcost.models.user_code import message
from opcost.text import scaled
from opcost.tuples.replay import tensors_in_tree
from opcost.values import shown

_BLOCKS = 40
"""The blocks of a run, if a call is shorter. Of blocks of 2 ms, some are not interrupted even where
three programs share a core."""

_TRIES = 5
_MOST_COPIES = 2**12
_LEAST_KERNEL_S = 1e-7
"""Shorter than any kernel, and longer than an iteration in a block that launches none."""


class Function:
    """A function as a workload, timed in blocks of `iterations`; `calls` are those in runs.

    The constructor calls it, and `places` are the devices of its results.
    """

    in_use = False

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        if not callable(function):
            raise OpcostError(
                f"{shown(function)}, a {type(function).__name__}, cannot be called: give a "
                "function and then its arguments, as in opcost.time(torch.mm, a, b)"
            )
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._function, self.iterations, self.calls = function, 1, 0
        self.notes: list[str] = []
        versions = _versions(args)
        with self._errors():
            found = function(*args)
        if isinstance(found, Generator | AsyncGenerator | Coroutine):
            if not isinstance(found, AsyncGenerator):
                found.close()
            raise OpcostError(
                f"{self.name} returned a {type(found).__name__}, which has done no work yet: "
                "consume it inside the function"
            )
        self.places = _places(found)
        if _versions(args) != versions:
            self.notes.append("it changes its arguments in place: each call finds other values")

    def begin(
        self, rotation: int, turns: Iterator[tuple[Any, ...]], device: Device, run_s: float
    ) -> None:
        """Take arguments from `turns`, and find how many iterations a block needs."""
        self.rotation, self._turns = rotation, turns
        self.timer = timer_of(self, device, run_s / _BLOCKS)
        self.first = self.block()
        if max(self.first) < run_s:  # an interrupted block has too few iterations
            self.iterations = max(calibrate(self.timer, run_s / _BLOCKS) for _ in range(_TRIES))
            self.first = min(self.block() for _ in range(_TRIES))
        if not device.kind.host_sets_pace and self.first[0] < _LEAST_KERNEL_S:
            raise OpcostError(
                f"{self.name} launches nothing on {device.name}: give the device that computes"
            )

    def run(self, iterations: int) -> None:
        """Call the function with the next arguments."""
        function = self._function
        with self._errors():
            for args in itertools.islice(self._turns, iterations):
                function(*args)

    def block(self) -> tuple[float, float]:
        """Seconds of a call on the device, and of the host to launch it, from a block."""
        block = self.timer.block(self.iterations)
        self.calls += self.iterations
        return block.device_s / self.iterations, block.host_s / self.iterations

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise OpcostError(
                f"{self.name} raised {type(error).__name__}: {message(error)}. Give a function and "
                "arguments that it can be called with again and again"
            ) from error


def copied(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[str]]:
    """A copy of arguments; or themselves, and why not."""
    reason = "no argument is a tensor"
    if tensors_in_tree(args):
        try:
            _bytes_of(args)
            return copy.deepcopy(args), []
        except Exception as error:
            reason = f"arguments cannot be copied: {message(error).partition('.')[0]}"
    return args, [f"warm cache instead of cold: {reason}"]


def copies(args: tuple[Any, ...], device: Device, notes: list[str]) -> list[tuple[Any, ...]]:
    """The arguments and copies that together exceed the caches, or else a note."""
    wanted, size = footprint(device), _bytes_of(args)
    room = int(MEMORY_SHARE * device.free_memory_bytes()) // size
    count = max(1, min(math.ceil(wanted / size), _MOST_COPIES, room))
    if count * size < wanted:
        notes.append(f"{count} copies of arguments, {scaled(count * size, 'B')}, may stay cached")
    return [args, *(copy.deepcopy(args) for _ in range(count - 1))]


def _bytes_of(args: tuple[Any, ...]) -> int:
    """The size of the memory of tensors, which views share."""
    storages = [tensor.untyped_storage() for tensor in tensors_in_tree(args)]
    return max(1, sum({each._cdata: each.nbytes() for each in storages}.values()))


def _versions(args: tuple[Any, ...]) -> list[int]:
    return [each._version for each in tensors_in_tree(args) if not each.is_inference()]


def _places(tree: Any) -> set[str]:
    """The devices of tensors; numbers may be elsewhere."""
    tensors = tensors_in_tree(tree)
    return {str(each.device) for each in tensors if each.dim()} or {str(e.device) for e in tensors}


def place_of(args: tuple[Any, ...], functions: Sequence[Function]) -> str:
    """The device of the arguments or else of the results."""
    places = _places(args) or set().union(*(each.places for each in functions))
    name, remedy = functions[0].name, "name the one to time, as in device='cuda:0'"
    if len(places) > 1:
        raise OpcostError(f"{name}: tensors are on {' and '.join(sorted(places))}: {remedy}")
    if not places and torch.cuda.is_initialized():
        raise OpcostError(f"{name}: no tensors as arguments or results show a device: {remedy}")
    place = places.pop() if places else torch.get_default_device().type
    if kind_of(place) is None:
        kinds = " and ".join(KINDS)
        raise OpcostError(f"{name}: tensors are on {place}; opcost times {kinds}: move them")
    return place
