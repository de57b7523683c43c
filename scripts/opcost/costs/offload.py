"""What a model costs on a GPU whose memory does not hold all of its weights: those that do not stay
are copied in from the host for each pass.

Copies one after the other with the computation are the upper limit of the time. The lower limit is
that of copies hidden behind it: no schedule takes less than the longer of the two. It needs a
buffer for the next weights while the present ones are used, which the budget does not hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from opcost.costs.copies import CopyCost, MeasuredCopies, measured_copies
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.explanation import Explanation
from opcost.costs.offload_choice import Choice, Item, choose
from opcost.costs.offload_memory import OffloadMemory
from opcost.costs.terms import Row
from opcost.databases.database import read_database
from opcost.rows import comparability
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate, correlated_sum, weighted_sum
from opcost.tuples.host_memory import COPY
from opcost.tuples.operator_tuple import HOST_MEMORIES
from opcost.tuples.weights import WeightGroup

_COLUMNS = (*OPERATOR_COLUMNS, "operator", "canonical_json", "conditions_id")
_BEYOND = 4
"""Copies of at most so many times the largest measured one are estimated."""

_REMEDY = "opcost run copies_to_device --device cuda"


@dataclass(frozen=True)
class CopiedGroup:
    """Weights that are copied in together for each use, and the cost of their copies in a pass."""

    group: WeightGroup
    costs: tuple[CopyCost, ...]

    @property
    def time(self) -> Estimate:
        """Seconds of all copies in a pass, whose errors are one."""
        return correlated_sum((self.group.uses, cost.time) for cost in self.costs)

    @property
    def energy(self) -> Estimate | None:
        """Joules of all copies in a pass; None if they are unknown."""
        known = [cost.energy for cost in self.costs if cost.energy is not None]
        if len(known) < len(self.costs):
            return None
        return correlated_sum((self.group.uses, energy) for energy in known)


@dataclass(frozen=True)
class FromMemory:
    """The same weights copied in from one memory of the host: the costs of a pass."""

    memory: str
    copied: tuple[CopiedGroup, ...]
    explanation: Explanation
    energy_unknown: str | None
    flags: Sequence[str]

    @property
    def copies_time(self) -> Estimate:
        """Seconds of all copies."""
        return correlated_sum((1.0, each.time) for each in self.copied)

    @property
    def copies_energy(self) -> Estimate | None:
        """Joules of all copies; None if they are unknown."""
        known = [each.energy for each in self.copied if each.energy is not None]
        if len(known) < len(self.copied):
            return None
        return correlated_sum((1.0, energy) for energy in known)

    @property
    def sequential_time(self) -> Estimate | None:
        """Seconds of a pass in which computation and copies take turns."""
        return _sum(self.explanation.estimate.time, self.copies_time)

    @property
    def sequential_energy(self) -> Estimate | None:
        """Joules of a pass in which computation and copies take turns."""
        return _sum(self.explanation.estimate.energy, self.copies_energy)

    @property
    def overlapped_time(self) -> Estimate | None:
        """Seconds of a pass whose copies are hidden behind its computation, or the reverse."""
        model, copies = self.explanation.estimate.time, self.copies_time
        if model is None:
            return None
        return Estimate(
            max(model.value, copies.value),
            _larger(model.low, copies.low),
            _larger(model.high, copies.high),
        )

    @property
    def energy_reason(self) -> str | None:
        """Why the energy of a pass is unknown, or None."""
        return self.explanation.estimate.energy_reason or self.energy_unknown

    def to_document(self) -> dict[str, Any]:
        """The costs as JSON data."""
        return {
            "memory": self.memory,
            **TIME.of("copies").columns(self.copies_time),
            **ENERGY.of("copies").columns(self.copies_energy),
            **TIME.of("sequential").columns(self.sequential_time),
            **ENERGY.of("sequential").columns(self.sequential_energy),
            **TIME.of("overlapped").columns(self.overlapped_time),
            "time_reason": self.explanation.estimate.time_reason,
            "energy_reason": self.energy_reason,
            "copy_flags": list(self.flags),
            "copied": [_document(copied) for copied in self.copied],
        }


@dataclass(frozen=True)
class Offload:
    """The answer for a target. Without copies to choose by there is a `reason` and no choice.

    `rows` are those of copies, within the device as well.
    """

    memory: OffloadMemory
    explanation: Explanation
    rows: Sequence[Row]
    on_processor: bool

    @cached_property
    def reason(self) -> str | None:
        """Why nothing can be said about this target, or None."""
        if self.on_processor:
            return "it is a processor, which computes on the memory that the weights are in"
        if self.memory.fits:
            return None
        if not self._measured:
            return (
                "no copy from the host to the device is measured there, or none that is nearly as "
                "large as its largest weights. To measure copies of 4 KiB "
                f"to 256 MiB: {_REMEDY}"
            )
        return comparability.conflict([*self.explanation.estimate.rows, *self.rows])

    @property
    def is_complete(self) -> bool:
        """Whether there is an answer, unless the question does not arise."""
        return self.on_processor or self.reason is None

    @cached_property
    def _measured(self) -> dict[str, MeasuredCopies]:
        found = measured_copies(self.rows)
        largest = max(
            (each.bytes for group in self.memory.groups for each in group.weights), default=0
        )
        return {
            memory: copies
            for memory in HOST_MEMORIES
            if (copies := found.get(memory)) and largest <= _BEYOND * copies.largest_bytes
        }

    @cached_property
    def choice(self) -> Choice | None:
        """The groups to copy in from the first memory of the host that is measured."""
        if self.reason is not None:
            return None
        if self.memory.fits:
            return Choice(frozenset(), self.memory.weight_bytes, 0)
        copies = next(iter(self._measured.values()))
        items = [
            Item(group.bytes, self._costs(group, copies).time.value) for group in self.memory.groups
        ]
        return choose(items, self.memory.room_bytes)

    @cached_property
    def found(self) -> list[FromMemory]:
        """The costs, from each memory of the host that is measured; none if all weights stay."""
        if self.choice is None or not self.choice.copied:
            return []
        groups = [self.memory.groups[position] for position in sorted(self.choice.copied)]
        return [
            FromMemory(
                memory,
                tuple(self._costs(group, copies) for group in groups),
                self.explanation,
                copies.energy_reason,
                copies.flags,
            )
            for memory, copies in self._measured.items()
        ]

    def _costs(self, group: WeightGroup, copies: MeasuredCopies) -> CopiedGroup:
        return CopiedGroup(group, tuple(copies.cost(each.bytes) for each in group.weights))

    def to_document(self) -> dict[str, Any]:
        """The answer as JSON data."""
        choice = self.choice
        return {
            **self.memory.to_document(),
            "reason": self.reason,
            "staying_bytes": None if choice is None else choice.staying_bytes,
            "buffer_bytes": None if choice is None else choice.buffer_bytes,
            "found": [each.to_document() for each in self.found],
        }


def offload(memory: OffloadMemory, explanations: Sequence[Explanation]) -> list[Offload]:
    """The answer for each target of an explanation. Raises OpcostError for a damaged row."""
    return [_on_target(memory, each) for each in explanations]


def _on_target(memory: OffloadMemory, explanation: Explanation) -> Offload:
    table = read_database(explanation.database, _COLUMNS)
    table = table.filter(pc.equal(table["target"], explanation.target))
    if explanation.conditions_id is not None:
        table = table.filter(pc.equal(table["conditions_id"], explanation.conditions_id))
    copies = table.filter(pc.equal(table["operator"], COPY)).to_pylist()
    [first] = table.slice(0, 1).to_pylist()  # a target is known by its rows
    return Offload(memory, explanation, copies, comparability.host_sets_pace(first))


def _larger(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(first, second)


def _sum(model: Estimate | None, copies: Estimate | None) -> Estimate | None:
    if model is None or copies is None:
        return None
    return weighted_sum([(1.0, model), (1.0, copies)])


def _document(copied: CopiedGroup) -> dict[str, Any]:
    group = copied.group
    return {
        "module_path": group.module_path,
        "weights": [weight.name for weight in group.weights],
        "bytes": group.bytes,
        "uses": group.uses,
        "bases": sorted({cost.basis for cost in copied.costs}),
        **TIME.columns(copied.time),
        **ENERGY.columns(copied.energy),
    }
