"""A simulated amdsmi: GPUs that draw power, and the faults that trackers report of the real one.

Its folder on the path takes the place of the real module, also in other processes, where
SIMULATED_AMD holds the settings of the GPUs as JSON. Functions, keys, units and exceptions are
those of amdsmi 7.0.2. The fields of power show the mean over each `refresh_s`, in whole watts.

Does not simulate: the refresh and averaging of real sensors, which AMD does not state; noise.
"""

import enum
import json
import math
import os
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

RESOLUTION_UJ = 15.300000190734863
"""That of real GPUs, as ctypes turns C's float into Python's (AMDResearch/hpcfund#21)."""

_COUNTED_S = 0.001


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, code, text):
        super().__init__(code)
        self.err_code, self.err_info = code, text

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | {self.err_info}"


class AmdSmiRetryException(AmdSmiLibraryException):
    def __init__(self):
        super().__init__(9, "AMDSMI_STATUS_RETRY - Retry operation")


class AmdSmiClkType(enum.IntEnum):
    GFX = 1
    MEM = 5


class AmdSmiTemperatureType(enum.IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.IntEnum):
    CURRENT = 0


@dataclass
class Gpu:
    """A GPU that draws `watts`, until `draw` changes that.

    `current` and `average` are what the fields show for a watt; other values, such as 'N/A' and
    what the C library fills unsupported fields with, are shown as they are.
    """

    watts: float = 100.0
    address: str = "0000:0c:00.0"
    name: str = "AMD Instinct MI300X"
    current: Any = 1
    average: Any = "N/A"
    limit: Any = 750_000_000
    counter: str = "energy_accumulator"
    counter_gain: float = 1.0
    refuses: tuple[str, ...] = ()
    busy_times: int = 0
    lost: bool = False
    partition: str = "SPX"
    clock_key: str = "clk"
    temperature: Any = 41
    processes: tuple[int, ...] = ()
    refresh_s: float = 0.02
    _changes: list[tuple[float, float, float]] = field(default_factory=list)

    def __post_init__(self):
        self._changes.append((-1000.0, 0.0, self.watts))  # the driver was loaded then

    def draw(self, watts, from_s):
        """Change the power at a moment, not before the last change."""
        self._changes.append((from_s, self.joules(from_s), watts))

    def joules(self, until_s):
        """The true energy since the driver was loaded."""
        since_s, joules, watts = self._changes[bisect_right(self._changes, (until_s, math.inf)) - 1]
        return joules + watts * (until_s - since_s)

    def shown(self, how):
        """What a field of power holds."""
        if isinstance(how, str) or how in (0xFFFF, 0xFFFFFFFF):
            return how
        end_s = math.floor(now_s() / self.refresh_s) * self.refresh_s
        used_j = self.joules(end_s) - self.joules(end_s - self.refresh_s)
        return round(how * used_j / self.refresh_s)


gpus = [Gpu(**each) for each in json.loads(os.environ.get("SIMULATED_AMD", "[{}]"))]
now_s = time.monotonic


def reset(*simulated, clock=time.monotonic):
    """Simulate these GPUs, on a clock in seconds."""
    module = sys.modules[__name__]
    module.gpus, module.now_s = list(simulated), clock


def _asked(function, handle):
    """The GPU, if it answers a function."""
    gpu = gpus[handle]
    if gpu.lost:
        raise AmdSmiLibraryException(31, "AMDSMI_STATUS_NOT_FOUND - Device Not found")
    if function in gpu.refuses:
        raise AmdSmiLibraryException(2, "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
    if gpu.busy_times:
        gpu.busy_times -= 1
        raise AmdSmiRetryException
    return gpu


def amdsmi_init():
    if not gpus:
        raise AmdSmiLibraryException(34, "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")


def amdsmi_get_processor_handles():
    return list(range(len(gpus)))


def amdsmi_get_gpu_device_bdf(handle):
    return gpus[handle].address


def amdsmi_get_gpu_asic_info(handle):
    return {"market_name": _asked("asic", handle).name}


def amdsmi_get_gpu_compute_partition(handle):
    return _asked("partition", handle).partition


def amdsmi_get_power_info(handle):
    gpu = _asked("power", handle)
    return {
        "current_socket_power": gpu.shown(gpu.current),
        "average_socket_power": gpu.shown(gpu.average),
    }


def amdsmi_get_power_cap_info(handle):
    return {"power_cap": _asked("cap", handle).limit}


def amdsmi_get_energy_count(handle):
    gpu = _asked("energy", handle)
    joules = gpu.joules(math.floor(now_s() / _COUNTED_S) * _COUNTED_S)
    count = round(joules * gpu.counter_gain * 1e6 / RESOLUTION_UJ)
    return {gpu.counter: count, "counter_resolution": RESOLUTION_UJ, "timestamp": 0}


def amdsmi_get_clock_info(handle, clock):
    gpu = _asked("clock", handle)
    return {gpu.clock_key: {AmdSmiClkType.GFX: 2100, AmdSmiClkType.MEM: 1300}[clock]}


def amdsmi_get_temp_metric(handle, _sensor, _metric):
    return _asked("temperature", handle).temperature


def amdsmi_get_gpu_activity(handle):
    return {"gfx_activity": 30 if _asked("activity", handle) else 0, "umc_activity": "N/A"}


def amdsmi_get_gpu_process_list(handle):
    return [{"name": "python", "pid": pid} for pid in _asked("processes", handle).processes]
