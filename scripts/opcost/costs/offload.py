"""The cost of a model on a GPU whose memory does not hold all of its weights: the others are copied
in from the host for each pass.

Copies that alternate with computation give the upper limit of the time. The lower limit is the
longer of copies and computation, which overlap. It needs a buffer for the next weights while the
present ones are used, which the budget does not hold.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.explanation import Explanation
from opcost.costs.interpolation import mean_cost
from opcost.costs.terms import Row
from opcost.databases.database import read_database
from opcost.errors import OpcostError
from opcost.models.definition import input_bytes
from opcost.rows import comparability
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.statistics import Estimate, correlated_sum, weighted_sum
from opcost.text import scaled
from opcost.tuples.host_memory import COPY, copy_of
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import HOST_MEMORIES, OperatorTuple, TensorSpec
from opcost.tuples.weights import WeightGroup

_COLUMNS = (*OPERATOR_COLUMNS, "operator", "canonical_json", "conditions_id")
_BEYOND = 4
"""Larger copies than this multiple of the largest measured one are not estimated."""

_NEAR = 3
"""Measured sizes on either side of a copy that the error of its cost is estimated from: small
copies are mostly latency, and further from linear."""

_REMEDY = "opcost run copies_to_device --device cuda"

Copies = Mapping[int, Row]
"""Rows of copies from one memory of the host to the device by their bytes, ascending."""


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
    def least_bytes(self) -> int:
        """The smallest budget: all weights are copied in, through a buffer for the largest."""
        largest = max((group.bytes for group in self.groups), default=0)
        return self.input_bytes + self.activation_peak_bytes + largest

    @property
    def fits(self) -> bool:
        """Whether all weights may stay."""
        return self.weight_bytes <= self.room_bytes


@dataclass(frozen=True)
class FromMemory:
    """The costs of a pass for which groups of weights are copied in from one memory of the host."""

    memory: str
    copies: Copies
    copied: Sequence[WeightGroup]
    explanation: Explanation

    def copies_cost(self, quantity: Quantity, *groups: WeightGroup) -> Estimate | None:
        """Time or energy of the copies of these groups, or of all, in a pass; None if unknown."""
        return _total(self.copies, groups or self.copied, quantity)

    def sequential(self, quantity: Quantity) -> Estimate | None:
        """Time or energy of a pass in which computation and copies alternate."""
        estimate = self.explanation.estimate
        model = estimate.time if quantity == TIME else estimate.energy
        copies = self.copies_cost(quantity)
        if model is None or copies is None:
            return None
        return weighted_sum([(1.0, model), (1.0, copies)])

    @property
    def overlapped_time(self) -> Estimate | None:
        """Seconds of a pass in which copies and computation overlap completely."""
        model, copies = self.explanation.estimate.time, self.copies_cost(TIME)
        if model is None or copies is None:
            return None
        return Estimate(
            max(model.value, copies.value),
            _larger(model.low, copies.low),
            _larger(model.high, copies.high),
        )

    @property
    def energy_reason(self) -> str | None:
        """Why the energy of a pass is unknown, or None."""
        reasons = (row["energy_reason"] for row in self.copies.values())
        return self.explanation.estimate.energy_reason or next(filter(None, reasons), None)

    @property
    def flags(self) -> list[str]:
        """The flags of the measured copies, each once."""
        return list(dict.fromkeys(flag for row in self.copies.values() for flag in row["flags"]))

    def to_document(self) -> dict[str, Any]:
        """The costs as JSON data."""
        columns: dict[str, Any] = {}
        for quantity in (TIME, ENERGY):
            columns |= quantity.of("copies").columns(self.copies_cost(quantity))
            columns |= quantity.of("sequential").columns(self.sequential(quantity))
        return {
            "memory": self.memory,
            **columns,
            **TIME.of("overlapped").columns(self.overlapped_time),
            "time_reason": self.explanation.estimate.time_reason,
            "energy_reason": self.energy_reason,
            "copy_flags": self.flags,
            "copied": [
                {
                    "module_path": group.module_path,
                    "weights": [weight.name for weight in group.weights],
                    "bytes": group.bytes,
                    "uses": group.uses,
                    **TIME.columns(self.copies_cost(TIME, group)),
                    **ENERGY.columns(self.copies_cost(ENERGY, group)),
                }
                for group in self.copied
            ],
        }


@dataclass(frozen=True)
class Offload:
    """The answer for a target, by the copies `measured` there from each memory of the host.

    `reason` says why there is no answer; `found` is empty then, and if all weights stay.
    """

    memory: OffloadMemory
    explanation: Explanation
    measured: Mapping[str, Copies]
    on_processor: bool
    reason: str | None

    @property
    def is_complete(self) -> bool:
        """Whether there is an answer, unless the question does not arise."""
        return self.on_processor or self.reason is None

    @cached_property
    def found(self) -> list[FromMemory]:
        """The costs from each memory of the host. Times from the first choose what is copied."""
        if self.reason is not None or self.memory.fits:
            return []
        groups = self.memory.groups
        copies = next(iter(self.measured.values()))
        costs = [_total(copies, [group], TIME) for group in groups]
        items = [
            (group.bytes, cost.value)
            for group, cost in zip(groups, costs, strict=True)
            if cost is not None  # copies without a time are not among the measured ones
        ]
        copied = choose(items, self.memory.room_bytes)
        chosen = [group for place, group in enumerate(groups) if place in copied]
        return [
            FromMemory(memory, copies, chosen, self.explanation)
            for memory, copies in self.measured.items()
        ]

    @property
    def staying_bytes(self) -> int:
        """Bytes of the weights that stay on the device."""
        copied = self.found[0].copied if self.found else ()
        return self.memory.weight_bytes - sum(group.bytes for group in copied)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffer for the largest weights that are copied in."""
        return max((group.bytes for group in self.found[0].copied), default=0) if self.found else 0

    def to_document(self) -> dict[str, Any]:
        """The answer as JSON data."""
        memory = self.memory
        return {
            "budget_bytes": memory.budget_bytes,
            "input_bytes": memory.input_bytes,
            "activation_peak_bytes": memory.activation_peak_bytes,
            "weight_bytes": memory.weight_bytes,
            "least_bytes": memory.least_bytes,
            "fits": memory.fits,
            "reason": self.reason,
            "staying_bytes": None if self.reason else self.staying_bytes,
            "buffer_bytes": None if self.reason else self.buffer_bytes,
            "found": [each.to_document() for each in self.found],
        }


def offload_memory(model: ModelTuples, budget_bytes: int) -> OffloadMemory:
    """The memory of the model within a budget of bytes.

    Raises OpcostError if the budget is too small, and for a model of unknown memory.
    """
    definition = model.definition
    if definition is None or definition.is_operator:
        raise OpcostError(f"--offload: {model.model} is no model with weights")
    if model.trains or definition.generates:
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
    inputs = input_bytes(definition.stating(model.dtypes))
    found = OffloadMemory(budget_bytes, inputs, model.activation_peak_bytes, used)
    if budget_bytes < found.least_bytes and not found.fits:
        largest = max(used, key=lambda group: group.bytes, default=None)
        weights = ""
        if largest is not None:
            where = largest.module_path or "the model itself"
            weights = f", and its largest weights (of {where}) {in_bytes(largest.bytes)}"
        raise OpcostError(
            f"--offload {in_bytes(budget_bytes)} is too small for {model.model}: its inputs and "
            f"activations take {in_bytes(inputs + model.activation_peak_bytes)} at their peak"
            f"{weights}. Give at least {found.least_bytes}B, or use smaller inputs"
        )
    return found


def in_bytes(size: int) -> str:
    """Bytes with their unit."""
    return scaled(size, "B", 4)


def offload(memory: OffloadMemory, explanations: Sequence[Explanation]) -> list[Offload]:
    """The answer for each target of an explanation. Raises OpcostError for a damaged row."""
    return [_on_target(memory, each) for each in explanations]


def choose(items: Sequence[tuple[int, float]], room: int) -> Collection[int]:
    """Positions of the items, of bytes and seconds to copy, to copy in: the others stay in the
    room, which has a buffer as large as the largest copied item.

    For each size of the buffer, larger items stay, and then those that save most seconds for each
    byte, as far as there is room. The buffer with the least seconds is taken. The room holds the
    largest item.
    """
    most_saved = sorted(range(len(items)), key=lambda place: -items[place][1] / items[place][0])
    choices = []
    for buffer in {0, *(size for size, _ in items)}:
        copied = {place for place, (size, _) in enumerate(items) if size <= buffer}
        free = room - buffer - sum(size for size, _ in items if size > buffer)
        if free < 0:
            continue
        for place in most_saved:
            if place in copied and items[place][0] <= free:
                copied.remove(place)
                free -= items[place][0]
        choices.append(copied)
    return min(choices, key=lambda copied: sum(items[place][1] for place in copied))


def measured_copies(rows: Iterable[Row]) -> dict[str, Copies]:
    """Memory of the host -> copies of contiguous tensors of float32 from there to the device,
    without waiting for each: values, dtype and layout may change what a copy costs.
    """
    found: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        operator_tuple = OperatorTuple.from_json(row["canonical_json"])
        copy = copy_of(operator_tuple)
        if copy is None or not copy.is_to_device or row["status"] != "ok":
            continue
        plain = TensorSpec(copy.to.shape, "float32")
        is_plain = copy.to == plain == replace(copy.source, memory=None)
        if is_plain and dict(operator_tuple.arguments).get("non_blocking") is True:
            found[copy.memory][copy.to.bytes] = row
    return {
        memory: dict(sorted(found[memory].items())) for memory in HOST_MEMORIES if memory in found
    }


def copy_cost(copies: Copies, size: int, quantity: Quantity) -> Estimate | None:
    """Time or energy of a copy of `size` bytes; None if a measured copy lacks it.

    A copy takes a latency and its bytes at the bandwidth of the link: between measured sizes, the
    cost is linear. Below the smallest, it is at most the smallest copy's. Beyond the largest, it
    grows in proportion, with an unknown error and no interval.
    """
    known = [each for row in copies.values() if (each := quantity.read(row))]
    if len(known) < len(copies):
        return None
    sizes = list(copies)
    within = min(max(size, sizes[0]), sizes[-1])
    above = bisect_left(sizes, within)
    near = slice(max(above - _NEAR, 0), above + _NEAR)
    cost = mean_cost(sizes[near], known[near], [within])
    if size < sizes[0]:
        return Estimate(cost.value, None if cost.high is None else 0.0, cost.high)
    if size > sizes[-1]:
        return Estimate(size / sizes[-1] * cost.value, None, None)
    return cost


def _on_target(memory: OffloadMemory, explanation: Explanation) -> Offload:
    path, conditions_id = explanation.database, explanation.conditions_id
    table = read_database(path, _COLUMNS, conditions_id=conditions_id)
    table = table.filter(pc.equal(table["target"], explanation.target))
    [first] = table.slice(0, 1).to_pylist()  # a target is known by its rows
    rows = table.filter(pc.equal(table["operator"], COPY)).to_pylist()
    largest = max((each.bytes for group in memory.groups for each in group.weights), default=0)
    measured = {
        host: copies
        for host, copies in measured_copies(rows).items()
        if largest <= _BEYOND * max(copies)
    }
    on_processor = comparability.host_sets_pace(first)
    reason = None
    if on_processor:
        reason = "it is a processor, whose memory holds the weights"
    elif not memory.fits and not measured:
        reason = (
            "no copy from the host to the device is measured there, or none nearly as large as "
            f"its largest weights. To measure copies of 4 KiB to 256 MiB: {_REMEDY}"
        )
    elif not memory.fits:
        reason = comparability.conflict([*explanation.estimate.rows, *rows])
    return Offload(memory, explanation, measured, on_processor, reason)


def _total(copies: Copies, groups: Iterable[WeightGroup], quantity: Quantity) -> Estimate | None:
    """The cost of the copies of groups in a pass; their errors are taken to have one cause."""
    costs = [
        (group.uses, copy_cost(copies, weight.bytes, quantity))
        for group in groups
        for weight in group.weights
    ]
    known = [(uses, cost) for uses, cost in costs if cost is not None]
    return correlated_sum(known) if len(known) == len(costs) else None


def _larger(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(first, second)
