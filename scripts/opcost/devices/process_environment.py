"""Inherited settings of this process that affect its speed, read without importing torch.

A closed list: other variables of the same libraries contain paths, logging and secrets, which
differ between a terminal, a scheduler and a container without affecting time.
"""

import os
import re
from pathlib import Path

from opcost.files import first_line

_PRELOADED = Path("/etc/ld.so.preload")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LONGEST = 2000

_RELEVANT = re.compile(
    "|".join(
        (
            r"GLIBC_TUNABLES|MALLOC_(ARENA_(MAX|TEST)|CHECK_|CONF|MMAP_(MAX|THRESHOLD)_|PERTURB_"
            r"|TOP_PAD_|TRIM_THRESHOLD_)|JE_MALLOC_CONF",
            r"TCMALLOC_(MAX_\w+|RELEASE_RATE|AGGRESSIVE_DECOMMIT|SAMPLE_PARAMETER)"
            r"|MIMALLOC_(ALLOW_\w+|ARENA_\w+|EAGER_\w+|PURGE_\w+|RESERVE_\w+)",
            r"OMP_(DYNAMIC|MAX_ACTIVE_LEVELS|NESTED|PLACES|PROC_BIND|SCHEDULE|STACKSIZE|THREAD_LIMIT"
            r"|WAIT_POLICY)|GOMP_(CPU_AFFINITY|SPINCOUNT)",
            r"KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|LIBRARY|SCHEDULE|TPAUSE|USE_YIELD)",
            r"(ONEDNN|DNNL)_(CPU_ISA_HINTS|DEFAULT_FPMATH_MODE|MAX_CPU_ISA|PRIMITIVE_CACHE_CAPACITY)",
            r"MKL_(CBWR|DEBUG_CPU_TYPE|DYNAMIC|ENABLE_INSTRUCTIONS)|OPENBLAS_(CORETYPE|L2_SIZE)",
            r"ATEN_CPU_CAPABILITY|DISABLE_ADDMM_CUDA_LT|LRU_CACHE_CAPACITY|TORCHDYNAMO_DISABLE",
            r"TORCH_(ALLOW_TF32_CUBLAS_OVERRIDE|BLAS_PREFER_\w+|COMPILE_DISABLE|CUDNN_\w+"
            r"|LINALG_PREFER_\w+|ROCM_\w+)|TORCHINDUCTOR_(FREEZING|MAX_AUTOTUNE\w*)",
            r"PYTORCH_((CUDA_|HIP_)?ALLOC_CONF|NO_(CUDA|HIP)_MEMORY_CACHING|TUNABLEOP_ENABLED)",
            r"CUBLAS(LT)?_WORKSPACE_(CONFIG|SIZE)|NVIDIA_TF32_OVERRIDE"
            r"|CUDA_(DEVICE_MAX_CONNECTIONS|FORCE_PTX_JIT|LAUNCH_BLOCKING|MODULE_LOADING"
            r"|MPS_ACTIVE_THREAD_PERCENTAGE)",
            r"HSA_(ENABLE_SDMA|OVERRIDE_GFX_VERSION|XNACK)|MIOPEN_FIND_(ENFORCE|MODE)",
            r"PYTHON(DEVMODE|MALLOC|OPTIMIZE|TRACEMALLOC|_JIT)",
        )
    )
)


def _described() -> str:
    environment = os.environ.items()
    found = {name: value.lower() for name, value in environment if _RELEVANT.fullmatch(name)}
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {first_line(_PRELOADED)}"
    found["LD_PRELOAD"] = " ".join(Path(each).name for each in re.split(r"[\s:]+", preloaded))
    mode = re.search(r"\[(\w+)\]", first_line(_HUGE_PAGES))
    found["transparent_hugepage"] = mode[1] if mode else ""
    texts = [f"{name}={value.strip()}" for name, value in sorted(found.items()) if value.strip()]
    text = ", ".join(each if each.isprintable() else ascii(each) for each in texts)
    return text[:_LONGEST] or "none"


PROCESS_ENVIRONMENT = _described()
"""Variables and preloaded libraries, as `NAME=value`, sorted. Read on import, because the code of a
model may set variables, which allocators and libraries have already read."""
