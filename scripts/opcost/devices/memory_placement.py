"""Where the memory of this process lies: on a NUMA node, and in huge pages (Linux)."""

import ctypes
import os
import platform
from pathlib import Path

import torch

from opcost import memory
from opcost.errors import OpcostError
from opcost.files import first_line

NODES = Path("/sys/devices/system/node")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_PYTORCH = "THP_MEM_ALLOC_ENABLE"
"""PyTorch reads it at its first allocation, and requests huge pages for 2 MiB and more."""

_OF_GLIBC = "glibc.malloc.hugetlb="

# Of Linux: asm/unistd.h, linux/mempolicy.h and linux/prctl.h.
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
_BIND = 2
_FORBID_HUGE_PAGES = 41
_NODES_AT_MOST = 1024
_PROBE_BYTES = 64 * 2**20

_set_here = False
"""Whether this process has set PyTorch's variable, as a plan of several targets does."""


def bind_memory(numa_node: int | None) -> None:
    """Allocate the memory of this process on a NUMA node from now on; None changes nothing.

    Raises OpcostError if there is no such node, or if Linux does not allow it.
    """
    if numa_node is None:
        return
    known = _numbers(first_line(NODES / "has_memory"))
    if numa_node not in known:
        there = ", ".join(map(str, known)) or "none that Linux lists"
        raise OpcostError(
            f"numa_node is {numa_node}; the nodes of this machine that have memory: {there}. "
            "Choose one of these, or leave it out of the target"
        )
    words = (ctypes.c_ulong * (_NODES_AT_MOST // 64))()
    words[numa_node // 64] = 1 << numa_node % 64
    if _system_call(_SET_MEMPOLICY, _BIND, words, _NODES_AT_MOST) or _bound() != numa_node:
        raise OpcostError(
            f"memory could not be bound to NUMA node {numa_node} "
            f"({os.strerror(ctypes.get_errno())}): leave numa_node out of the target. Containers "
            "may forbid it (set_mempolicy)"
        )


def use_huge_pages(huge_pages: bool | None) -> None:
    """Allocate the memory of this process in huge pages from now on, or never in them; None changes
    nothing.

    Raises OpcostError if Linux or PyTorch does not do so, or if the environment requests huge pages
    and the target does not.
    """
    if huge_pages is not None:
        _take_huge_pages() if huge_pages else _forbid_huge_pages(True)
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    of_glibc = "GLIBC_TUNABLES" if _OF_GLIBC in tunables else None
    asked = of_glibc or (_PYTORCH if asks_for_huge_pages() and not _set_here else None)
    if asked:
        raise OpcostError(
            f"{asked} is set, so that memory lies in huge pages, and no row would say so: unset "
            "it, and give the target huge_pages: true"
        )


def asks_for_huge_pages() -> bool:
    """Whether PyTorch asks for huge pages in this process."""
    return os.environ.get(_PYTORCH, "0") != "0"


def free_bytes() -> int:
    """Bytes that can be allocated now where the memory of this process may lie."""
    node = _bound()
    free = memory.free_bytes()
    return free if node is None else min(free, memory.free_bytes_of(NODES / f"node{node}"))


def _bound() -> int | None:
    """The only node that memory of this process may lie on; None if there are several."""
    mode, words = ctypes.c_int(), (ctypes.c_ulong * (_NODES_AT_MOST // 64))()
    failed = _system_call(_GET_MEMPOLICY, ctypes.byref(mode), words, _NODES_AT_MOST, None, 0)
    nodes = [each for each in range(_NODES_AT_MOST) if words[each // 64] >> each % 64 & 1]
    return nodes[0] if not failed and mode.value == _BIND and len(nodes) == 1 else None


def _system_call(numbers: dict[str, int], *arguments: object) -> bool:
    """Whether the call fails."""
    number = numbers.get(platform.machine())
    call = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    return number is None or call is None or call(number, *arguments) != 0


def _forbid_huge_pages(forbidden: bool) -> None:
    call = getattr(ctypes.CDLL(None), "prctl", None)
    if call is None or call(_FORBID_HUGE_PAGES, int(forbidden), 0, 0, 0):
        raise OpcostError(
            "huge pages could not be forbidden or allowed (prctl, PR_SET_THP_DISABLE): leave "
            "huge_pages out of the target"
        )


def _take_huge_pages() -> None:
    global _set_here
    modes = first_line(HUGE_PAGES)
    if not modes or "[never]" in modes:
        raise OpcostError(
            f"huge_pages is true; {HUGE_PAGES} says {modes or 'nothing'}: have the administrator "
            "write madvise there, or leave huge_pages out of the target"
        )
    _forbid_huge_pages(False)
    _set_here = _set_here or not asks_for_huge_pages()
    os.environ[_PYTORCH] = "1"
    before = memory.bytes_in_huge_pages()
    probe = torch.ones(_PROBE_BYTES, dtype=torch.uint8)
    if memory.bytes_in_huge_pages() - before < probe.nbytes / 2:
        raise OpcostError(
            "huge_pages is true; PyTorch's memory is not in huge pages: free memory is in small "
            f"pieces, or {_PYTORCH} came too late. Free memory, or leave huge_pages out of the "
            "target"
        )


def _numbers(text: str) -> list[int]:
    """The numbers in a list as Linux writes it, such as `0-1,3`."""
    ranges = [part.split("-") for part in text.split(",") if part]
    return [number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)]
