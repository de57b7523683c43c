"""PyTorch's threads on the processor, and the libraries behind them and matrix products."""

import math
import os
import re
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import torch

from opcost.devices.process_environment import PROCESS_ENVIRONMENT
from opcost.errors import OpcostError
from opcost.memory import allowed_cores

_RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)[-.][^/]*$")
_ELEMENTS_OF_A_THREAD = 2**17
"""Several times the minimum number that PyTorch gives a thread."""


def thread_library() -> str:
    """OpenMP runtimes, MKL and vector instructions, such as `libgomp, MKL 2024.2, AVX512`."""
    info = torch.__config__.parallel_info()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", info)
    parts = [*_runtimes(), *([f"MKL {mkl[1]}"] if mkl else [])]
    return ", ".join([*parts, torch.backends.cpu.get_cpu_capability()])


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
    operand.add_(1)
    return [each for each, time_s in _processor_time_s().items() if time_s > before.get(each, 0.0)]


def _processor_time_s() -> dict[int, float]:
    """Thread -> its processor time, by Linux's numbers of these clocks (posix-timers.h)."""
    threads = map(int, os.listdir("/proc/self/task"))
    return {each: time.clock_gettime(~each << 3 | 6) for each in threads}


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
