"""The calls that a model executes, each with its module.

The model runs on fake tensors, which have shapes but no values: nothing is computed, and neither
weights nor inputs need memory. If sizes depend on values, it runs on real tensors.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map, tree_map_only

from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.models.conditions import ProcessState, conditions, masks_as_executed
from opcost.models.construction import (
    build,
    check_tensors,
    parameter_dtypes,
    replace_tensors,
    without_initialisation,
)
from opcost.models.definition import FORWARD, LOSS, OPTIMIZER, ModelDefinition, input_bytes
from opcost.models.inputs import Arguments
from opcost.models.iteration import (
    LACK_VALUES,
    Iteration,
    Runnable,
    copied,
    held_tensors,
    iteration_of,
    module_of,
    prepare,
)
from opcost.models.training import TrainingStep
from opcost.models.user_code import check_threads, located, message, reason, user_code
from opcost.models.zoo import library_of
from opcost.text import shortened
from opcost.tuples.index_limits import IndexLimits
from opcost.tuples.model_memory import ModelMemory
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.places import Place, places, raised_in
from opcost.tuples.recorder import Call, Recorder
from opcost.tuples.replay import storage, tensors_in_tree
from opcost.tuples.threads import operators_of_threads, threads_noticed
from opcost.tuples.weight_uses import WeightUses
from opcost.tuples.weights import WeightGroup

_AS_GIVEN = (
    "opcost passes what `inputs` of the model config says, by position or by name; "
    "docs/how_to/add_a_model.md shows dicts and other values"
)
_REMEDIES = {
    LOSS: "Check `loss` and its `targets`",
    OPTIMIZER: "Check `optimizer` and its arguments",
}
_REMEDY_OF = {
    r"offsets\[0\] has to be 0": "Random inputs are no offsets: compute them in forward, such as "
    "torch.arange(0, ids.numel(), ids.shape[1])",
    "backward through the graph a second time": "A gradient in forward frees its graph: give "
    "autograd.grad create_graph=True",
    "init_process_group": "Collectives are not supported: build the model for a single process",
    "calls functions": "Use an if, a loop or scaled_dot_product_attention in its place",
    r"\.numpy\(\)": "NumPy computes without operators of PyTorch: compute on tensors instead",
    "not require grad|inference (tensor|mode)": "Inference is run in torch.inference_mode, "
    "where forward cannot compute gradients: measure a training step, with `mode: training`, a "
    "loss, and create_graph=True in forward (docs/how_to/train.md)",
}
"""Pattern in the error of a module -> what to do."""
_HIGHER_ORDER = re.compile(r"HigherOrderOperator (\w+)")
_OF_FAKE_TENSORS = re.compile("FakeTensor|shape_env")
_OF_ONE_DTYPE = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"}
"""Operators that take tensors of one dtype, which fake tensors do not check."""

_MAX_MESSAGE = 300
_OF_ARGUMENTS = (TypeError, AttributeError, LookupError, ValueError)
"""Errors of a module that was given tensors instead of something else; sizes are RuntimeErrors."""


class SizesDependOnValues(OpcostError):
    """A model executes an operator whose output sizes fake tensors cannot determine."""


@dataclass(frozen=True)
class ModelCalls:
    """A model's calls, the parameters of its modules, and the memory of its results.

    `parameters` is the number of parameters in each module with its submodules, by path ("" is the
    model), where shared ones count once; `own_parameters` excludes submodules.

    `weights` are the model's weights by the calls that use them; None for a training step, which
    changes them. `dtypes` are the dtypes of the parameters. `memory` is that of an iteration.

    `value_dependent` are the tuples whose sizes, or sizes of results, depend on values: they do not
    occur with another seed of weights and inputs. `calls_vary` if a second run of the user's code
    made other calls. `compiled` if some are of parts that torch.compile would compile.
    """

    calls: tuple[Call, ...]
    parameters: Mapping[str, int]
    memory: ModelMemory | None = None
    value_dependent: frozenset[OperatorTuple] = frozenset()
    calls_vary: bool = False
    compiled: bool = False
    weights: tuple[WeightGroup, ...] | None = None
    dtypes: tuple[str, ...] = ()
    own_parameters: Mapping[str, int] = field(default_factory=dict)


def model_calls(definition: ModelDefinition, search_path: Path | None = None) -> ModelCalls:
    """Run a model on fake tensors, or on real ones if necessary, and record its calls.

    Raises OpcostError if the model cannot be built or cannot run on its inputs.
    """
    with threads_noticed() as threads:
        state = ProcessState()
        try:
            fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
            module = _built(definition, search_path, fake_mode)
            check_threads(threads, definition.name)
            state.restore(definition.name)
            definition = definition.stating(parameter_dtypes(module))
            needed = input_bytes(definition) + sum(
                tensor.nbytes for tensor in [*module.parameters(), *module.buffers()]
            )
            try:
                if _fake_tensors_mislead(definition):
                    raise SizesDependOnValues(f"model {definition.name}")
                found = _fake_calls(module, definition, search_path, fake_mode)
            except SizesDependOnValues:
                state.reset()
                found = _real_calls(definition, search_path, needed)
            state.restore(definition.name)
            check_threads(threads, definition.name)
            return found
        finally:
            state.reset()


def module_calls(module: nn.Module, inputs: list[Any], name: str) -> ModelCalls:
    """Record the calls of a built module in eval mode; its parameters become fake tensors.

    `inputs` are its positional arguments: tensors, or lists of them. Raises SizesDependOnValues.
    """
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    _make_fake(module, fake_mode)
    fake_inputs = tree_map(fake_mode.from_tensor, inputs)
    with fake_mode:
        return recorded_calls(module, fake_inputs, {}, name)


def live_module_calls(
    module: nn.Module, inputs: Sequence[Any], name: str, kwargs: Mapping[str, Any]
) -> ModelCalls:
    """The calls of a live module in eval mode: a copy of it runs on fake tensors.

    `inputs` are its positional and `kwargs` its keyword arguments: any values that contain tensors.
    Raises OpcostError.
    """
    _check_arguments(module, inputs, kwargs)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            return fake_mode.from_tensor(tensor.data)
        with fake_mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    try:
        check_tensors(module)
        # With fake tensors as memo, no real ones are copied.
        held = [*module.parameters(), *module.buffers()]
        run = copied(module, fake, {id(tensor): fake(tensor) for tensor in held}).eval()
    except Exception as error:
        raise OpcostError(f"model {name}: {reason(error)}") from error
    arguments, named = tree_map_only(torch.Tensor, fake, (list(inputs), kwargs))
    with fake_mode:
        return recorded_calls(run, arguments, named, name)


def _fake_tensors_mislead(definition: ModelDefinition) -> bool:
    """Whether fake tensors have other dtypes or layouts than a processor's kernels return: for the
    statistics of a normalisation in mixed precision, and for some gradients with channels last.
    """
    mixed = definition.autocast is not None or definition.memory_format != "contiguous"
    return definition.trains and mixed


def _built(
    definition: ModelDefinition, search_path: Path | None, fake_mode: FakeTensorMode
) -> nn.Module:
    """The module, of fake tensors if possible: models of libraries may be larger than the memory,
    and may initialise their weights themselves.
    """
    if library_of(definition.model) is not None:
        with suppress(OpcostError), fake_mode, without_logged_tracebacks():
            return build(definition, search_path)
    with without_initialisation():
        return build(definition, search_path)


def _fake_calls(
    module: nn.Module,
    definition: ModelDefinition,
    search_path: Path | None,
    fake_mode: FakeTensorMode,
) -> ModelCalls:
    """Record the calls on fake inputs; for user code, run twice to compare the calls.

    A model may cache results in its first run, such as a table of positions: if a third run makes
    the same calls as the second, these are the model's.
    """
    _make_fake(module, fake_mode)
    with fake_mode, masks_as_executed(definition):
        with _values_needed(definition.name):
            found = iteration_of(definition, module, search_path, empty=True)
        with IndexLimits(found.drawn):
            executed = _recorded(found, definition.name)
        if definition.factory is None:
            return executed
        second = _recorded(found, definition.name)
        if second.calls == executed.calls:
            return executed
        if _recorded(found, definition.name).calls == second.calls:
            return second
    return replace(executed, calls_vary=True)


def _real_calls(definition: ModelDefinition, search_path: Path | None, needed: int) -> ModelCalls:
    """Run with the definition's seed and with another seed, to detect value dependence."""
    if needed > (free := free_bytes()):
        raise OpcostError(
            f"model {definition.name}: its operators cannot be known from sizes alone, so it must "
            f"run on real tensors, and its parameters and inputs need {gib(needed)}; {gib(free)} "
            "are free. Use smaller inputs"
        )
    executed, other = (
        _recorded(iteration_of(seeded, build(seeded, search_path), search_path), definition.name)
        for seeded in (definition, replace(definition, seed=definition.seed + 1))
    )
    outputs: dict[OperatorTuple, set[tuple[TensorSpec, ...]]] = defaultdict(set)
    for call in (*executed.calls, *other.calls):
        outputs[call.operator_tuple].add(call.outputs)
    in_other = {call.operator_tuple for call in other.calls}
    dependent = {key for key, kinds in outputs.items() if key not in in_other or len(kinds) > 1}
    return replace(executed, value_dependent=frozenset(dependent))


@contextmanager
def _values_needed(name: str) -> Iterator[None]:
    """Raise SizesDependOnValues for errors of fake tensors that lack values."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in LACK_VALUES:
            raise
        raise SizesDependOnValues(f"model {name}: {error}") from error


def _recorded(found: Iteration, name: str) -> ModelCalls:
    return recorded_calls(found.run, *found.inputs, name, from_config=True)


def recorded_calls(
    run: Runnable,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    name: str,
    device: torch.device | None = None,
    *,
    from_config: bool = False,
) -> ModelCalls:
    """Run a module or a training step on its device, and record its calls.

    With a `device`, only operators that run there launch kernels. Errors of a model that is
    `from_config` say what a config can pass.

    Raises OpcostError if it cannot run, and SizesDependOnValues if inputs without values do not
    suffice.
    """
    module, trained = module_of(run), isinstance(run, TrainingStep)
    parameters, own_parameters = (
        {
            path: sum(parameter.numel() for parameter in each.parameters(recurse))
            for path, each in module.named_modules()
        }
        for recurse in (True, False)
    )
    weight_bytes, counted = dict[str, int](), set[int]()
    for path, each in module.named_modules():
        own = [*each.parameters(recurse=False), *each.buffers(recurse=False)]
        weight_bytes[path] = _bytes(own, counted)
    with (
        places(module, lambda: getattr(run, "phase", FORWARD)) as where,
        operators_of_threads() as elsewhere,
    ):
        try:
            with conditions(trained), without_logged_tracebacks(), user_code():
                prepare(run, Arguments(inputs, kwargs))
                weights = None if trained else WeightUses(module)
                with Recorder(where, held_tensors(run), device, weights) as recorder:
                    state = ProcessState()
                    output = run(*inputs, **kwargs)
                    state_bytes = _bytes(held_tensors(run)) - sum(weight_bytes.values())
                    # A mode that the model left active would end instead of the recorder.
                    state.restore(name)
        except OpcostError as error:
            named = str(error).startswith(f"model {name}: ")
            text = located(str(error), error)
            raise error if named else type(error)(f"model {name}: {text}") from error
        except Exception as error:
            tensors = tensors_in_tree((inputs, kwargs))
            place = Place(*raised_in(error, module), where().phase)
            raise _why_not(error, name, tensors, place, from_config) from error
    if isinstance(output, Iterator | Awaitable):
        raise OpcostError(
            f"model {name}: its forward returned a {type(output).__name__}, which computes when "
            "something reads it: return a tensor, or a list of tensors"
        )
    if elsewhere:
        raise OpcostError(
            f"model {name}: its forward executes operators in other threads ({elsewhere[0]}), "
            "which opcost cannot record: execute them in the thread that calls forward"
        )
    _check_dtypes(recorder.calls, name)
    return ModelCalls(
        tuple(recorder.calls),
        parameters,
        ModelMemory(recorder.lifetimes, weight_bytes, state_bytes),
        compiled=recorder.compiled,
        weights=None if weights is None else weights.groups(),
        dtypes=parameter_dtypes(module),
        own_parameters=own_parameters,
    )


def _bytes(tensors: Iterable[torch.Tensor], counted: set[int] | None = None) -> int:
    """Of the memory of tensors, each once, that is not yet `counted`."""
    counted, found = set() if counted is None else counted, 0
    for tensor in tensors:
        if (place := storage(tensor)) not in counted:
            counted.add(place)
            found += tensor.untyped_storage().nbytes()
    return found


def _check_dtypes(calls: Iterable[Call], name: str) -> None:
    """Raise OpcostError for a product of several dtypes, which PyTorch refuses."""
    for call in calls:
        operator = call.operator_tuple
        dtypes = {spec.dtype for _, spec in operator.tensors}
        if operator.name in _OF_ONE_DTYPE and len(dtypes) > 1:
            raise OpcostError(
                f"model {name} cannot run: {_in(call.place)}: {operator.name} takes tensors of "
                f"one dtype, and gets {', '.join(sorted(dtypes))}. Convert them in forward, or "
                "give the inputs another dtype"
            )


@contextmanager
def without_logged_tracebacks() -> Iterator[None]:
    """Silence PyTorch's log of tracebacks, which would hide opcost's message."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled


def _make_fake(module: nn.Module, fake_mode: FakeTensorMode) -> None:
    # Wrapping tensors as parameters doubles the time, and forward does not need it.
    replace_tensors(
        module,
        lambda tensor: (
            tensor if isinstance(tensor, FakeTensor) else fake_mode.from_tensor(tensor.data)
        ),
    )


def _why_not(
    error: Exception,
    name: str,
    inputs: list[torch.Tensor],
    where: Place,
    from_config: bool,
) -> OpcostError:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
    phase, place = where.phase, _in(where)
    if type(error).__name__ in LACK_VALUES:
        return SizesDependOnValues(
            f"model {name}: {place} the operator {error} has an output that depends on values, "
            "not on sizes alone"
        )
    first_line = located(_said(error), error)
    if _OF_FAKE_TENSORS.search(first_line):
        return SizesDependOnValues(
            f"model {name}: {place} it cannot run on tensors without values: {first_line}. "
            "From a model config, it runs on real ones"
        )
    remedy = _REMEDIES.get(phase, "Check its inputs and this module")
    for pattern, special in _REMEDY_OF.items():
        if re.search(pattern, first_line, re.IGNORECASE):
            remedy = special
    if phase == FORWARD and from_config and isinstance(error, _OF_ARGUMENTS):
        remedy += f". {_AS_GIVEN}"
    return OpcostError(
        f"model {name} cannot run on inputs {f'of shape {shapes}' if shapes else 'without tensors'}"
        f": {place}: {first_line}. {remedy}"
    )


def _in(place: Place) -> str:
    path, module_class, phase = place
    found = f"in {path!r} ({module_class})" if path else f"in {module_class}"
    return found if phase == FORWARD else f"{found}, {phase}"


def _said(error: Exception) -> str:
    """The first line of an error, or all of it if that line only begins a sentence."""
    text = message(error)
    if found := _HIGHER_ORDER.search(text):
        return f"the operator {found[1]} calls functions, whose operators cannot be recorded"
    first = text.splitlines()[0].rstrip(".")
    return shortened(" ".join(text.split()), _MAX_MESSAGE) if first.endswith(("(", ":")) else first


def _check_arguments(module: Any, inputs: Any, kwargs: Any) -> None:
    """Raise OpcostError unless these are a module and the arguments of its forward."""
    if not isinstance(module, nn.Module):
        kind = "a class" if isinstance(module, type) else f"of type {type(module).__name__}"
        raise OpcostError(
            f"the module is {kind}: give an instance of nn.Module, or a ModelDefinition to "
            "extract_model_tuples"
        )
    if not isinstance(inputs, list | tuple):
        raise OpcostError(
            f"the inputs are of type {type(inputs).__name__}: give a list of the positional "
            "arguments of forward, such as [x], and keyword arguments as kwargs"
        )
    if not isinstance(kwargs, Mapping):
        raise OpcostError(
            f"kwargs is of type {type(kwargs).__name__}: give a dict of the keyword arguments of "
            "forward, such as {'mask': mask}"
        )
