"""Extract the distinct operator tuples of a model, with FLOPs and bytes, and its calls of them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError
from opcost.memory import gib
from opcost.models.conditions import active_autocast
from opcost.models.construction import dtypes_of, parameter_dtypes
from opcost.models.definition import InputSpec, ModelDefinition, usual_dtype
from opcost.terminal import tell
from opcost.tuples import work
from opcost.tuples.calls import ModelCalls, live_module_calls, model_calls
from opcost.tuples.model_tuples import ModelCall, ModelTuples
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.recorder import Call
from opcost.tuples.replay import OpaqueOperator, UnsupportedOperator, tensors_in_tree
from opcost.tuples.single_operator import operator_calls
from opcost.tuples.tuple_record import TupleRecord

_MAX_WORK = 2**63


def extract_model_tuples(
    definition: ModelDefinition, search_path: Path | None = None
) -> ModelTuples:
    """The calls of a model or an isolated operator and its distinct tuples, with FLOPs and bytes.

    Raises OpcostError like `model_calls` and `operator_calls`; for a model selected by
    `torchvision`, the result holds the reason instead.
    """
    if not isinstance(definition, ModelDefinition):
        raise OpcostError(
            f"the definition is of type {type(definition).__name__}: give a ModelDefinition, or a "
            "module and its inputs to extract_module_tuples"
        )
    if definition.model is not None:
        import torchvision  # noqa: F401  not part of the extraction's time
    started = time.perf_counter()
    refusal = None
    try:
        executed = _executed(definition, search_path)
    except OpcostError as error:
        if not definition.zoo:
            raise
        executed = ModelCalls((), {})
        refusal = str(error).removeprefix(f"model {definition.name}: ")
    return replace(_model_tuples(executed, definition, started), refusal=refusal)


def _model_tuples(executed: ModelCalls, definition: ModelDefinition, started: float) -> ModelTuples:
    name = definition.name
    if executed.calls_vary:
        tell(
            f"opcost: model {name} executes different calls from run to run: the operators are "
            "those of one run"
        )
    if executed.compiled:
        tell(
            f"opcost: model {name} has parts that torch.compile compiles: they run eagerly (to "
            "measure the model end to end compiled, add compiled to launch_modes)"
        )
    tuples, calls = distinct_tuples(executed)
    return ModelTuples(
        name,
        tuple(tuples),
        tuple(calls),
        executed.parameters.get(""),
        str(torch.__version__),
        definition,
        time.perf_counter() - started,
        activation_peak_bytes=executed.memory.peak_bytes if executed.memory else None,
        memory=executed.memory,
        weights=executed.weights,
        module_parameters=executed.parameters or None,
        dtypes=executed.dtypes,
        own_parameters=executed.own_parameters or None,
    )


def _executed(definition: ModelDefinition, search_path: Path | None) -> ModelCalls:
    if definition.operator is not None:
        return operator_calls(definition, definition.operator)
    return model_calls(definition, search_path)


def extract_module_tuples(
    module: nn.Module, inputs: Sequence[Any], name: str, kwargs: Mapping[str, Any] | None = None
) -> ModelTuples:
    """The calls of a live module in eval mode and its distinct tuples, with FLOPs and bytes.

    `inputs` are its positional and `kwargs` its keyword arguments: tensors, or values that contain
    tensors, such as dicts. The module is not modified, and nothing is computed. Inside
    torch.autocast, it runs in lower precision, which its definition records. Raises OpcostError if
    it cannot run on these inputs, or executes an operator whose output sizes depend on values.
    """
    started = time.perf_counter()
    executed = live_module_calls(module, inputs, name, {} if kwargs is None else kwargs)
    definition = _as_given(module, tensors_in_tree((inputs, kwargs)), name)
    return _model_tuples(executed, definition, started)


def _as_given(module: nn.Module, inputs: Sequence[torch.Tensor], name: str) -> ModelDefinition:
    """A definition that labels the results of a live module; it lacks the module's code."""
    dtype = usual_dtype(parameter_dtypes(module) or dtypes_of(inputs))
    specs = ((tuple(each.shape), str(each.dtype).removeprefix("torch.")) for each in inputs)
    return ModelDefinition(
        name,
        tuple(InputSpec(shape, None if kind == dtype else kind) for shape, kind in specs),
        dtype=dtype,
        autocast=active_autocast(module),
    )


def distinct_tuples(
    executed: ModelCalls,
) -> tuple[list[TupleRecord], list[ModelCall]]:
    """The distinct tuples, and the calls with the index of their tuple.

    Raises OpcostError for operators that may not be called, and for too many FLOPs or bytes.
    """
    positions: dict[OperatorTuple, int] = {}
    tuples: list[TupleRecord] = []
    calls = []
    for call in executed.calls:
        position = positions.setdefault(call.operator_tuple, len(tuples))
        dependent = call.operator_tuple in executed.value_dependent
        if position == len(tuples):
            tuples.append(tuple_record(call, dependent))
        elif call.outputs != tuples[position].outputs:
            tuples[position] = tuples[position].joined(tuple_record(call, dependent))
        tuples[position] = tuples[position].holding(call.parameters)
        calls.append(ModelCall(position, *call.place))
    _check_work(tuples, calls)
    return tuples, calls


def _check_work(tuples: list[TupleRecord], calls: list[ModelCall]) -> None:
    """Raise OpcostError for more FLOPs or bytes than an integer column can hold."""
    flops = sum(tuples[call.position].flops or 0 for call in calls)
    moved = sum(tuples[call.position].bytes for call in calls)
    if max(flops, moved) >= _MAX_WORK:
        raise OpcostError(
            f"one run takes {flops:.2g} FLOPs on {gib(moved)}, more than opcost can count: use "
            "smaller inputs"
        )


def tuple_record(call: Call, value_dependent: bool = False) -> TupleRecord:
    """The tuple of a call, with its FLOPs and bytes.

    Raises UnsupportedOperator, which names the module, for an operator that may not be called.
    """
    flops: int | None = 0
    moved = 0
    if call.launches_kernel:
        try:
            moved = work.minimal_bytes(call.operator_tuple, call.outputs)
        except UnsupportedOperator as error:
            path, kind, phase = call.place
            place = f"{path!r} ({kind})" if path else phase
            allow = ". To allow it, see docs/how_to/operators.md"
            remedy = "" if isinstance(error, OpaqueOperator) else allow
            raise UnsupportedOperator(f"in {place}: {error}{remedy}") from error
        try:
            flops = work.flops(call.operator_tuple)
        except Exception:  # an operator without a meta kernel: its FLOPs are unknown
            flops = None
    return TupleRecord(
        call.operator_tuple,
        call.outputs,
        call.launches_kernel,
        flops,
        moved,
        call.parameters,
        value_dependent,
    )
