"""What a run cannot measure on its targets, as far as it is known before."""

from collections.abc import Iterable

from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError
from opcost.models.definition import ModelDefinition
from opcost.tuples.host_memory import copy_of


def refuse_copies_on_processor(
    definitions: Iterable[ModelDefinition], target: str, device: str
) -> None:
    """Raise OpcostError for a copy between a GPU and its host on a target that is a processor."""
    kind = kind_of(device)
    if kind is None or not kind.is_processor:
        return
    for definition in definitions:
        if definition.operator is None:
            continue
        from opcost.tuples.parsing import parse  # it imports PyTorch, so only for operators

        if copy_of(parse(definition.operator.call)) is not None:
            raise OpcostError(
                f"{definition.name} copies between the memory of a GPU and that of its host, and "
                f"target {target} is a processor (device {device}), which has one memory: leave it "
                "out there, or measure on a GPU (--device cuda)"
            )
