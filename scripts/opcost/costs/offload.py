"""The cost of a model on a GPU whose memory does not hold all of its weights: the others are copied
in from the host for each pass.

Copies that alternate with computation give the upper limit of the time. The lower limit is the
longer of copies and computation, which overlap. It needs a buffer for the next weights while the
present ones are used, which the budget does not hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from opcost.costs.copies import CopyCost, MeasuredCopies, measured_copies
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.explanation import Explanation
from opcost.costs.offload_choice import Choice, Item, choose
from opcost.costs.terms import Row
from opcost.databases.database import read_database
from opcost.errors import OpcostError
from opcost.models.construction import input_bytes
from opcost.rows import comparability
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate, correlated_sum, weighted_sum
from opcost.text import scaled
from opcost.tuples.host_memory import COPY
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import HOST_MEMORIES
from opcost.tuples.weights import WeightGroup

_COLUMNS = (*OPERATOR_COLUMNS, "operator", "canonical_json", "conditions_id")
_BEYOND = 4
"""Larger copies than this multiple of the largest measured one are not estimated."""

_REMEDY = "opcost run copies_to_device --device cuda"


@dataclass(frozen=True)
class OffloadMemory:
    """The memory of a model during a pass, and the budget.

    `groups` are the weights that a pass reads, grouped if they must be present together. Workspaces
    of kernels, the context and the allocator's rounding are not counted.
    """

    budget_bytes: int
    input_bytes: int
    activation_peak_bytes: int
    groups: tuple[WeightGroup, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that a pass reads."""
        return sum(group.bytes for group in self.groups)

    @property
    def room_bytes(self) -> int:
        """Bytes that inputs and activations leave for weights."""
        return self.budget_bytes - self.input_bytes - self.activation_peak_bytes

    @property
    def largest(self) -> WeightGroup | None:
        """The group that needs the largest buffer."""
        return max(self.groups, key=lambda group: group.bytes, default=None)

    @property
    def least_bytes(self) -> int:
        """The smallest budget: all weights are copied in."""
        largest = self.largest.bytes if self.largest else 0
        return self.input_bytes + self.activation_peak_bytes + largest

    @property
    def fits(self) -> bool:
        """Whether all weights may stay."""
        return self.weight_bytes <= self.room_bytes

    def to_document(self) -> dict[str, Any]:
        """The memory as JSON data."""
        return {
            "budget_bytes": self.budget_bytes,
            "input_bytes": self.input_bytes,
            "activation_peak_bytes": self.activation_peak_bytes,
            "weight_bytes": self.weight_bytes,
            "least_bytes": self.least_bytes,
            "fits": self.fits,
        }


@dataclass(frozen=True)
class CopiedGroup:
    """Weights that are copied in together for each use, and the cost of their copies in a pass."""

    group: WeightGroup
    costs: tuple[CopyCost, ...]

    @property
    def time(self) -> Estimate:
        """Seconds of all copies in a pass; their errors are taken to have one cause."""
        return correlated_sum((self.group.uses, cost.time) for cost in self.costs)

    @property
    def energy(self) -> Estimate | None:
        """Joules of all copies in a pass; None if they are unknown."""
        return _if_known((self.group.uses, cost.energy) for cost in self.costs)


@dataclass(frozen=True)
class FromMemory:
    """The costs of a pass with weights copied in from one memory of the host."""

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
        return _if_known((1.0, each.energy) for each in self.copied)

    @property
    def sequential_time(self) -> Estimate | None:
        """Seconds of a pass in which computation and copies alternate."""
        return _sum(self.explanation.estimate.time, self.copies_time)

    @property
    def sequential_energy(self) -> Estimate | None:
        """Joules of a pass in which computation and copies alternate."""
        return _sum(self.explanation.estimate.energy, self.copies_energy)

    @property
    def overlapped_time(self) -> Estimate | None:
        """Seconds of a pass in which copies and computation overlap completely."""
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

    `rows` are of copies, also within the device.
    """

    memory: OffloadMemory
    explanation: Explanation
    rows: Sequence[Row]
    on_processor: bool

    @cached_property
    def reason(self) -> str | None:
        """Why there is no answer for this target, or None."""
        if self.on_processor:
            return "it is a processor, whose memory holds the weights"
        if self.memory.fits:
            return None
        if not self._measured:
            return (
                "no copy from the host to the device is measured there, or none nearly as large as "
                f"its largest weights. To measure copies of 4 KiB to 256 MiB: {_REMEDY}"
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
        """The groups to copy in from the first measured memory of the host."""
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
        """The costs from each measured memory of the host; empty if all weights stay."""
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


def offload_memory(model: ModelTuples, budget_bytes: int) -> OffloadMemory:
    """The memory of the model within a budget of bytes.

    Raises OpcostError if the budget is too small, and for a model of unknown memory.
    """
    definition = model.definition
    if definition is None or definition.operator is not None:
        raise OpcostError(f"--offload: {model.model} is no model with weights")
    if model.trains or definition.cached_tokens is not None:
        what = "a training step" if model.trains else "a step of generating text"
        kept = "gradients and optimizer state" if model.trains else "cached keys and values"
        raise OpcostError(
            f"--offload: {model.model} is {what}, which also keeps {kept} on the device, and the "
            "memory of inference is counted only: give a model in mode inference, without "
            "generation and cached_tokens"
        )
    assert model.weights is not None
    assert model.activation_peak_bytes is not None
    used = tuple(group for group in model.weights if group.uses)
    found = OffloadMemory(
        budget_bytes,
        input_bytes(definition.stating(model.dtypes)),
        model.activation_peak_bytes,
        used,
    )
    if budget_bytes < found.least_bytes and not found.fits:
        others = in_bytes(found.input_bytes + found.activation_peak_bytes)
        weights = ""
        if found.largest is not None:
            where = found.largest.module_path or "the model itself"
            weights = f", and its largest weights (of {where}) {in_bytes(found.largest.bytes)}"
        raise OpcostError(
            f"--offload {in_bytes(budget_bytes)} is too small for {model.model}: its inputs and "
            f"activations take {others} at their peak{weights}. Give at least "
            f"{found.least_bytes}B, or use smaller inputs"
        )
    return found


def in_bytes(size: int) -> str:
    """Bytes with their unit."""
    return scaled(size, "B", 4)


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


def _if_known(costs: Iterable[tuple[float, Estimate | None]]) -> Estimate | None:
    """The sum of costs with one cause of error; None if one is unknown."""
    listed = list(costs)
    known = [(uses, cost) for uses, cost in listed if cost is not None]
    return correlated_sum(known) if len(known) == len(listed) else None


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
