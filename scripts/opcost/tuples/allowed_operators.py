"""The operators that a tuple may call: those that compute on tensors without other effects.

The operator's schema decides. Tuples and their arguments may come from untrusted sources, and
`aten` also has operators that write files, print, or change settings of the process.
"""

import re

import torch

ALLOWED_NAMESPACES = ("aten", "torchvision")
"""Namespaces of the libraries whose operators may be called."""

TEXTS = {
    *("activation", "algorithm", "approximate", "driver", "equation", "indexing", "interpolation"),
    *("mode", "norm", "ord", "p", "pad_mode", "padding", "padding_side", "reduce"),
    *("rounding_mode", "side", "UPLO"),
}
"""Text arguments that select an algorithm. Other text arguments name files or are printed."""

OPAQUE = {
    "aten::mkldnn_rnn_layer_backward": "it reads a workspace whose content only oneDNN knows. In "
    "the model's forward, call the LSTM under torch.backends.mkldnn.flags(enabled=False), as in "
    "docs/how_to/train.md"
}
"""Operators whose operands cannot be generated, because wrong ones crash the process, with what to
do instead. They cannot be allowed.
"""

_OF_THE_REPLAY = {"Device", "Generator"}

_VALUES = {"Tensor", "int", "float", "bool", "number", "ScalarType", "Layout", "MemoryFormat"}


def refusal(operator: torch._ops.OpOverload) -> str | None:
    """Why an operator may not be called; None if it may."""
    schema = operator._schema
    name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if not torch._C._dispatch_has_kernel(name):
        return "it exists only in TorchScript, not in the dispatcher"
    if schema.name in OPAQUE:
        return OPAQUE[schema.name]
    for argument in schema.arguments:
        reason = _reach(argument)
        if reason is not None:
            return f"its argument {argument.name!r} {reason}"
    if not any("Tensor" in _kinds(each) for each in [*schema.arguments, *schema.returns]):
        return "it neither takes nor returns tensors"
    return None


def given_by_replay(argument: torch._C.Argument) -> bool:
    """Whether an argument is a device or a generator, which a tuple must not contain."""
    return bool(_kinds(argument) & _OF_THE_REPLAY)


def _kinds(argument: torch._C.Argument) -> set[str]:
    """The types in an argument's type: those of `Optional[List[int]]` are `{"int"}`."""
    return set(re.findall(r"[\w.]+", str(argument.real_type))) - {"Optional", "List"}


def _reach(argument: torch._C.Argument) -> str | None:
    """Why an argument may have effects beyond tensors and numbers, or None."""
    found = _kinds(argument)
    if "str" in found:
        return None if argument.name in TEXTS else "is text that may name a file or be shown"
    other = sorted(found - _VALUES - _OF_THE_REPLAY)
    return f"is a {' '.join(other)}" if other else None
