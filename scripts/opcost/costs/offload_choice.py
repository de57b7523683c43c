"""Which weights stay on a device whose memory does not hold all of them, so that copying the others
in for each pass takes least time.

It is a knapsack problem, solved by dynamic programming over the bytes in units of 1/131072 of all
weights: each that stays counts in whole units, so the choice is the best one but for less than a
unit of memory for each of them, and fits whatever the unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_UNITS = 2**17


@dataclass(frozen=True)
class Item:
    """Bytes that stay, or else take so many seconds to be copied in for each pass."""

    bytes: int
    copy_s: float


@dataclass(frozen=True)
class Choice:
    """The positions of the items that are copied in, and the bytes of all that is on the device:
    those that stay, and a buffer as large as the largest that is copied.
    """

    copied: frozenset[int]
    staying_bytes: int
    buffer_bytes: int


def least_bytes(items: Sequence[Item]) -> int:
    """The bytes that the device must have at least: all items are copied in."""
    return max((item.bytes for item in items), default=0)


def choose(items: Sequence[Item], room: int) -> Choice:
    """The items to copy in so that what is on the device fits the room.

    Raises ValueError if it cannot: the room is less than `least_bytes`.
    """
    total = sum(item.bytes for item in items)
    if total <= room:
        return Choice(frozenset(), total, 0)
    if least_bytes(items) > room:
        raise ValueError(f"{room} bytes do not hold the largest of the items")
    copied = _copied(items, total, room)
    largest = max(items[position].bytes for position in copied)
    return Choice(copied, total - sum(items[position].bytes for position in copied), largest)


def _copied(items: Sequence[Item], total: int, room: int) -> frozenset[int]:
    """For a buffer of the size of each item, all larger ones stay, and the best of the others."""
    order = sorted(range(len(items)), key=lambda position: items[position].bytes)
    unit = -(-total // _UNITS)
    units = [-(-items[position].bytes // unit) for position in order]
    saved_s = np.zeros(sum(units) + 1)  # by the units that there are for the items so far
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
