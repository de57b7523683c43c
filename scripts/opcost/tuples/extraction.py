"""Extract the operator calls of a model, with the module of each.

The model runs on fake tensors, which have shapes but no values: nothing is computed, and neither
weights nor inputs need memory. If sizes depend on values, it runs on real tensors.
"""

import copy
import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.models.construction import (
    build,
    empty_inputs,
    example_inputs,
    inference_conditions,
    input_bytes,
    without_initialisation,
)
from opcost.models.definition import ModelDefinition
from opcost.models.process_state import ProcessState
from opcost.models.user_code import check_threads, location, message, user_code
from opcost.tuples import work
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.recorder import Call, Recorder, module_path
from opcost.tuples.replay import tensors_in_tree
from opcost.tuples.tuple_record import TupleRecord

_MOST_WORK = 2**63


class SizesDependOnValues(OpcostError):
    """A model executes an operator whose output sizes fake tensors cannot determine."""


@dataclass(frozen=True)
class Extraction:
    """A model's calls and the number of its parameters.

    `value_dependent` are the tuples whose sizes, or those of their results, depend on values: they
    do not occur with another seed of weights and inputs. `calls_vary` if a second run of the user's
    own code executed other calls.
    """

    calls: tuple[Call, ...]
    parameters: int
    value_dependent: frozenset[OperatorTuple] = frozenset()
    calls_vary: bool = False


def extract_model_tuples(
    definition: ModelDefinition, search_path: Path | None = None
) -> ModelTuples:
    """The calls of a model and its distinct tuples, with FLOPs and bytes.

    Raises OpcostError like `extract`; for a model selected by `torchvision`, the result holds the
    reason instead.
    """
    if definition.model is not None:
        import torchvision  # noqa: F401  not part of the extraction's time
    started = time.perf_counter()
    refusal = None
    try:
        extraction = extract(definition, search_path)
    except OpcostError as error:
        if not definition.zoo:
            raise
        extraction = Extraction((), 0)
        refusal = str(error).removeprefix(f"model {definition.name}: ")
    if extraction.calls_vary:
        print(
            f"opcost: model {definition.name} executes different calls from run to run: the "
            "operators are those of one run",
            file=sys.stderr,
        )
    tuples, calls = _distinct(extraction)
    return ModelTuples(
        definition.name,
        tuple(tuples),
        tuple(calls),
        extraction.parameters if refusal is None else None,
        str(torch.__version__),
        definition,
        time.perf_counter() - started,
        refusal,
    )


def extract_module_tuples(module: nn.Module, inputs: list[Any], name: str) -> ModelTuples:
    """The calls of a live module in eval mode and its distinct tuples, with FLOPs and bytes.

    `inputs` are its positional arguments: tensors or lists of tensors. The module is not modified,
    and nothing is computed. Raises OpcostError if it cannot run on these inputs, or executes an
    operator whose output sizes depend on values.
    """
    started = time.perf_counter()
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    held = [*module.parameters(), *module.buffers()]
    # With fake tensors as memo, deepcopy copies no real tensors.
    fake = {id(tensor): fake_mode.from_tensor(tensor.data) for tensor in held}
    copied = copy.deepcopy(module, fake).eval()
    with fake_mode:
        extraction = _record(copied, tree_map(fake_mode.from_tensor, inputs), name)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    tuples, calls = _distinct(extraction)
    return ModelTuples(
        name,
        tuple(tuples),
        tuple(calls),
        parameters,
        str(torch.__version__),
        extraction_s=time.perf_counter() - started,
    )


def extract(definition: ModelDefinition, search_path: Path | None = None) -> Extraction:
    """Run a model on fake tensors, or on real ones if necessary, and record its calls.

    Raises OpcostError when the model cannot be built or cannot run on its inputs.
    """
    state, threads = ProcessState(), set(threading.enumerate())
    try:
        with without_initialisation():
            module = build(definition, search_path)
        check_threads(threads, definition.name)
        state.restore(definition.name)
        needed = input_bytes(definition) + sum(
            tensor.nbytes for tensor in [*module.parameters(), *module.buffers()]
        )
        try:
            extraction = _extract_definition(module, definition)
        except SizesDependOnValues:
            extraction = _extract_by_running(definition, search_path, needed)
        state.restore(definition.name)
        check_threads(threads, definition.name)
        return extraction
    finally:
        state.reset()


def extract_module(module: nn.Module, inputs: list[Any], name: str) -> Extraction:
    """Record the calls of a built module in eval mode; its parameters become fake tensors.

    `inputs` are its positional arguments: tensors, or lists of them. Raises SizesDependOnValues.
    """
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    _make_fake(module, fake_mode)
    fake_inputs = tree_map(fake_mode.from_tensor, inputs)
    with fake_mode:
        return _record(module, fake_inputs, name)


def _extract_definition(module: nn.Module, definition: ModelDefinition) -> Extraction:
    """Record the calls on fake inputs; for user code, run twice to compare the calls."""
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    _make_fake(module, fake_mode)
    with fake_mode:
        extraction = _record(module, empty_inputs(definition), definition.name)
        if definition.factory is None:
            return extraction
        other = _record(module, empty_inputs(definition), definition.name)
    return replace(extraction, calls_vary=other.calls != extraction.calls)


def _extract_by_running(
    definition: ModelDefinition, search_path: Path | None, needed: int
) -> Extraction:
    """Run with the definition's seed and with another seed, to detect value dependence."""
    if needed > (free := free_bytes()):
        raise OpcostError(
            f"model {definition.name}: its operators depend on values, so it must run on real "
            f"tensors, and its parameters and inputs need {gib(needed)}; {gib(free)} are free. Use "
            "smaller inputs"
        )
    extraction, other = (
        _record(build(seeded, search_path), example_inputs(seeded), seeded.name)
        for seeded in (definition, replace(definition, seed=definition.seed + 1))
    )
    outputs: dict[OperatorTuple, set[tuple[TensorSpec, ...]]] = defaultdict(set)
    for call in (*extraction.calls, *other.calls):
        outputs[call.operator_tuple].add(call.outputs)
    in_other = {call.operator_tuple for call in other.calls}
    dependent = {key for key, kinds in outputs.items() if key not in in_other or len(kinds) > 1}
    return replace(extraction, value_dependent=frozenset(dependent))


def _record(module: nn.Module, inputs: list[Any], name: str) -> Extraction:
    parameters = sum(parameter.numel() for parameter in module.parameters())
    with module_path(module) as where:
        recorder = Recorder(where, module)
        try:
            with inference_conditions(), _errors_said_once(), recorder, user_code():
                module(*inputs)
        except OpcostError:
            raise
        except Exception as error:
            raise _why_not(error, name, tensors_in_tree(inputs), where()) from error
    return Extraction(tuple(recorder.calls), parameters)


@contextmanager
def _errors_said_once() -> Iterator[None]:
    """Silence PyTorch's log of tracebacks, which would hide opcost's message."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled


def _distinct(extraction: Extraction) -> tuple[list[TupleRecord], list[tuple[int, str, str]]]:
    """The distinct tuples, and the calls with the index of their tuple."""
    positions: dict[OperatorTuple, int] = {}
    tuples: list[TupleRecord] = []
    calls = []
    for call in extraction.calls:
        position = positions.setdefault(call.operator_tuple, len(tuples))
        dependent = call.operator_tuple in extraction.value_dependent
        if position == len(tuples):
            tuples.append(tuple_record(call, dependent))
        elif call.outputs != tuples[position].outputs:
            tuples[position] = tuples[position].joined(tuple_record(call, dependent))
        tuples[position] = tuples[position].holding(call.parameters)
        calls.append((position, call.module_path, call.module_class))
    _check_work(tuples, calls)
    return tuples, calls


def _check_work(tuples: list[TupleRecord], calls: list[tuple[int, str, str]]) -> None:
    """Raise OpcostError for more FLOPs or bytes than a column of integers can hold."""
    flops = sum(tuples[position].flops or 0 for position, _, _ in calls)
    moved = sum(tuples[position].bytes for position, _, _ in calls)
    if max(flops, moved) >= _MOST_WORK:
        raise OpcostError(
            f"one run takes {flops:.2g} FLOPs on {gib(moved)}, more than opcost can count: use "
            "smaller inputs"
        )


def tuple_record(call: Call, value_dependent: bool = False) -> TupleRecord:
    """The tuple of a call, with its FLOPs and bytes."""
    flops: int | None = 0
    moved = 0
    if call.launches_kernel:
        moved = work.minimal_bytes(call.operator_tuple, call.outputs)
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


def _make_fake(module: nn.Module, fake_mode: FakeTensorMode) -> None:
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    # Wrapping it as a parameter doubles the time, and forward does not need it.
                    tensors[name] = fake_mode.from_tensor(tensor.data)  # type: ignore[assignment]


def _why_not(
    error: Exception, name: str, inputs: list[torch.Tensor], where: tuple[str, str]
) -> OpcostError:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
    path, module_class = where
    place = f"in {path!r} ({module_class})" if path else f"in {module_class}"
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return SizesDependOnValues(
            f"model {name}: {place} the operator {error} has an output that depends on values, "
            "not on sizes alone"
        )
    first_line = message(error).splitlines()[0].rstrip(".")
    return OpcostError(
        f"model {name} cannot run on inputs of shape {shapes}: {place}: {first_line}"
        f"{location(error)}. Check its inputs and this module"
    )
