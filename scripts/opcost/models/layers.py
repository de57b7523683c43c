"""A module of a model as a model of its own: run alone, on the arguments that it gets in the model.

The model runs once to find these arguments. The module then finds the same values, shapes and
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
    """What an iteration of the definition runs, and with which arguments: the model itself with its
    own, or its layer with those that it gets.

    Raises OpcostError if the model has no such layer or does not call it; errors of `LACK_VALUES`
    are raised as they are.
    """
    if definition.layer is None:
        return run, inputs
    where = f"model {definition.name}"
    layer = _layer(module_of(run), definition.layer, where)
    given: list[Arguments] = []

    def keep(_: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not given:
            given.append(_kept(Arguments(args, dict(kwargs))))

    hook = layer.register_forward_pre_hook(keep, with_kwargs=True)
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
    return _alone(layer, definition.autocast), given[0]


def _kept(arguments: Arguments) -> Arguments:
    """The arguments as they are now: later calls and operators in place may change them.

    What is one tensor, or one memory, stays one: modules test that, and layouts decide on kernels.
    """
    if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(arguments)):
        return arguments  # they have no values
    return copy.deepcopy(arguments)


def _alone(layer: nn.Module, autocast: str | None) -> Runnable:
    return layer if autocast is None else MixedInference(layer, autocast)


def _layer(module: nn.Module, path: str, where: str) -> nn.Module:
    modules = dict(module.named_modules())
    if path not in modules:
        raise OpcostError(f"{where}: the model has no module {path!r}. {closest(path, modules)}")
    return modules[path]
