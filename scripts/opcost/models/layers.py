"""Isolated modules: a module of a model, run on the arguments that it gets in the model.

The model runs once to record these arguments. The module then finds the same values, shapes and
layouts as inside the model, and is measured like any model, for as long as a power sensor needs.
"""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError, closest
from opcost.models.construction import conditions
from opcost.models.definition import ModelDefinition
from opcost.models.inputs import Arguments
from opcost.models.iteration import MixedInference, Runnable, module_of
from opcost.models.user_code import reason, user_code

LACK_VALUES = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
)
"""Errors of fake tensors where sizes or control flow depend on values."""


def narrowed(
    run: Runnable, inputs: Arguments, definition: ModelDefinition
) -> tuple[Runnable, Arguments]:
    """The runnable of a definition and its arguments: the model, or the isolated module with the
    arguments that it gets.

    Raises OpcostError if the model has no such module or does not call it; errors of `LACK_VALUES`
    pass unchanged.
    """
    if definition.layer is None:
        return run, inputs
    where = f"model {definition.name}"
    modules = dict(module_of(run).named_modules())
    if definition.layer not in modules:
        raise OpcostError(
            f"{where}: the model has no module {definition.layer!r}. "
            f"{closest(definition.layer, modules)}"
        )
    module = modules[definition.layer]
    given: list[Arguments] = []

    def keep(_: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not given:
            given.append(_kept(Arguments(args, dict(kwargs))))

    hook = module.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with conditions(trained=False), user_code():
            run(*inputs.args, **inputs.kwargs)
    except Exception as error:
        if type(error).__name__ in LACK_VALUES:
            raise
        raise OpcostError(f"{where}: its forward failed: {reason(error)}") from error
    finally:
        hook.remove()
    if not given:
        raise OpcostError(
            f"{where}: its forward does not call the module {definition.layer}, which therefore "
            "has no arguments: name one that it calls"
        )
    narrow = module if definition.autocast is None else MixedInference(module, definition.autocast)
    return narrow, given[0]


def _kept(arguments: Arguments) -> Arguments:
    """A copy of the arguments, because later calls and in-place operators may change them.

    Shared tensors and memory stay shared: modules test that, and layouts affect kernels.
    """
    if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(arguments)):
        return arguments  # they have no values
    return copy.deepcopy(arguments)
