"""The environment of a measurement: hardware, software, threads and present load."""

import math
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import opcost
from opcost.devices.device import Device
from opcost.devices.machine import PROCESS_ENVIRONMENT, machine_id_hash
from opcost.errors import OpcostError
from opcost.memory import allowed_cores

_NO_SOFTWARE = dict.fromkeys(("driver_version", "cuda_version", "cudnn_version"))
_RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)[-.][^/]*$")
_PASSES, _WORKING = 100, 0.1
_ELEMENTS_OF_A_THREAD = 2**17
"""Several times the minimum number that PyTorch gives a thread."""


def describe_environment(device: Device) -> dict[str, Any]:
    """The environment's columns of a record; None if inapplicable or unknown."""
    return {
        **stable_environment(device),
        **device.setup(),
        "device": device.name,
        "allocator": device.allocator,
        "torchvision_version": _torchvision(),
        "python_version": platform.python_version(),
        "opcost_version": opcost.__version__,
        "workflow_commit": opcost.workflow_commit or None,
        "os": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_average": os.getloadavg()[0],
        "measured_at": datetime.now(UTC),
    }


def stable_environment(device: Device) -> dict[str, Any]:
    """The columns that are equal in all rows, unless hardware or software changes."""
    return {
        "device_name": device.model_name,
        "device_uuid_hash": device.uuid_hash,
        "last_level_cache_bytes": device.last_level_cache_bytes,
        "core_cache_bytes": device.core_cache_bytes,
        "cpu_count": os.cpu_count(),
        "machine_id_hash": machine_id_hash(),
        "thread_library": thread_library(),
        "process_environment": PROCESS_ENVIRONMENT,
        **_NO_SOFTWARE,
        **device.software(),
        "torch_version": str(torch.__version__),
    }


def _torchvision() -> str | None:
    try:
        return metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return None


def thread_library() -> str:
    """OpenMP runtimes, MKL and vector instructions, such as `libgomp, MKL 2024.2, AVX512`."""
    info = torch.__config__.parallel_info()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", info)
    parts = [*_runtimes(), *([f"MKL {mkl[1]}"] if mkl else [])]
    return ", ".join([*parts, torch.backends.cpu.get_cpu_capability()])


def _runtimes() -> list[str]:
    """The OpenMP runtimes that this process has loaded, or PyTorch's native thread pool."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ["OpenMP" if torch.backends.openmp.is_available() else "native threads"]
    files = {line.rpartition(" ")[2] for line in lines if _RUNTIME.search(line)}
    counts = Counter(f"lib{_RUNTIME.search(file)[1]}" for file in files)  # type: ignore[index]
    names = [name if count == 1 else f"{count} x {name}" for name, count in sorted(counts.items())]
    return names or ["native threads"]


def refuse_threads_without_cores(threads: int, reserved: Collection[int] | None) -> None:
    """Raise OpcostError if PyTorch's threads outnumber their cores, of the reserved ones if there
    are any: a benchmark would measure the scheduler, without any sign of it in rows.
    """
    if threads == 1 or not hasattr(os, "sched_getaffinity"):
        return
    working = _working_threads(threads)
    cores = {core for each in working for core in os.sched_getaffinity(each)}
    if reserved is not None:
        cores &= {*reserved}
    quota = allowed_cores()
    most = int(min(len(working), len(cores), quota))
    if most < threads:
        limit = f"; its control group allows {quota:g} cores" if quota < math.inf else ""
        raise OpcostError(
            f"the target requests {threads} threads; {min(len(working), threads)} ran in this "
            f"process, on cores {sorted(cores)} of the {os.cpu_count()} of this machine{limit}: "
            f"set `threads` of the target to at most {max(1, most)}, or remove what limits them, "
            "such as taskset, the request to a cluster, a container, or OpenMP's variables "
            f"(environment of this process: {PROCESS_ENVIRONMENT})"
        )


def _working_threads(threads: int) -> list[int]:
    """The threads of this process that run an operator that occupies all of them."""
    operand = torch.zeros(threads * _ELEMENTS_OF_A_THREAD, dtype=torch.int8)  # starts them
    before = _processor_time_s()
    for _ in range(_PASSES):
        operand.add_(1)
    spent_s = {each: s - before.get(each, 0.0) for each, s in _processor_time_s().items()}
    least_s = _WORKING * max(spent_s.values())  # other threads may wake up meanwhile
    return [each for each, time_s in spent_s.items() if time_s > least_s]


def _processor_time_s() -> dict[int, float]:
    """Thread -> its processor time, by Linux's numbers of these clocks (posix-timers.h)."""
    threads = map(int, os.listdir("/proc/self/task"))
    return {each: time.clock_gettime(~each << 3 | 6) for each in threads}
