"""Trace the calls that a model makes on a target's device, and the values of their tensors."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from opcost.devices.device import Device
from opcost.measuring.supervision import Supervision, check_inputs_fit
from opcost.models.conditions import conditions
from opcost.models.construction import build
from opcost.models.definition import ModelDefinition
from opcost.models.iteration import iteration_of
from opcost.models.operator_calls import OperatorCalls
from opcost.models.source import ChangedSource
from opcost.models.user_code import reason, user_code
from opcost.text import shortened
from opcost.tuples.calls import ModelCalls, recorded_calls
from opcost.tuples.description import describe
from opcost.tuples.extraction import distinct_tuples
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.replay import tensors_in_tree

_MAX_REASON = 1000


def trace_on(
    device: Device, definition: ModelDefinition, search_path: Path, extracted: ModelTuples
) -> ModelTuples:
    """A model's tuples and calls in its first run on a device.

    If it cannot run there, the extracted ones, with the reason: the model's measurement, which
    compares them with its calls, fails for the same reason. Raises ChangedSource if the model has
    changed since its extraction.
    """
    if extracted.refusal is not None:
        return replace(extracted, device_name=device.model_name)
    started = time.perf_counter()
    try:
        with device.within_free_memory():
            executed = _traced(device, definition, search_path)
        tuples, calls = distinct_tuples(_marked(executed, extracted))
    except ChangedSource:
        raise
    except Exception as error:
        return replace(
            extracted,
            device_name=device.model_name,
            not_recorded=shortened(reason(error), _MAX_REASON),
        )
    return replace(
        extracted,
        tuples=tuple(tuples),
        calls=tuple(calls),
        torch_version=str(torch.__version__),
        extraction_s=time.perf_counter() - started,
        device_name=device.model_name,
        activation_peak_bytes=executed.memory.peak_bytes if executed.memory else None,
        memory=executed.memory,
    )


def _traced(
    device: Device,
    definition: ModelDefinition,
    search_path: Path | None,
    watch: AbstractContextManager[Any] | None = None,
) -> ModelCalls:
    """The calls of the model as it is measured: with the weights and inputs of its definition. It
    runs inside `watch`.
    """
    check_inputs_fit(definition, device)
    where = device.torch_device
    with conditions(definition.trains), user_code():
        module = build(definition, search_path).to(where)
        run, inputs, _ = iteration_of(definition, module, search_path, device=where)
        args, kwargs = inputs.to(where)
    with watch or nullcontext():
        return recorded_calls(run, args, kwargs, definition.name, where, from_config=True)


class _FirstCall(OperatorCalls):
    """Keeps a copy of the tensors of the first call of an operator tuple."""

    def __init__(self, wanted: OperatorTuple) -> None:
        super().__init__()
        self._wanted = wanted
        self.tensors: list[torch.Tensor] | None = None

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.tensors is None and describe(func, args, kwargs) == self._wanted:
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            held = [given[name] for name, _ in self._wanted.arguments]
            self.tensors = [each.detach().clone() for each in tensors_in_tree(held)]
        return func(*args, **kwargs)


def values_in_model(
    device: Device, operator_tuple: OperatorTuple, model: str, search_path: Path | None
) -> list[torch.Tensor] | None:
    """The tensors of a tuple's first call in a model, by its definition as JSON, in the order of
    `OperatorTuple.tensors`. None if the model makes no such call on the device.
    """
    definition = ModelDefinition.from_json(model)
    supervision = Supervision(definition.name, device.torch_device)
    first = _FirstCall(operator_tuple)
    with torch.inference_mode(False):
        _traced(device, definition, search_path, first)
    supervision.settle()
    return first.tensors


def _marked(executed: ModelCalls, extracted: ModelTuples) -> ModelCalls:
    """The calls, with the tuples whose sizes depend on values.

    Extraction finds these with a second seed. If it found some, additional tuples on the device are
    additional such sizes.
    """
    known = {record.operator_tuple: record.value_dependent for record in extracted.tuples}
    if not any(known.values()):
        return executed
    made = {call.operator_tuple for call in executed.calls}
    dependent = frozenset(each for each in made if known.get(each, True))
    return replace(executed, value_dependent=dependent)
