"""Power limit and locked clocks of an NVIDIA GPU, by NVML: what is allowed, set and restored."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pynvml

from opcost.devices.machine_id import hashed_uuid
from opcost.devices.point_record import PointRecord, this_boot
from opcost.errors import OpcostError
from opcost.target import OperatingPoint

_TOLERANCE_W = 0.5
"""Allowed difference between the limit set and read back: drivers round."""

_PERMISSION = (
    "Only root may do that: run as root (sudo), or with the capability CAP_SYS_ADMIN, as in a "
    "container with docker run --cap-add SYS_ADMIN. Or have the administrator set it (nvidia-smi "
    "--power-limit, --lock-gpu-clocks), and leave it out of the target"
)


@dataclass(frozen=True)
class PowerLimits:
    """Power limits of a GPU in watts: present, default, and allowed range."""

    present_w: float
    default_w: float
    least_w: float
    most_w: float


class Gpu:
    """The GPU whose UUID has the hash `key`. Raises OpcostError if NVML does not find it."""

    def __init__(self, key: str) -> None:
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise OpcostError(
                f"power limit and clocks cannot be set: NVML: {error}. Check that `nvidia-smi` "
                "responds; where there is no NVIDIA GPU, leave them out of the target"
            ) from error
        known: dict[str, Any] = {}
        silent = []
        for number in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                known[hashed_uuid(pynvml.nvmlDeviceGetUUID(handle))] = handle
            except pynvml.NVMLError as error:  # does not matter for another GPU
                silent.append(f"GPU {number} does not answer ({error})")
        if key not in known:
            beside = "; ".join(["", *silent])
            raise OpcostError(
                f"power limit and clocks cannot be set: NVML lists no GPU whose UUID has the hash "
                f"{key}, as for a MIG instance. Its hashes: {', '.join(known) or 'none'}{beside}"
                + (". Check that `nvidia-smi` lists it, and this user may use it" if silent else "")
            )
        self._handle = known[key]

    def power_limits(self) -> PowerLimits:
        """The power limits. Raises OpcostError if the GPU has none that can be set."""
        what = "the power limit of this GPU"
        least_mw, most_mw = self._read(what, pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        default_mw = self._read(what, pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return PowerLimits(self.power_limit_w(), default_mw / 1e3, least_mw / 1e3, most_mw / 1e3)

    def power_limit_w(self) -> float:
        """The present power limit. Raises OpcostError if the GPU does not report it."""
        what = "the power limit of this GPU"
        return float(self._read(what, pynvml.nvmlDeviceGetPowerManagementLimit) / 1e3)

    def temperature_c(self) -> float | None:
        """Degrees Celsius; None if the GPU does not report it."""
        try:
            sensor = pynvml.NVML_TEMPERATURE_GPU
            return float(pynvml.nvmlDeviceGetTemperature(self._handle, sensor))
        except pynvml.NVMLError:
            return None

    def check(self, point: OperatingPoint) -> None:
        """Raise OpcostError if the GPU does not allow a point."""
        self._refuse_mig()
        if point.power_limit_w is not None:
            limits = self.power_limits()
            if not limits.least_w <= point.power_limit_w <= limits.most_w:
                raise OpcostError(
                    f"power_limit_w is {point.power_limit_w:g}; this GPU allows "
                    f"{limits.least_w:g} to {limits.most_w:g} (by default {limits.default_w:g}): "
                    "choose a limit among these"
                )
        if point.sm_clock_mhz is None and point.memory_clock_mhz is None:
            return
        memory = self._read("clocks", pynvml.nvmlDeviceGetSupportedMemoryClocks)
        _check_clock("memory_clock_mhz", point.memory_clock_mhz, memory)
        if point.sm_clock_mhz is not None:
            beside = point.memory_clock_mhz or max(memory, default=0)
            supported = pynvml.nvmlDeviceGetSupportedGraphicsClocks
            found = self._read("clocks", supported, beside)
            _check_clock("sm_clock_mhz", point.sm_clock_mhz, found)

    def record(self, point: OperatingPoint, process: int) -> PointRecord:
        """A record of the settings that a point changes."""
        return PointRecord(
            this_boot(),
            process,
            str(point),
            None if point.power_limit_w is None else self.power_limit_w(),
            point.sm_clock_mhz is not None,
            point.memory_clock_mhz is not None,
        )

    def set(self, point: OperatingPoint, record: PointRecord) -> Iterator[PointRecord]:
        """Set a point. Yields the record to restore if the next step fails: a clock that cannot be
        locked cannot be released either.

        Raises OpcostError if anything cannot be set.
        """
        yield (record := replace(record, sm_clock_locked=False, memory_clock_locked=False))
        if (mhz := point.sm_clock_mhz) is not None:
            what = f"locking the clock of the multiprocessors at {mhz} MHz"
            self._do(what, pynvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)
            yield (record := replace(record, sm_clock_locked=True))
        if (mhz := point.memory_clock_mhz) is not None:
            what = f"locking the clock of the memory at {mhz} MHz"
            self._do(what, pynvml.nvmlDeviceSetMemoryLockedClocks, mhz, mhz)
            yield replace(record, memory_clock_locked=True)
        if point.power_limit_w is not None:
            self.set_power_limit(point.power_limit_w)

    def set_power_limit(self, watts: float) -> None:
        """Set the power limit. Raises OpcostError if it cannot be set, or reads back otherwise."""
        what = f"setting the power limit of this GPU to {watts:g} W"
        self._do(what, pynvml.nvmlDeviceSetPowerManagementLimit, round(watts * 1e3))
        found_w = self.power_limit_w()
        if abs(found_w - watts) > _TOLERANCE_W:
            raise OpcostError(
                f"the power limit was set to {watts:g} W, and the GPU says that it is {found_w:g} "
                "W: choose a limit that it keeps"
            )

    def restore(self, record: PointRecord) -> list[str]:
        """Restore the settings of a record. Returns notes for the user, none for GPUs. Raises
        OpcostError if a setting cannot be restored, after restoring the others.
        """
        faults = []
        for setting, restore in self._restorers(record):
            try:
                restore()
            except OpcostError as error:
                faults.append(f"{setting}: {error}")
        if faults:
            raise OpcostError("; ".join(faults))
        return []

    def _restorers(self, record: PointRecord) -> Iterator[tuple[str, Callable[[], None]]]:
        if record.power_limit_w is not None:
            yield "power limit", partial(self._restore_limit, record.power_limit_w)
        if record.sm_clock_locked:
            release = pynvml.nvmlDeviceResetGpuLockedClocks
            yield "clock of the multiprocessors", partial(self._do, "releasing it", release)
        if record.memory_clock_locked:
            release = pynvml.nvmlDeviceResetMemoryLockedClocks
            yield "clock of the memory", partial(self._do, "releasing it", release)

    def _restore_limit(self, watts: float) -> None:
        self.check(OperatingPoint(watts))  # the record may be damaged
        if self.power_limit_w() != watts:  # it may not have been changed
            self.set_power_limit(watts)

    def _refuse_mig(self) -> None:
        try:
            mig, _ = pynvml.nvmlDeviceGetMigMode(self._handle)
        except pynvml.NVMLError:
            return  # GPUs without MIG do not support the query
        if mig:
            raise OpcostError(
                "the GPU is in MIG mode: a power limit or a locked clock would be that of all its "
                "instances. Set it on a GPU without MIG, or leave it out of the target"
            )

    def _read(self, what: str, function: Callable[..., Any], *arguments: int) -> Any:
        try:
            return function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            raise OpcostError(
                f"{what} cannot be read (NVML: {error}), and is therefore not set: leave it out of "
                "the target"
            ) from error

    def _do(self, what: str, function: Callable[..., Any], *arguments: int) -> None:
        try:
            function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            refused = error.value == pynvml.NVML_ERROR_NO_PERMISSION
            raise OpcostError(
                f"{what} failed: NVML: {error}." + (f" {_PERMISSION}" if refused else "")
            ) from error


def _check_clock(name: str, mhz: int | None, supported: Sequence[int]) -> None:
    if mhz is None or mhz in supported:
        return
    near = sorted(supported, key=lambda each: abs(each - mhz))[:4]
    raise OpcostError(
        f"{name} is {mhz}; this GPU supports {len(supported)} clocks from "
        f"{min(supported, default=0)} to {max(supported, default=0)}, the closest "
        f"{', '.join(map(str, sorted(near)))}: choose one of them (nvidia-smi -q -d "
        "SUPPORTED_CLOCKS lists all)"
    )
