"""The weights that stay on a device too small for all: copies of the others take least time.

A knapsack problem, solved by dynamic programming over the bytes in units of 1/131072 of all
weights. Each item that stays is rounded up to whole units: the choice always fits, and is optimal
up to a unit of memory for each item.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_UNITS = 2**17


@dataclass(frozen=True)
class Item:
    """Bytes, and the seconds of copying them in for each pass."""

    bytes: int
    copy_s: float


@dataclass(frozen=True)
class Choice:
    """The positions of the copied items, and the bytes on the device: of items that stay, and of a
    buffer as large as the largest copied item.
    """

    copied: frozenset[int]
    staying_bytes: int
    buffer_bytes: int


def choose(items: Sequence[Item], room: int) -> Choice:
    """The items to copy in so that the others and a buffer fit the room.

    Raises ValueError if the room does not hold the largest item.
    """
    total = sum(item.bytes for item in items)
    if total <= room:
        return Choice(frozenset(), total, 0)
    if max(item.bytes for item in items) > room:
        raise ValueError(f"{room} bytes do not hold the largest of the items")
    copied = _copied(items, total, room)
    largest = max(items[position].bytes for position in copied)
    return Choice(copied, total - sum(items[position].bytes for position in copied), largest)


def _copied(items: Sequence[Item], total: int, room: int) -> frozenset[int]:
    """For a buffer of the size of each item, all larger ones stay, and the best of the others."""
    order = sorted(range(len(items)), key=lambda position: items[position].bytes)
    unit = -(-total // _UNITS)
    units = [-(-items[position].bytes // unit) for position in order]
    saved_s = np.zeros(sum(units) + 1)  # by free units, with the items so far
    stays: list[np.ndarray] = []
    larger, all_s = total, 0.0
    best_s, last, left = np.inf, 0, 0
    for place, position in enumerate(order):
        item, needed = items[position], units[place]
        larger, all_s = larger - item.bytes, all_s + item.copy_s
        saves = np.zeros(len(saved_s), bool)
        with_it = saved_s[: len(saved_s) - needed] + item.copy_s
        saves[needed:] = with_it > saved_s[needed:]
        saved_s[needed:] = np.maximum(with_it, saved_s[needed:])
        stays.append(np.packbits(saves))  # a bit each: there may be hundreds of items
        free = (room - larger - item.bytes) // unit
        if free < 0:
            continue
        copy_s = all_s - saved_s[min(free, len(saved_s) - 1)]
        if copy_s < best_s:
            best_s, last, left = copy_s, place, min(free, len(saved_s) - 1)
    found = set()
    for place in range(last, -1, -1):
        if stays[place][left // 8] >> (7 - left % 8) & 1:
            left -= units[place]
        else:
            found.add(order[place])
    return frozenset(found)
