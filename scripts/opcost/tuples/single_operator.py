"""The call of an isolated operator: from its definition to its tuple.

It runs on fake tensors, as models do. A call that is impossible is refused with PyTorch's reason
before anything is measured; the tuple equals that of a model that makes the same call.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from opcost.errors import OpcostError, closest
from opcost.models.conditions import conditions
from opcost.models.definition import ModelDefinition, SingleOperator
from opcost.models.iteration import LACK_VALUES
from opcost.models.user_code import message
from opcost.tuples.calls import ModelCalls, without_logged_tracebacks
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, Value
from opcost.tuples.parsing import Unstated, parse
from opcost.tuples.places import Place
from opcost.tuples.recorder import Call, Recorder
from opcost.tuples.replay import empty_tensor, on_device, rebuild

_HOST = torch.get_default_device()
_WEIGHTS = ("weight", "bias", "running_mean", "running_var", "params")
"""Endings of the names of arguments that are weights or buffers in models."""


def operator_calls(definition: ModelDefinition, operator: SingleOperator) -> ModelCalls:
    """The only call of an operator's definition.

    Raises OpcostError if the operator cannot be called, or if there is nothing to measure.
    """
    try:
        asked = _asked(definition, operator)
        parameters = _parameters(asked, operator.parameters)
        call = _called(asked, parameters)
    except OpcostError as error:
        raise OpcostError(f"operator {definition.name}: {error}") from error
    weights = sum(spec.elements for name, spec in asked.tensors if name in parameters)
    return ModelCalls((call,), {"": weights})


def _asked(definition: ModelDefinition, operator: SingleOperator) -> OperatorTuple:
    """The tuple of the call. Raises OpcostError for a setting that no tensor leaves open."""
    layout = definition.memory_format if definition.memory_format != "contiguous" else None
    settings, usual = Unstated(definition.dtype or "float32", layout, operator.zeros), Unstated()
    asked = parse(operator.call, settings)
    for key, value in settings._asdict().items():
        without = settings._replace(**{key: getattr(usual, key)})
        if without != settings and parse(operator.call, without) == asked:
            raise OpcostError(
                f"{key}: {value} changes nothing, because no tensor of {operator.call} leaves it "
                f"open: leave out {key}, or what the tensors state"
            )
    return asked


def _parameters(asked: OperatorTuple, named: Sequence[str] | None) -> Collection[str]:
    """The arguments that are weights. Raises OpcostError for another name."""
    tensors = dict.fromkeys(name for name, _ in asked.tensors)
    if named is None:
        return [name for name in tensors if name.endswith(_WEIGHTS)]
    for name in named:
        if name not in tensors:
            raise OpcostError(
                f"parameters: {name!r} is no tensor of {asked}, whose tensors are "
                f"{', '.join(tensors) or 'none'}. {closest(name, tensors)}".rstrip()
            )
    return named


def _called(asked: OperatorTuple, parameters: Collection[str]) -> Call:
    with FakeTensorMode(allow_non_fake_inputs=True):
        try:
            tensors = [empty_tensor(spec, _HOST) for _, spec in asked.tensors]
            held = [
                tensor
                for tensor, (name, _) in zip(tensors, asked.tensors, strict=True)
                if name in parameters
            ]
            run = on_device(rebuild(asked, tensors), _HOST)
            with (
                conditions(trained=False),
                without_logged_tracebacks(),
                Recorder(lambda: Place("", ""), held) as recorder,
            ):
                run()
        except OpcostError:
            raise
        except Exception as error:
            raise _why_not(asked, error) from error
    made = recorder.calls
    if len(made) != 1:
        raise OpcostError(
            f"{asked} calls other operators ({', '.join(call.operator_tuple.name for call in made)}"
            "): name one of these"
        )
    [call] = made
    if not call.launches_kernel:
        raise OpcostError(f"{asked} moves no data, so there is nothing to measure")
    return replace(call, operator_tuple=_as_asked(asked, call.operator_tuple))


def _why_not(asked: OperatorTuple, error: Exception) -> OpcostError:
    if type(error).__name__ in LACK_VALUES:
        return OpcostError(
            f"the sizes of what {asked} returns depend on values, which only a model gives: "
            "measure a model that calls it"
        )
    return OpcostError(
        f"{asked} cannot be called: {message(error).splitlines()[0].rstrip('.')}. Change the call, "
        "or leave this combination of axes out (skip in a config)"
    )


def _as_asked(asked: OperatorTuple, described: OperatorTuple) -> OperatorTuple:
    """The described call with the requested shares of zeros and memories."""
    specs = (spec for _, spec in asked.tensors)

    def restored(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(restored, value))
        if not isinstance(value, TensorSpec):
            return value
        wanted = next(specs)
        return replace(value.with_zeros(wanted.zeros), memory=wanted.memory)

    arguments = ((name, restored(value)) for name, value in described.arguments)
    return replace(described, arguments=tuple(arguments))
