"""Where operators find memory for results and workspaces on a processor: glibc's heap."""

import ctypes
import itertools
from collections.abc import Iterator

import torch

_GOLDEN_RATIO = 0.6180339887498949
_PAGE_BYTES = 4096


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next operator, as a process that has run for long does.

    By default it gives large blocks back to the system, or does not, as the heap happens to lie;
    the page faults of getting them anew made one convolution four times slower. False where there
    is no glibc.
    """
    trim_threshold, mmap_max = -1, -4
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc.mallopt(trim_threshold, -1) == 1 and libc.mallopt(mmap_max, 0) == 1
    except (OSError, AttributeError):
        return False


def spacer_sizes(span_bytes: int) -> Iterator[int]:
    """Sizes of blocks to hold during one call each, so that the call's own lie elsewhere each time.

    What a call allocates, its results and its workspaces (a convolution writes its weights anew in
    another layout), follows the held block in the heap. Sizes are spread evenly over `span_bytes`
    (multiples of the golden ratio, modulo one), so that memory comes again only after about as much
    other memory was used. Freed memory must stay with the process: `keep_freed_memory`.
    """
    # Used once now: the first use of memory is slow.
    torch.empty(span_bytes, dtype=torch.uint8).fill_(0)
    pages = span_bytes // _PAGE_BYTES
    return (int(turn * _GOLDEN_RATIO % 1.0 * pages) * _PAGE_BYTES for turn in itertools.count())
