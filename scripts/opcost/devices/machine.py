"""This machine and its software, as known without importing torch or opening a device."""

import hashlib
import os
import platform
import re
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import opcost
from opcost.files import first_line

_HASH_LENGTH = 16
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_ROOTS = ("overlay", "fuse.fuse-overlayfs", "aufs")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_PRELOADED = Path("/etc/ld.so.preload")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LONGEST = 2000
_UNTIL_THE_END = ExitStack()

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
            r"THP_MEM_ALLOC_ENABLE",
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
"""A closed list: other variables of the same libraries contain paths, logging and secrets, which
differ between a terminal, a scheduler and a container without affecting time."""


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
"""Inherited settings that affect the speed of this process: variables and preloaded libraries, as
`NAME=value`, sorted. Read on import: the code of a model may set variables that libraries have
already read."""


def machine_id_hash() -> str | None:
    """A hash that is equal for all users and after each boot; None without an identifier.

    The identifier is /etc/machine-id, created when a system is installed; in a container, where it
    belongs to the image, it is the firmware's UUID, which only root can read. Copied virtual
    machines may share a machine-id: different hashes mean different systems, but not conversely.
    """
    firmware = Path("/sys/class/dmi/id/product_uuid")
    identity = first_line(firmware if _in_container() else Path("/etc/machine-id"))
    if not identity or identity == "uninitialized":
        return None
    return hashed_uuid(identity.lower())


def hashed_uuid(uuid: str) -> str:
    """A hash of an identifier: rows distinguish devices without naming them."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:_HASH_LENGTH]


def _in_container() -> bool:
    if any(mark.exists() for mark in _CONTAINER_MARKS):
        return True
    mounts = (line.split() for line in _lines(Path("/proc/self/mounts")))
    return any(mount[1:2] == ["/"] and mount[2] in _CONTAINER_ROOTS for mount in mounts)


def processor_name() -> str:
    """The model name in /proc/cpuinfo, else the architecture."""
    lines = _lines(Path("/proc/cpuinfo"))
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def cache_sizes() -> dict[int, int]:
    """Level -> bytes of the first core's data caches, as far as Linux lists them."""
    sizes = {}
    for index in sorted(_CACHES.glob("index*")):
        kind, level, size = (first_line(index / name) for name in ("type", "level", "size"))
        number, unit = size[:-1], _UNITS.get(size[-1:])
        if kind != "Instruction" and level.isdigit() and number.isdigit() and unit:
            sizes[int(level)] = int(number) * unit
    return sizes


def last_level_cache_bytes() -> int | None:
    """Size of the last-level cache, or None; on a shared machine, other guests use it too."""
    sizes = cache_sizes()
    return sizes[max(sizes)] if sizes else None


def core_cache_bytes() -> int:
    """Size of the second-level cache; 0 if Linux lists none."""
    return cache_sizes().get(2, 0)


def python_path() -> str:
    """PYTHONPATH with which another process imports this opcost."""
    here = str(Path(opcost.__file__).parent.parent)
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))


def installed_torch() -> dict[str, str | None]:
    """Version columns of the installed torch; empty without one.

    Read from torch/version.py, because the package's metadata lack the CUDA version.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        stated = run_path(str(Path(spec.origin).with_name("version.py")))
    except (OSError, SyntaxError):
        return {}
    return {"torch_version": stated.get("__version__"), "cuda_version": stated.get("cuda")}


def loaded_driver() -> str | None:
    """The version of the NVIDIA driver in the kernel, or None."""
    return first_line(Path("/sys/module/nvidia/version")) or None


def keep_driver_loaded(devices: Path = Path("/dev")) -> int:
    """Open the device files of all GPUs until this process ends. Returns how many could be opened.

    Without persistence mode, the driver initialises a GPU for each process that opens it first,
    which takes up to seconds, and releases it after the last. Open device files keep it, as in
    NVIDIA's persistence daemon.
    """
    count = 0
    for path in devices.glob("nvidia[0-9]*"):
        with suppress(OSError):
            _UNTIL_THE_END.enter_context(path.open("rb", buffering=0))
            count += 1
    return count
