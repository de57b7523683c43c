"""The power limit of a GPU: read, set permanently, and reset."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from opcost.devices.gpu_settings import Gpu, PowerLimits
from opcost.devices.lock import Held, exclusive
from opcost.devices.machine import hashed_uuid
from opcost.energy.meter import MeterUnavailable
from opcost.energy.nvml import all_visible, device_uuids, visible_uuid
from opcost.errors import OpcostError
from opcost.target import OperatingPoint


def power_limits() -> dict[str, PowerLimits | str]:
    """The power limits of each visible GPU by name, such as `cuda:0`, or why they are unknown.
    Raises OpcostError if NVML finds no GPU.
    """
    found: dict[str, PowerLimits | str] = {}
    for number in range(len(_uuids())):
        try:
            found[f"cuda:{number}"] = Gpu(hashed_uuid(uuid_of(number))).power_limits()
        except OpcostError as error:
            found[f"cuda:{number}"] = str(error)
    return found


def set_power_limit(watts: float, gpu: int | str = 0) -> float:
    """Set the power limit of a GPU, in watts, until it is set again or the driver is unloaded.
    Returns the previous limit in watts.

    `gpu` is its CUDA index, or the beginning of its UUID. Waits for a study that measures on it.
    Raises OpcostError for a limit outside the range that the GPU allows, without permission (root,
    or the capability CAP_SYS_ADMIN), and if there is no such GPU.
    """
    if isinstance(watts, bool) or not isinstance(watts, int | float):
        raise OpcostError(f"the power limit is {watts!r}: give a number of watts")
    with held(gpu, f"setting the power limit to {watts:g} W") as lock:
        known = Gpu(lock.key)
        known.check(OperatingPoint(watts))
        before_w = known.power_limit_w()
        known.set_power_limit(watts)
    return before_w


def reset_power_limit(gpu: int | str = 0) -> float:
    """Set the power limit of a GPU to its default. Returns the previous limit in watts.

    Arguments and errors are those of `set_power_limit`.
    """
    with held(gpu, "resetting the power limit") as lock:
        known = Gpu(lock.key)
        limits = known.power_limits()
        known.check(OperatingPoint(limits.default_w))
        known.set_power_limit(limits.default_w)
    return limits.present_w


@contextmanager
def held(gpu: int | str, purpose: str) -> Iterator[Held]:
    """Hold the lock of a GPU, as jobs of a study do. Raises OpcostError if there is no such GPU."""
    with exclusive(hashed_uuid(uuid_of(gpu)), purpose) as lock:
        yield lock


def uuid_of(gpu: int | str) -> str:
    """The UUID of a GPU. Raises OpcostError if there is no such GPU."""
    if isinstance(gpu, bool) or not isinstance(gpu, int | str) or str(gpu) == "":
        raise OpcostError(f"gpu is {gpu!r}: give its number, such as 0, or its UUID")
    try:
        return visible_uuid(str(gpu), device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except MeterUnavailable as error:
        raise OpcostError(f"the power limit of a GPU is not known: {error}") from error


def name_of(gpu: int | str) -> str:
    """The name of a GPU in targets and monitors, such as `cuda:0`. Raises OpcostError if there is
    no such GPU.
    """
    return f"cuda:{_uuids().index(uuid_of(gpu))}"


def _uuids() -> list[str]:
    try:
        return all_visible(device_uuids(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except MeterUnavailable as error:
        raise OpcostError(f"the power limit of a GPU is not known: {error}") from error
