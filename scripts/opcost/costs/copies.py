"""The cost of copies from a host to its GPU, from measured copies of a few sizes.

A copy takes a latency and its bytes at the bandwidth of the link, so between measured sizes the
cost is linear in the bytes. Below the smallest size it is at most the smallest copy's, mostly
latency. Beyond the largest size it grows in proportion, with an unknown error and no interval.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from opcost.costs.interpolation import Interpolation
from opcost.costs.terms import Row
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.tuples.host_memory import copy_of
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

MEASURED = "measured"
BETWEEN = "between measured sizes"
BELOW = "below the smallest measured size"
BEYOND = "beyond the largest measured size"

_NEAR = 3
"""Measured sizes on either side of an interpolated one that its error is estimated from: small
copies are mostly latency, and further from linear."""


@dataclass(frozen=True)
class CopyCost:
    """The cost of a copy and its basis; energy is None if unknown."""

    time: Estimate
    energy: Estimate | None
    basis: str


@dataclass(frozen=True)
class MeasuredCopies:
    """Copies from one memory of the host to the device, by their bytes, ascending."""

    rows: Mapping[int, Row]

    def cost(self, size: int) -> CopyCost:
        """The cost of a copy of `size` bytes."""
        energies = [ENERGY.read(row) for row in self.rows.values()]
        return CopyCost(
            self._at(size, [_time(row) for row in self.rows.values()]),
            self._at(size, [each for each in energies if each]) if all(energies) else None,
            self._basis(size),
        )

    @property
    def energy_reason(self) -> str | None:
        """Why energies are unknown, or None."""
        reasons = (row["energy_reason"] for row in self.rows.values())
        return next((reason for reason in reasons if reason), None)

    @property
    def largest_bytes(self) -> int:
        """The size of the largest measured copy."""
        return max(self.rows)

    @property
    def flags(self) -> list[str]:
        """The flags of the rows, each once."""
        return list(dict.fromkeys(flag for row in self.rows.values() for flag in row["flags"]))

    def _basis(self, size: int) -> str:
        if size in self.rows:
            return MEASURED
        if size < min(self.rows):
            return BELOW
        return BEYOND if size > max(self.rows) else BETWEEN

    def _at(self, size: int, costs: list[Estimate]) -> Estimate:
        sizes = [*self.rows]
        within = min(max(size, sizes[0]), sizes[-1])
        above = bisect_left(sizes, within)
        near = slice(max(above - _NEAR, 0), above + _NEAR)
        cost = Interpolation(sizes[near], costs[near]).at(within)
        if size < sizes[0]:
            return Estimate(cost.value, None if cost.high is None else 0.0, cost.high)
        if size > sizes[-1]:
            return Estimate(size / sizes[-1] * cost.value, None, None)
        return cost


def measured_copies(rows: Iterable[Row]) -> dict[str, MeasuredCopies]:
    """Memory of the host -> copies of contiguous tensors of float32 from there to the device,
    without waiting for each.
    """
    found: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        operator_tuple = OperatorTuple.from_json(row["canonical_json"])
        copy = copy_of(operator_tuple)
        if copy is None or not copy.is_to_device or row["status"] != "ok":
            continue
        # Values, dtype and layout may change what a copy costs.
        plain = TensorSpec(copy.to.shape, "float32")
        is_plain = copy.to == plain == replace(copy.source, memory=None)
        if is_plain and dict(operator_tuple.arguments).get("non_blocking") is True:
            found[copy.memory][copy.to.bytes] = row
    return {memory: MeasuredCopies(dict(sorted(each.items()))) for memory, each in found.items()}


def _time(row: Row) -> Estimate:
    time = TIME.read(row)
    assert time is not None  # its status is ok
    return time
