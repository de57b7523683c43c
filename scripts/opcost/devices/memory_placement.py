"""Where the memory of this process lies: on a NUMA node, by libnuma, and in huge pages, by PyTorch.

libnuma is the library of `numactl`, whose policies of other processes this process inherits.
"""

import ctypes
import os
from pathlib import Path

import torch

from opcost import memory
from opcost.errors import OpcostError
from opcost.files import first_line

NODES = Path("/sys/devices/system/node")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_PYTORCH = "THP_MEM_ALLOC_ENABLE"
"""PyTorch reads it at its first allocation, and requests huge pages for 2 MiB and more."""

_BIND, _FORBID_HUGE_PAGES = 2, 41  # of linux/mempolicy.h and linux/prctl.h
_MOST_NODES = 1024
_PROBE_BYTES = 64 * 2**20


def bind_memory(numa_node: int | None) -> None:
    """Allocate the memory of this process on a NUMA node from now on; None changes nothing.

    Raises OpcostError if there is no such node, or if Linux does not allow it.
    """
    if numa_node is None:
        return
    words = (ctypes.c_ulong * (_MOST_NODES // 64))()
    words[numa_node // 64] = 1 << numa_node % 64
    try:
        failed = _libnuma().set_mempolicy(_BIND, words, _MOST_NODES)
        reason = os.strerror(ctypes.get_errno())
    except (OSError, AttributeError) as error:
        failed, reason = True, f"{error}: install numactl"
    if failed:
        nodes = first_line(NODES / "has_memory") or "none that Linux lists"
        raise OpcostError(
            f"numa_node is {numa_node}, and memory could not be bound to it ({reason}); the nodes "
            f"of this machine that have memory: {nodes}. Choose one of these, or leave it out of "
            "the target; containers may forbid it (set_mempolicy)"
        )


def use_huge_pages(huge_pages: bool | None) -> None:
    """Allocate the memory of this process in huge pages from now on, or never in them; None changes
    nothing. Raises OpcostError if Linux or PyTorch does not do so.
    """
    if huge_pages is None:
        return
    if ctypes.CDLL(None).prctl(_FORBID_HUGE_PAGES, int(not huge_pages), 0, 0, 0):
        raise OpcostError(
            "huge pages could not be forbidden or allowed (prctl, PR_SET_THP_DISABLE): leave "
            "huge_pages out of the target"
        )
    if not huge_pages:
        return
    os.environ[_PYTORCH] = "1"
    before = memory.bytes_in_huge_pages()
    probe = torch.ones(_PROBE_BYTES, dtype=torch.uint8)
    if memory.bytes_in_huge_pages() - before < probe.nbytes / 2:
        raise OpcostError(
            f"huge_pages is true; PyTorch's memory is not in huge pages, and {HUGE_PAGES} says "
            f"{first_line(HUGE_PAGES) or 'nothing'}: have the administrator write madvise there, "
            "free memory that lies in small pieces, or leave huge_pages out of the target"
        )


def asks_for_huge_pages() -> bool:
    """Whether PyTorch asks for huge pages in this process."""
    return os.environ.get(_PYTORCH, "0") != "0"


def free_bytes() -> int:
    """Bytes that can be allocated now where the memory of this process may lie."""
    node = bound_node()
    free = memory.free_bytes()
    return free if node is None else min(free, memory.free_bytes_of(NODES / f"node{node}"))


def bound_node() -> int | None:
    """The only node that memory of this process may lie on; None if there are several."""
    mode, words = ctypes.c_int(), (ctypes.c_ulong * (_MOST_NODES // 64))()
    try:
        failed = _libnuma().get_mempolicy(ctypes.byref(mode), words, _MOST_NODES, None, 0)
    except (OSError, AttributeError):
        return None
    nodes = [each for each in range(_MOST_NODES) if words[each // 64] >> each % 64 & 1]
    return nodes[0] if not failed and mode.value == _BIND and len(nodes) == 1 else None


def _libnuma() -> ctypes.CDLL:
    return ctypes.CDLL("libnuma.so.1", use_errno=True)
