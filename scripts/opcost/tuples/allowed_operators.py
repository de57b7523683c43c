"""Which operators a tuple may call: those that compute on tensors and reach nothing else.

Decided by the operator's schema. A tuple may come from a stranger, and its arguments with it:
`aten` also has operators that write files, print, or change settings of the process.
"""

import re

import torch

ALLOWED_NAMESPACES = ("aten", "torchvision")
"""Libraries whose operators may be called."""

TEXTS = {
    "activation",
    "algorithm",
    "approximate",
    "driver",
    "equation",
    "indexing",
    "interpolation",
    "mode",
    "norm",
    "ord",
    "p",
    "pad_mode",
    "padding",
    "padding_side",
    "reduce",
    "rounding_mode",
    "side",
    "UPLO",
}
"""Arguments of text that choose how to compute. Others name files, or are printed."""

_OF_THE_REPLAY = {"Device", "Generator"}

_VALUES = {"Tensor", "int", "float", "bool", "number", "ScalarType", "Layout", "MemoryFormat"}


def refusal(operator: torch._ops.OpOverload) -> str | None:
    """Why an operator may not be called; None if it may."""
    schema = operator._schema
    name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if not torch._C._dispatch_has_kernel(name):
        return "it is no operator of the dispatcher: TorchScript alone has it"
    for argument in schema.arguments:
        reason = _reach(argument)
        if reason is not None:
            return f"its argument {argument.name!r} {reason}"
    if not any("Tensor" in _kinds(each) for each in [*schema.arguments, *schema.returns]):
        return "it neither takes tensors nor returns any"
    return None


def given_by_replay(argument: torch._C.Argument) -> bool:
    """Whether an argument is a device or a generator, of which a tuple must say nothing."""
    return bool(_kinds(argument) & _OF_THE_REPLAY)


def _kinds(argument: torch._C.Argument) -> set[str]:
    """The types in an argument's type: those of `Optional[List[int]]` are `{"int"}`."""
    return set(re.findall(r"[\w.]+", str(argument.real_type))) - {"Optional", "List"}


def _reach(argument: torch._C.Argument) -> str | None:
    """How an argument reaches beyond tensors and numbers."""
    found = _kinds(argument)
    if "str" in found:
        return None if argument.name in TEXTS else "is text that may name a file or be shown"
    other = sorted(found - _VALUES - _OF_THE_REPLAY)
    return f"is a {' '.join(other)}" if other else None
