"""The memory of a device that a model needs, and a budget for it."""

from dataclasses import dataclass
from typing import Any

from opcost.errors import OpcostError
from opcost.models.construction import input_bytes
from opcost.text import scaled
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.weights import WeightGroup


@dataclass(frozen=True)
class OffloadMemory:
    """What a model has on its device during a pass, and the budget.

    `groups` are the weights that a pass reads, those that must be there together in a group.
    Workspaces of kernels, the context and the allocator's rounding are not counted.
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
        """The least budget: all weights are copied in."""
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


def offload_memory(model: ModelTuples, budget_bytes: int) -> OffloadMemory:
    """What the model needs within a budget of bytes.

    Raises OpcostError if the budget is too small, and for a model whose memory is not known.
    """
    definition = model.definition
    if definition is None or definition.operator is not None:
        raise OpcostError(f"--offload: {model.model} is no model with weights")
    if model.trains or definition.cached_tokens is not None:
        what = "a training step" if model.trains else "a step of generating text"
        kept = "gradients and optimizer state" if model.trains else "cached keys and values"
        raise OpcostError(
            f"--offload: {model.model} is {what}, which also keeps {kept} on the device, and the "
            "memory of inference alone is counted: give a model in mode inference, without "
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
            weights = (
                f", and its largest weights, those of {where}, {in_bytes(found.largest.bytes)}"
            )
        raise OpcostError(
            f"--offload {in_bytes(budget_bytes)} is too small for {model.model}: its inputs and "
            f"activations take {others} at their peak{weights}. Give at least "
            f"{found.least_bytes}B, or use smaller inputs"
        )
    return found


def in_bytes(size: int) -> str:
    """Bytes as the answer shows them."""
    return scaled(size, "B", 4)
