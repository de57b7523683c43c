"""The libraries behind PyTorch's threads and matrix products on the processor."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

_RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)[-.][^/]*$")
_LIMITS = (
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
)
"""Environment variables that limit the instructions used, below PyTorch's reported capability."""


def thread_library(variables: Sequence[str] = ()) -> str:
    """OpenMP runtimes, MKL and vector instructions, such as `libgomp, MKL 2024.2, AVX512`.

    Environment variables that limit them are added, and `variables`, if they are set.
    """
    info = torch.__config__.parallel_info()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", info)
    parts = [*_runtimes(), *([f"MKL {mkl[1]}"] if mkl else [])]
    limits = [
        f"{name}={os.environ[name]}" for name in (*_LIMITS, *variables) if os.environ.get(name)
    ]
    return ", ".join([*parts, torch.backends.cpu.get_cpu_capability(), *limits])


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
