"""Where operators find memory for results and workspaces on a processor: glibc's heap."""

import ctypes
import itertools
from collections.abc import Iterator

import torch

_GOLDEN_RATIO = 0.6180339887498949
_PAGE_BYTES = 4096
_SHELTER_BYTES = 2**20
_WALL_BYTES = 2**16


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


class Spacers:
    """Sizes of blocks to hold during one call each, so that the call's own lie elsewhere each time.

    What a call allocates, its results and its workspaces (a convolution writes its weights anew in
    another layout), follows the held block in the heap. Sizes are spread evenly over `span_bytes`
    (multiples of the golden ratio, modulo one), so that memory comes again only after about as much
    other memory was used. Freed memory must stay with the process: `keep_freed_memory`.
    """

    sizes: Iterator[int]

    def __init__(self, span_bytes: int) -> None:
        # Small blocks that live longer than a call go here, and do not divide the span.
        shelter = torch.empty(_SHELTER_BYTES, dtype=torch.uint8)
        wall = torch.empty(_WALL_BYTES, dtype=torch.uint8)
        # Used once now: the first use of memory is slow.
        span = torch.empty(span_bytes, dtype=torch.uint8).fill_(0)
        self._held = [wall, *_plug_holes(span)]
        del shelter, span
        pages = span_bytes // _PAGE_BYTES
        positions = (turn * _GOLDEN_RATIO % 1.0 for turn in itertools.count())
        self.sizes = (int(position * pages) * _PAGE_BYTES for position in positions)


def _plug_holes(span: torch.Tensor) -> list[torch.Tensor]:
    """Blocks that fill what is free outside of `span`: a call would find it each time."""
    plugs: list[torch.Tensor] = []
    end = span.data_ptr() + span.nbytes
    size, room = span.nbytes // 2, span.nbytes  # no more, should the heap grow downwards
    while size >= _SHELTER_BYTES and size <= room:
        plug = torch.empty(size, dtype=torch.uint8)
        if plug.data_ptr() < end:
            plugs.append(plug)
            room -= size
        else:
            size //= 2
    return plugs
