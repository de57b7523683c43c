"""What this process inherited that changes how fast it runs, read without importing torch."""

import os
import re
from pathlib import Path

from opcost.files import first_line

_PRELOADED = Path("/etc/ld.so.preload")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LONGEST = 2000

_RELEVANT = re.compile(
    r"(\w*MALLOC|GLIBC|ONEDNN|DNNL|MKL|MKLDNN|KMP|OMP|GOMP|OPENBLAS|BLIS|ATEN|C10|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|TRITON|CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|HIP|HSA|ROCBLAS|MIOPEN)_\w+"
    r"|PYTHON(MALLOC|MALLOCSTATS|DEVMODE|TRACEMALLOC|OPTIMIZE|_JIT|PERFSUPPORT)"
)
_IRRELEVANT = re.compile(
    r"\w*(_HOME|PATH|_DIR|DIRECTORY|_ROOT|_VERSION|_LIST|_BUILD_\w+|_NAME|_LOGS)"
    r"|\w+_VISIBLE_DEVICES|NVIDIA_(REQUIRE_\w+|DRIVER_CAPABILITIES)"
    r"|(OMP|GOTO|OPENBLAS|MKL)_NUM_THREADS|_RJEM_MALLOC_CONF"
)
"""Where files are and what an image holds; devices, and numbers of threads, which the target sets,
and Snakemake in each job; what polars sets on import."""


def _described() -> str:
    found = {
        name: value
        for name, value in os.environ.items()
        if value and _RELEVANT.fullmatch(name) and not _IRRELEVANT.fullmatch(name)
    }
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {first_line(_PRELOADED)}"
    found["LD_PRELOAD"] = " ".join(Path(each).name for each in re.split(r"[\s:]+", preloaded))
    found["nice"] = str(os.getpriority(os.PRIO_PROCESS, 0) or "")
    if hasattr(os, "sched_getscheduler"):
        found["scheduling_policy"] = str(os.sched_getscheduler(0) or "")
    mode = re.search(r"\[(\w+)\]", first_line(_HUGE_PAGES))
    found["transparent_hugepage"] = mode[1] if mode else ""
    texts = [f"{name}={value.strip()}" for name, value in sorted(found.items()) if value.strip()]
    text = ", ".join(each if each.isprintable() else ascii(each) for each in texts)
    return text[:_LONGEST] or "none"


PROCESS_ENVIRONMENT = _described()
"""Variables, preloaded libraries and priority, as `NAME=value`, sorted. Found on import, because
the code of a model may set variables, which allocators and libraries have read by then."""
