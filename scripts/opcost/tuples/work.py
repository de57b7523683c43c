"""FLOPs and minimum bytes moved of an operator tuple."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils.flop_counter import flop_registry

from opcost.errors import OpcostError
from opcost.models.operator_calls import OperatorCalls
from opcost.tuples.host_memory import copy_of
from opcost.tuples.operator_tuple import (
    ELEMENT_BYTES,
    OperatorTuple,
    TensorSpec,
    short_name,
    tensors_in,
)
from opcost.tuples.replay import empty_tensor, on_device, rebuild, resolve, tensors_in_tree

GROUPED_PRODUCTS = ("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
"""Products of one matrix with several, of which each takes part of its rows or columns."""

BAGS = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
"""Operators that sum entries of a table, bag by bag."""

TABLES = {
    **dict.fromkeys(("embedding", *BAGS), "weight"),
    **dict.fromkeys(("gather", "index", "index_select", "take"), "self"),
}
"""Operators that read some entries of an argument, with that argument: as many as they return, or
bags."""

_WRITTEN_IN_PART = {
    "index_add_": "source",
    "index_copy_": "source",
    "scatter_": "index",
    "scatter_add_": "index",
}
"""Operators that change as many elements of their first argument as another one has, with it."""

_META = torch.device("meta")


class UnknownFlops(OpcostError):
    """An operator without a formula, which may multiply and add along an axis."""


def flops(operator_tuple: OperatorTuple) -> int:
    """Floating-point operations of matrix products, convolutions and attention.

    A multiplication and an addition count 2, of complex numbers 8. An operator composed of others
    counts as these; one that is known to do something else (`_is_free`) counts 0. Raises
    UnknownFlops for any other operator, and the exceptions of the operator's call.
    """
    tensors = [empty_tensor(spec, _META) for _, spec in operator_tuple.tensors]
    call = on_device(rebuild(operator_tuple, tensors), _META)
    return _of_call(call.operator, call.args, call.kwargs, call)


_Given = Mapping[str, Any]
_Run = Callable[[], Any]
_Formula = Callable[[_Given, _Run], int]
"""The FLOPs of a call, given its arguments by name, and a function that returns its result."""


def _of_call(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], run: _Run
) -> int:
    names = (argument.name for argument in operator._schema.arguments)
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if (formula := _formula(operator)) is not None:
        is_complex = any(tensor.is_complex() for tensor in tensors_in_tree((args, kwargs)))
        return (4 if is_complex else 1) * formula(given, run)
    registered = flop_registry.get(operator.overloadpacket)
    if registered is not None and all(given.get(name) is None for name in _LENGTHS):
        return int(registered(*args, **kwargs, out_val=run()))
    if _is_free(operator, given):
        return 0
    key = _composition(operator)
    if registered is not None or key is None:
        raise UnknownFlops(f"the FLOPs of {operator} are unknown: it has no formula")
    with _Parts() as parts, torch.no_grad():
        operator._op_dk(key, *args, **kwargs)
    return parts.flops


class _Parts(OperatorCalls):
    """Sums the FLOPs of the calls that an operator is composed of."""

    flops = 0

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self.flops += _of_call(func, args, kwargs, lambda: result)
        return result


_COMPOSED = {"_euclidean_dist", "_foreach_mm", "_trilinear", "affine_grid_generator", "conv_tbc"}
"""Composed operators that have their own gradient."""

_LENGTHS = {"cum_seq_q", "cu_seqlens_q"}
"""Arguments whose values are the lengths of sequences, on which FLOPs depend."""

_KNOWN = ("aten", "torchvision")
"""Namespaces whose names of operators are meaningful."""


def _composition(operator: OpOverload) -> DispatchKey | None:
    """The dispatch key of an operator's kernel that only calls other operators, or None."""
    name = _name(operator)
    if re.search("fbgemm|wrapped", name):  # it calls a library
        return None
    keys = [DispatchKey.CompositeImplicitAutograd]
    if name in _COMPOSED:
        keys.append(DispatchKey.CompositeExplicitAutograd)
        keys.append(DispatchKey.CompositeExplicitAutogradNonFunctional)
    return next((key for key in keys if operator.has_kernel_for_dispatch_key(key)), None)


def _name(operator: OpOverload) -> str:
    """`addmm` for that operator and for its in-place form `addmm_`."""
    return short_name(str(operator)).rstrip("_")


def _formula(operator: OpOverload) -> _Formula | None:
    name = _name(operator)
    if name in _FORMULAS or name in _COMPOSED or operator.namespace not in _KNOWN:
        return _FORMULAS.get(name)
    convolves = re.search(r"conv(olution|_|\d)", name) and not _composition(operator)
    weighted = any(argument.name == "weight" for argument in operator._schema.arguments)
    return _convolution("transpose" in name) if convolves and weighted else None


def _dots(name: str) -> _Formula:
    """Each element of the result sums products along the last axis of an argument."""
    return lambda given, run: 2 * run().numel() * given[name].shape[-1]


def _grouped_product(given: _Given, run: _Run) -> int:
    """Each row of one matrix, or each column of the other, belongs to one group."""
    *groups, rows, inner = given["self"].shape
    *others, _, columns = given["mat2"].shape
    every = groups[0] if groups and others else 1
    return 2 * every * rows * inner * columns


def _convolution(transposed: bool) -> _Formula:
    """Each element of the output, or if transposed of the input, is multiplied by each weight of a
    filter; in backward, once for the gradient of the input, and once for that of the weight.
    """

    def count(given: _Given, run: _Run) -> int:
        gradient = given.get("grad_output", given.get("grad"))
        if given.get("transposed", transposed):
            met = given["input"] if "input" in given else given["self"]
        else:
            met = run() if gradient is None else gradient
        wanted = (True,) if gradient is None else given.get("output_mask", (True, True))[:2]
        return 2 * sum(wanted) * met.numel() * math.prod(given["weight"].shape[1:])

    return count


def _recurrent(given: _Given, run: _Run) -> int:
    """Each element of each sequence is multiplied by all weights; in backward, once for the
    gradient of the data, and once for that of the weights.
    """
    data = given["data"] if "data" in given else given["input"]
    listed = given.get("params", given.get("weight"))
    weights = [value for name, value in given.items() if re.fullmatch(r"weight\d", name)]
    elements = sum(each.numel() for each in listed or weights if each.dim() == 2)
    backward = "grad_output" in given
    passes = 1 + (backward and given.get("output_mask", (True,))[-1])
    return 2 * passes * elements * math.prod(data.shape[:-1])


def _attention_layer(given: _Given, run: _Run) -> int:
    """Projections of query, key, value and output, attention, and the two layers that follow."""
    query, key, value = (given.get(name, given.get("src")) for name in ("query", "key", "value"))
    width = given["embed_dim"]
    projected = (2 * query.numel() + key.numel() + value.numel()) * width
    attended = 2 * query.numel() * key.shape[1]
    followed = 2 * query.numel() * given["ffn_weight_1"].shape[0] if "ffn_weight_1" in given else 0
    return 2 * (projected + attended + followed)


_FORMULAS: dict[str, _Formula] = {
    **{
        name: _dots(argument)
        for argument, names in {
            "self": "mm bmm mv dot vdot _int_mm _scaled_mm _scaled_mm_v2 mkldnn_linear "
            "_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu "
            "_weight_int4pack_mm_with_scales_and_zeros",
            "mat1": "addmm _addmm_activation _scaled_addmm",
            "batch1": "baddbmm",
            "mat": "addmv",
            "inp": "_dyn_quant_matmul_4bit",
            "input": "_mixed_dtypes_linear",
        }.items()
        for name in names.split()
    },
    **dict.fromkeys(("addr", "ger", "outer"), lambda _, run: 2 * run().numel()),
    "addbmm": lambda given, run: 2 * given["batch1"].numel() * given["batch2"].shape[-1],
    **dict.fromkeys(GROUPED_PRODUCTS, _grouped_product),
    **dict.fromkeys(
        (
            *("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn_layer", "_cudnn_rnn"),
            *("miopen_rnn", "mkldnn_rnn_layer_backward", "_cudnn_rnn_backward"),
        ),
        _recurrent,
    ),
    "_native_multi_head_attention": _attention_layer,
    "_transformer_encoder_layer_fwd": _attention_layer,
}

_FREE = re.compile(
    # Copies, rearrangements and look-ups
    r"cat|stack|chunk_cat|clone|copy|to|fill|zero|(new_)?(full|ones|zeros|empty.*)|.*_(like|copy)"
    r"|lift.*|repeat.*|roll|flip|rot90|.*pad(_nd|\dd|(ded)?_.*sequence)|tri[lu]|(block_)?diag.*"
    r"|.*shuffle|(un)?fold|im2col|col2im|.*split.*|.*unsafe.*|index.*|.*scatter.*|gather|take|put"
    r"|select|slice|masked_(?!softmax).*|embedding(?!.*sample_weights).*|one_hot|where|nonzero.*"
    r"|argwhere|complex|polar|resize.*|set|contiguous|local_scalar_dense|pin_memory|.*assert.*"
    # Sorting and counting
    r"|argm(ax|in)|argsort|sort|topk|kthvalue|.*median|mode|unique.*|searchsorted|bucketize|histc"
    r"|histogram|bincount|isin|nms"
    # Reductions and scans
    r"|sum|mean|prod|any|all|(is_)?(any|all)_true|a?minmax|a?min|a?max|logsumexp|count_nonzero"
    r"|nansum|norm|(std|var)(_mean)?|linalg_vector_norm|linalg__powsum|dist|trace|segment_reduce"
    r"|cum(sum|prod|max|min)|logcumsumexp|equal|allclose"
    # Pooling and resampling
    r"|.*pool\dd.*|upsample_.*|.*grid_sampler_.*|(ps_)?roi_(align|pool)"
    # Normalisation and losses
    r"|.*softmax.*|.*(batch|group|layer|instance|rms|weight)_norm.*|native_norm|renorm|.*_loss.*"
    r"|binary_cross_entropy.*|log_sigmoid"
    # Random numbers
    r"|rand.*|normal.*|uniform|bernoulli|.*dropout|exponential|geometric|cauchy|log_normal"
    r"|multinomial|poisson|binomial|standard_gamma.*|.*dirichlet.*|rrelu_with_noise"
    # Element by element, without PyTorch's mark
    r"|foreach_(?!mm).*|fused_(adam|adamw|sgd|adagrad)|amp_.*|thnn_fused_(lstm|gru)_cell.*"
    r"|.*fake_quantize.*|fused_moving_avg_obs.*|prelu_kernel|glu|hardswish|softplus|xlogy|add_relu"
    r"|floor_divide|i?[lr]shift"
)
"""Names of operators that do not multiply and add along an axis."""


def _is_free(operator: OpOverload, given: _Given) -> bool:
    """Whether an operator computes no matrix products.

    True for operators that create tensors, return views, are tagged as pointwise by PyTorch, or
    match `_FREE`, including in-place forms and gradients.
    """
    schema = operator._schema
    if operator.namespace not in _KNOWN or given.get("per_sample_weights") is not None:
        return False
    if not tensors_in_tree(list(given.values())) or torch.Tag.inplace_view in operator.tags:
        return True
    if any(each.alias_info is not None for each in schema.returns) and not schema.is_mutable:
        return True
    name = schema.name.partition("::")[2].strip("_")
    forward = re.sub(r"_(backward.*|forward(_only)?|copy|functional|jvp)$", "", name)
    for each in (name, forward):
        packet = getattr(torch.ops.aten, each, None)
        if _FREE.fullmatch(each) or (packet is not None and _is_pointwise(packet)):
            return True
    return False


def _is_pointwise(packet: OpOverloadPacket) -> bool:
    overloads = (getattr(packet, each) for each in packet.overloads())
    return any(torch.Tag.pointwise in each.tags for each in overloads)


def minimal_bytes(operator_tuple: OperatorTuple, outputs: Sequence[TensorSpec]) -> int:
    """Bytes moved if each argument is read once and each result is written once.

    An argument changed in place is read and written; the result, which is the same tensor, is not
    counted again. Of a table from which an operator reads or changes some entries, only these
    count. For a copy between host and device, the copied bytes count.
    """
    if (copied := copy_of(operator_tuple)) is not None:
        return copied.to.bytes
    total = 0
    arguments = dict(operator_tuple.arguments)
    schema = resolve(operator_tuple.operator)._schema
    for argument in schema.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        size = sum(spec.bytes for spec in tensors_in(arguments.get(argument.name)))
        taken = _entries_bytes(operator_tuple, argument.name, outputs)
        total += (size if taken is None else min(size, taken)) * (2 if written else 1)
    if any(value.alias_info is not None and value.alias_info.is_write for value in schema.returns):
        return total
    return total + sum(spec.bytes for spec in outputs)


def _entries_bytes(
    operator_tuple: OperatorTuple, name: str, outputs: Sequence[TensorSpec]
) -> int | None:
    """Bytes of the entries of an argument that a call uses; None if it uses all of it."""
    operator, tensors = operator_tuple.name, dict(operator_tuple.tensors)
    if name == "self" and (source := tensors.get(_WRITTEN_IN_PART.get(operator, ""))) is not None:
        return math.prod(source.shape) * ELEMENT_BYTES[tensors["self"].dtype]
    if name != TABLES.get(operator):
        return None
    if operator in BAGS:
        rows, table = math.prod(tensors["indices"].shape), tensors["weight"]
        return rows * table.bytes // max(1, table.shape[0])
    return sum(spec.bytes for spec in outputs)
